"""Format names as people write them."""

import difflib
import re

from strata.core.errors import UsageError
from strata.quant.formats import FORMATS

WRITABLE = tuple(n for n, f in FORMATS.items() if f.type_id >= 0 and f.kind != "data")
"""Every format that a matrix of a GGUF file can be written in."""

_MIX = re.compile(r"(Q\d_K|IQ\d)_(S|M|L|XL)")


def format_named(option: str, text: str) -> str:
    """GGML's name of the format, in any case; UsageError (with a hint for mixes such as Q4_K_M) for another word."""
    name = text.upper().replace("-", "_")
    if name in WRITABLE:
        return name
    mix = _MIX.fullmatch(name)
    if mix is not None:
        plain = mix[1] if mix[1] in WRITABLE else f"{mix[1]}_S"
        raise UsageError(
            f"{option} {text[:40]}: this is llama.cpp's name of a mix of formats, and mixes are not built",
            f"name formats: --type {plain} --down-type Q6_K, for example",
        )
    near = difflib.get_close_matches(name, WRITABLE, n=1)
    if name in FORMATS:
        hint = f"GGUF has no such format; one of {', '.join(WRITABLE)}"
    else:
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(WRITABLE)}"
    raise UsageError(f"{option} {text[:40]!r}: not a format that a GGUF file's matrices can have", hint)


def optional_format(option: str, text: str) -> str | None:
    """`format_named`, or None for an option that was not given."""
    return format_named(option, text) if text else None


def pattern_named(text: str) -> tuple[str, str]:
    """REGEX=FORMAT -> (regular expression, format)."""
    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern:
        raise UsageError(f"--tensor-type {text[:60]!r}: expected REGEX=FORMAT", r"for example 'blk\.0\..*=Q8_0'")
    return pattern, format_named(f"--tensor-type {pattern[:40]}=", name)
