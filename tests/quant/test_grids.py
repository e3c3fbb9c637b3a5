import re
from pathlib import Path

import numpy as np
import pytest
from gguf import quants

import strata.kernels
from strata.quant.grids import GRIDS
from strata.quant.grids_header import header

HEADER = Path(strata.kernels.__file__).parent / "csrc" / "grids.h"
SHAPES = {"IQ2_XXS": (256, 8), "IQ2_XS": (512, 8), "IQ2_S": (1024, 8), "IQ3_XXS": (256, 4), "IQ3_S": (512, 4)}
SHAPES |= {"IQ1": (2048, 8)}


@pytest.mark.parametrize("name", SHAPES)
def test_grid_equals_ggufs(name: str) -> None:
    kind = getattr(quants, "IQ1_S" if name == "IQ1" else name)
    kind.init_grid()
    assert GRIDS[name].shape == SHAPES[name]
    assert np.array_equal(GRIDS[name], kind.grid.reshape(SHAPES[name]))


def tables_of(text: str) -> dict[str, np.ndarray]:
    """The arrays of the C++ header, read back from its text."""
    found = {}
    pattern = r"(unsigned|signed) char grid_(\w+)\[(\d+)\]\[(\d+)\] = \{(.*?)\};"
    for sign, name, entries, width, body in re.findall(pattern, text, re.S):
        values = np.array([int(v) for v in re.findall(r"-?\d+", body)])
        assert sign == "signed" or values.min() >= 0
        found[name.upper()] = values.reshape(int(entries), int(width))
    return found


def test_header_equals_the_tables() -> None:
    text = HEADER.read_text(encoding="utf-8")
    assert text == header(), "grids.h is old: python -m strata.quant.grids_header src/strata/kernels/csrc/grids.h"
    tables = tables_of(text)
    assert tables.keys() == GRIDS.keys()
    assert all(np.array_equal(tables[name], GRIDS[name]) for name in GRIDS)


def test_a_changed_value_in_the_header_shows() -> None:
    changed = header().replace("{8,8,8,8,8,8,8,8}", "{8,8,8,8,8,8,8,9}", 1)
    assert not np.array_equal(tables_of(changed)["IQ2_XXS"], GRIDS["IQ2_XXS"])
