"""Codes put back into encoded rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import UnsupportedError
from strata.quant.decode import codes
from strata.quant.encode import encode
from strata.quant.formats import FORMATS
from strata.quant.repack import LAYOUTS, layout_of, repack

ROWS, COLUMNS = 3, 512


def encoded(name: str, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    return encode(FORMATS[name], x)


@pytest.mark.parametrize("name", LAYOUTS)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_result_decodes_to_the_chosen_codes_and_the_old_scales(name: str, seed: int) -> None:
    fmt, raw = FORMATS[name], encoded(name, seed)
    levels = LAYOUTS[name].levels
    places = np.random.default_rng(seed + 1).integers(0, len(levels), (ROWS, COLUMNS)).astype(np.uint8)

    after, before = codes(fmt, repack(fmt, raw, places)), codes(fmt, raw)

    assert (after.w_int == levels[places]).all()
    assert (after.scale == before.scale).all()
    assert before.min_scale is None or (after.min_scale == before.min_scale).all()


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_same_codes_give_the_same_bytes(name: str) -> None:
    fmt, raw = FORMATS[name], encoded(name, 0)
    places = np.searchsorted(LAYOUTS[name].levels, codes(fmt, raw).w_int.astype(np.float32)).astype(np.uint8)
    kept = raw.copy()
    assert (repack(fmt, raw, places) == raw).all()
    places[0, 0] ^= 1
    assert (repack(fmt, raw, places) != raw).sum() in (1, 2)
    assert (raw == kept).all()


def test_levels_increase() -> None:
    for name, layout in LAYOUTS.items():
        assert (np.diff(layout.levels) > 0).all(), name


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="IQ3_S has no code for a single value"):
        layout_of(FORMATS["IQ3_S"])
    fmt, raw = FORMATS["Q4_0"], encoded("Q4_0", 0)
    with pytest.raises(ValueError, match="16 levels, found index 16"):
        repack(fmt, raw, np.full((ROWS, COLUMNS), 16, np.uint8))
    with pytest.raises(ValueError, match="codes of shape"):
        repack(fmt, raw, np.zeros((ROWS, COLUMNS - 32), np.uint8))
