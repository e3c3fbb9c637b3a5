"""Rounding with error feedback against plain rounding, on inputs that depend on each other."""

import itertools

import numpy as np
import pytest

from strata.core.errors import UnsupportedError
from strata.quant.decode import codes, dequantise
from strata.quant.encode import encode
from strata.quant.feedback import Factors, factors, rounded, supported, weighted
from strata.quant.formats import FORMATS
from strata.quant.repack import LAYOUTS

ROWS, COLUMNS = 24, 256


def inputs(seed: int, rank: int = 64, rows: int = 400) -> np.ndarray:
    """Rows that mostly lie in `rank` directions, with columns of unequal loudness."""
    r = np.random.default_rng(seed)
    mix = r.standard_normal((rank, COLUMNS)) * np.exp(r.standard_normal(COLUMNS))
    return (r.standard_normal((rows, rank)) @ mix + 0.1 * r.standard_normal((rows, COLUMNS))).astype(np.float32)


def weights(seed: int) -> np.ndarray:
    return np.random.default_rng(seed + 1000).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def errors(v: np.ndarray, w: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    e = (w - v).astype(np.float64)
    return ((e @ hessian) * e).sum(axis=1)


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_row_gets_worse_and_the_matrix_gets_much_better(name: str) -> None:
    fmt, w, x = FORMATS[name], weights(0), inputs(0)
    hessian = x.T @ x
    by = factors(hessian)
    plain = encode(fmt, w, np.diag(hessian).copy())

    better = rounded(fmt, plain, w, by)

    before, after = (errors(dequantise(fmt, raw), w, hessian) for raw in (plain, better))
    assert after.sum() < 0.5 * before.sum()
    damped = [weighted((w - dequantise(fmt, raw))[:, by.order], by.hessian) for raw in (plain, better)]
    assert (damped[1] <= damped[0] * (1 + 1e-4)).all()
    assert (codes(fmt, better).scale == codes(fmt, plain).scale).all()


def test_inputs_not_used_for_rounding_gain_too() -> None:
    fmt, w = FORMATS["Q4_K"], weights(1)
    x = inputs(1, rows=800)
    seen, unseen = x[:400], x[400:]
    hessian = seen.T @ seen
    plain = encode(fmt, w, np.diag(hessian).copy())
    better = rounded(fmt, plain, w, factors(hessian))
    judged = unseen.T @ unseen
    before, after = (errors(dequantise(fmt, raw), w, judged).sum() for raw in (plain, better))
    assert after < 0.7 * before


def test_independent_equal_inputs_leave_nearest_values() -> None:
    fmt, w = FORMATS["Q5_0"], weights(2)
    plain = encode(fmt, w)
    better = rounded(fmt, plain, w, factors(np.eye(COLUMNS)))
    held = codes(fmt, plain)
    scale = np.repeat(held.scale, fmt.sub, axis=1)
    reach = np.clip(w, scale * np.where(scale > 0, -16, 15), scale * np.where(scale > 0, 15, -16))
    assert (np.abs(reach - dequantise(fmt, better)) <= np.abs(scale) / 2 * (1 + 1e-5)).all()


def test_every_choice_is_the_best_with_all_others_fixed() -> None:
    fmt, w, x = FORMATS["IQ4_NL"], weights(3)[:2, :32], inputs(3)[:, :32]
    by = factors(x.T @ x)
    plain = encode(fmt, w)
    better = rounded(fmt, plain, w, by, passes=50)
    held = codes(fmt, better)
    least = weighted((w - dequantise(fmt, better))[:, by.order], by.hessian)
    for j, level in itertools.product(range(32), LAYOUTS["IQ4_NL"].levels):
        other = dequantise(fmt, better).copy()
        other[:, j] = level * held.scale[:, 0]
        assert (weighted((w - other)[:, by.order], by.hessian) >= least * (1 - 1e-5)).all()


def test_factors_are_those_of_the_damped_hessian() -> None:
    x = inputs(4)
    hessian = x.T @ x
    by = factors(hessian, damping=0.02)
    expected = hessian / (np.trace(hessian) / COLUMNS) + 0.02 * np.eye(COLUMNS)
    expected = expected[np.ix_(by.order, by.order)]
    assert np.allclose(by.hessian, expected, rtol=1e-5)
    assert np.allclose(by.upper.T @ by.upper @ expected, np.eye(COLUMNS), atol=1e-3)
    assert (np.tril(by.upper, -1) == 0).all()
    assert (np.diff(np.diag(by.hessian)) <= 0).all()


def test_empty_blocks_stay_zero() -> None:
    fmt, w, x = FORMATS["Q4_0"], weights(5), inputs(5)
    w[:, :32] = 0
    better = rounded(fmt, encode(fmt, w), w, factors(x.T @ x))
    assert (dequantise(fmt, better)[:, :32] == 0).all()


def test_what_cannot_be_done_is_refused() -> None:
    for bad in (np.zeros((4, 4)), np.full((4, 4), np.nan)):
        with pytest.raises(ValueError, match="finite and not zero"):
            factors(bad)
    assert not supported(FORMATS["IQ3_S"])
    w = weights(6)
    by = Factors(np.arange(COLUMNS), np.eye(COLUMNS, dtype=np.float32), np.eye(COLUMNS, dtype=np.float32))
    with pytest.raises(UnsupportedError):
        rounded(FORMATS["IQ3_S"], encode(FORMATS["IQ3_S"], w, np.ones(COLUMNS, np.float32)), w, by)
