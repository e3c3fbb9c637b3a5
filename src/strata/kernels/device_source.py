"""The device kernels' sources: which units there are, their text, and a digest of all that a unit is made of."""

import hashlib
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "csrc" / "device"
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)
STRATA_INCLUDES = (FOLDER, FOLDER.parent, FOLDER / "rtc")
"""Where a compiler looks for headers; the last one stands in for the standard ones."""


def units() -> tuple[str, ...]:
    """The translation units: a header's name without .h, then defines (NAME=VALUE), separated by spaces."""
    return tuple(line for line in (FOLDER / "units.txt").read_text().splitlines() if line)


def source(unit: str) -> str:
    """What is compiled for a unit."""
    header, *defines = unit.split(" ")
    lines = [f"#define {define.replace('=', ' ', 1)}" for define in defines]
    return "\n".join([*lines, f'#include "{header}.h"', ""])


def files(unit: str) -> tuple[Path, ...]:
    """The headers of a unit that lie here, in the order of their paths."""
    found: set[Path] = set()
    waiting = [FOLDER / f"{unit.split(' ')[0]}.h"]
    while waiting:
        file = waiting.pop().resolve()
        if file in found:
            continue
        found.add(file)
        for name in INCLUDE.findall(file.read_text()):
            waiting.append(next(p for p in (file.parent / name, *(at / name for at in STRATA_INCLUDES)) if p.is_file()))
    return tuple(sorted(found))


def digest(unit: str, *others: str) -> str:
    """Changes whenever the unit's text, one of its headers or one of `others` does."""
    made = hashlib.sha256("\0".join([source(unit), *others]).encode())
    for file in files(unit):
        made.update(file.read_bytes())
    return made.hexdigest()
