"""docs/reference/engine-protocol.md: the lines between the server and the engine."""

import inspect
import re
from dataclasses import fields

from references.tables import code, page, table
from strata.core.sharing import Sharing
from strata.engine import protocol
from strata.engine.commands import CODES, KEYS
from strata.engine.request import Request
from strata.sampling.params import SamplingParams

INTRODUCTION = """
`strata engine [MODEL]` speaks it on stdin and stdout, `strata serve` starts an engine and speaks it with it. It knows
token ids only; text is the server's. A person can type it:

    $ strata engine --draft off
    INFO batch_slots=4 requested=4 reason=default
    INFO model=demo.gguf device=cpu threads=2 ...
    READY 8192 0 2
    GEN a 4 temperature=0 2663 1454 265 929
    PP a 4 4
    T a 20
    T a 831
    T a 358
    T a 265
    DONE a length prompt=4 reused=0 generated=4 drafted=0 accepted=0 steps=3 queue_ms=0.820 prompt_ms=70.582 ...
    QUIT

The demo read "Once upon a time" (the line that begins with GEN was typed, and the last).
"""


def engine_protocol() -> str:
    """The page."""
    title, _, grammar = inspect.cleandoc(protocol.__doc__ or "").partition("\n\n")
    lines = "\n".join(f"    {line}".rstrip() for line in grammar.splitlines())
    return page(
        "The engine's line protocol",
        title,
        INTRODUCTION,
        "## Lines",
        lines,
        "## Keys of GEN and BGEN",
        "Those of sampling have the meanings of llama.cpp and OpenAI; without any, an answer is greedy.",
        table(("key", "default", "what"), [_key(name) for name in KEYS]),
        "## Codes",
        table(("code", "when"), [(code(name), text) for name, text in CODES.items()]),
    )


def _key(name: str) -> tuple[str, str, str]:
    key = KEYS[name]
    cls = {"": Request, "params": SamplingParams, "sharing": Sharing}[key.part]
    default = key.of(Request(id="default", tokens=(0,)))
    shown = "" if default is None or name == "stop" else key.write(default)
    return code(name), code(shown) if shown else "none", about(cls).get(key.field, "")


def about(cls: type) -> dict[str, str]:
    """The line below each field of a dataclass."""
    source = inspect.getsource(cls)
    found = {}
    for field in fields(cls):
        match = re.search(rf'^    {field.name}: [^\n]*\n    """(.+?)"""', source, re.MULTILINE | re.DOTALL)
        if match:
            found[field.name] = " ".join(match[1].split())
    return found
