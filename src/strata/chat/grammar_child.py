"""`python -m strata.chat.grammar_child`: tells whether grammars can be compiled, in a process that may be killed.

Lines of JSON: a grammar in, the compiler's complaint out (empty: none).
"""

import json
import sys
from typing import TextIO

from llguidance import LLMatcher

from strata.sampling.grammar import limits


def serve(source: TextIO, sink: TextIO) -> None:
    """Until the end of input."""
    for line in source:
        failed, said = LLMatcher.validate_grammar_with_warnings(json.loads(line), limits=limits())
        sink.write(json.dumps(said[0] if failed else "") + "\n")
        sink.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
