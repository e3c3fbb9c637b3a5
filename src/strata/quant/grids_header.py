"""Writes the grids as a C++ header: `python -m strata.quant.grids_header src/strata/kernels/csrc/grids.h`."""

import sys
from pathlib import Path

from strata.quant.grids import GRIDS

_HEAD = """// Code grids of the i-quants, index -> values. Made by `python -m strata.quant.grids_header`: do not edit.
// Values fit in int8; IQ2 and IQ3 grids are positive (their signs are stored apart), IQ1 holds -1, 0, 1.
#pragma once

#ifndef STRATA_TABLE  // a device compiler defines its own address space
#define STRATA_TABLE static constexpr
#endif

namespace strata {
"""


def header() -> str:
    """The whole text of grids.h: one array `grid_<name>[entries][width]` per table."""
    parts = [_HEAD]
    for name, grid in GRIDS.items():
        kind = "signed char" if grid.min() < 0 else "unsigned char"
        parts.append(f"STRATA_TABLE {kind} grid_{name.lower()}[{grid.shape[0]}][{grid.shape[1]}] = {{")
        cells = ["{" + ",".join(str(int(v)) for v in row) + "}" for row in grid]
        step = 4 if grid.shape[1] == 8 else 8
        parts.extend("    " + ", ".join(cells[i : i + step]) + "," for i in range(0, len(cells), step))
        parts.append("};\n")
    parts.append("}  // namespace strata\n")
    return "\n".join(parts)


def main(arguments: list[str]) -> None:
    """Write the header to the path given."""
    if len(arguments) != 1:
        raise SystemExit("usage: python -m strata.quant.grids_header PATH")
    Path(arguments[0]).write_text(header(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
