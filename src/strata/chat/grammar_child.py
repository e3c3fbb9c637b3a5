"""`python -m strata.chat.grammar_child`: tells whether grammars can be compiled, in a process that may be killed.

Lines of JSON: a constraint's word in; out the compiler's complaint (empty: none) and, of an answer that has to end in
time, a short text that it may be (null: none was found).
"""

import json
import sys
from typing import TextIO

from llguidance import LLMatcher

from strata.sampling.constraint import read_constraint
from strata.sampling.grammar import MaskMaker, Vocabulary, limits

BYTES = [b"<end>", *(bytes([value]) for value in range(256))]
"""A vocabulary that spells whatever there is."""


def encode(text: str) -> list[int]:
    """Text in it."""
    return [1 + value for value in text.encode()]


def serve(source: TextIO, sink: TextIO) -> None:
    """Until the end of input."""
    maker = MaskMaker(lambda: Vocabulary(BYTES, frozenset((0,)), [0], encode), len(BYTES))
    for line in source:
        asked = read_constraint(json.loads(line))
        failed, said = LLMatcher.validate_grammar_with_warnings(asked.grammar, limits=limits())
        short = None if failed or asked.most is None else maker.short_answer(asked)
        text = None if short is None else b"".join(BYTES[token] for token in short).decode(errors="replace")
        sink.write(json.dumps([said[0] if failed else "", text]) + "\n")
        sink.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
