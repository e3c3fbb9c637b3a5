from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.rational import fma32, quantise32, round32, tree32
from strata.kernels.exact import fma, lane_dot, lane_tree, quantise_rows

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def bits(x: object) -> np.ndarray:
    return np.asarray(x, np.float32).view(np.uint32)


def hard_cases(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Triples where rounding is decided by the last bits: ties broken by a tiny term, cancellation, subnormals."""
    a = (rng.integers(1 << 23, 1 << 24, count) * 2.0 ** rng.integers(-30, 8, count)).astype(np.float32)
    b = (rng.integers(1 << 11, 1 << 12, count) * 2.0 ** rng.integers(-20, 8, count)).astype(np.float32)
    product = a.astype(np.float64) * b
    cancel = (-product * (1 + rng.integers(-2, 3, count) * 2.0**-24)).astype(np.float32)
    tiny = (product * 2.0 ** rng.integers(-60, -20, count)).astype(np.float32)
    large = (product * 2.0 ** rng.integers(10, 50, count)).astype(np.float32)
    return np.tile(a, 4), np.tile(b, 4), np.concatenate([cancel, tiny, -tiny, large])


def test_fma_equals_rational_arithmetic_on_hard_cases() -> None:
    rng = np.random.default_rng(0)
    a, b, c = hard_cases(rng, 1500)
    half = (a.astype(np.float64) * b * 2.0**-24).astype(np.float32)  # an addend that makes a tie of the product
    a, b, c = np.tile(a, 2), np.tile(b, 2), np.concatenate([c, np.where(c < 0, -half, half)])
    small = (a * np.float32(2.0**-100)).astype(np.float32)  # results around and below the smallest normal number
    a, b, c = np.concatenate([a, small]), np.tile(b * np.float32(2.0**-8), 2), np.concatenate([c, c * np.float32(0)])
    c[len(c) // 2 :] = rng.integers(-9, 10, len(c) // 2) * np.float32(1e-45)
    want = np.array([fma32(*t) for t in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)], np.float32)
    assert np.array_equal(fma(a, b, c), want)


def test_rounding_twice_would_show() -> None:
    """The control: a plain float64 sum, rounded again, misses the tiny addend that breaks a tie."""
    a, c = np.float32(1 + 2.0**-12), np.float32(2.0**-80)
    assert np.float32(float(a) * float(a) + float(c)) == 1 + 2.0**-11
    assert fma(a, a, c) == np.float32(fma32(a, a, c)) == np.float32(1 + 2.0**-11 + 2.0**-23)
    assert fma(a, a, -c) == np.float32(1 + 2.0**-11)


@given(FLOATS, FLOATS, FLOATS)
def test_fma_equals_rational_arithmetic(a: float, b: float, c: float) -> None:
    assert fma(np.float32(a), np.float32(b), np.float32(c)) == np.float32(fma32(a, b, c))


def test_fma_of_special_values() -> None:
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    assert np.isnan(fma(inf, 0.0, 1.0)) and np.isnan(fma(inf, 1.0, -inf)) and np.isnan(fma(1.0, 1.0, nan))
    assert fma(inf, 2.0, 5.0) == inf and fma(3e38, 10.0, 0.0) == inf and fma(-3e38, 10.0, 1.0) == -inf
    assert fma(3e38, 10.0, -inf) == -inf
    assert bits(fma(-0.0, 1.0, -0.0)) == 0x80000000 and bits(fma(-0.0, 1.0, 0.0)) == 0
    assert bits(fma(-1e-30, 1e-30, 0.0)) == 0x80000000  # an underflow keeps its sign


def test_round32_agrees_with_numpy() -> None:
    rng = np.random.default_rng(2)
    values = rng.standard_normal(2000) * 10.0 ** rng.integers(-47, 39, 2000)
    with np.errstate(over="ignore", under="ignore"):
        want = values.astype(np.float32)
    assert [round32(Fraction(v)) for v in values] == want.tolist()


def test_lane_tree_adds_in_the_written_order() -> None:
    lanes = (np.random.default_rng(3).standard_normal((200, 32)) * 10.0**4).astype(np.float32)
    got = lane_tree(lanes)
    assert got.tolist() == [tree32(row) for row in lanes.tolist()]
    neighbours = lanes.reshape(200, 16, 2).transpose(0, 2, 1).reshape(200, 32)
    assert np.any(lane_tree(neighbours) != got)  # control: pairs of neighbours first is another sum


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 64, 100])
def test_lane_dot(length: int) -> None:
    rng = np.random.default_rng(length)
    a, b = (rng.standard_normal((3, length)).astype(np.float32) for _ in range(2))
    for row in range(3):
        lanes = [0.0] * 32
        for i in range(length):
            lanes[i % 32] = fma32(a[row, i], b[row, i], lanes[i % 32])
        assert lane_dot(a, b)[row] == np.float32(tree32(lanes))


def test_a_missing_element_leaves_a_negative_zero_alone() -> None:
    """-0 in every lane stays -0; a product with a padding zero would make one of them +0."""
    a, b = np.full(32, -1e-30, np.float32), np.full(32, 1e-30, np.float32)
    assert bits(lane_dot(a, b)) == 0x80000000
    more = np.concatenate([a, a[:3]])
    assert bits(lane_dot(more, np.concatenate([b, b[:3]]))) == 0x80000000


def test_quantise_equals_rational_arithmetic() -> None:
    rng = np.random.default_rng(4)
    x = (rng.standard_normal((20, 64)) * 10.0 ** rng.integers(-44, 38, (20, 1))).astype(np.float32)
    x[0] = np.arange(64) * 0.5  # half steps when the largest is 127: see below
    x[1, :32] = np.append(np.arange(31) + 0.5, 127.0)
    x[2, 5] = 1e30
    got = quantise_rows(x)
    for row in range(20):
        for block in range(2):
            part = slice(32 * block, 32 * block + 32)
            codes, d = quantise32(x[row, part])
            assert got.d[row, block] == np.float32(d)
            assert got.q[row, part].tolist() == codes
            assert got.m[row, block] == sum(codes)
    assert got.d[1, 0] == 1 and got.q[1, :4].tolist() == [0, 2, 2, 4]  # ties to even
    assert np.abs(got.q).max() == 127


def test_quantise_edges() -> None:
    x = np.zeros((5, 64), np.float32)
    x[1, 3], x[2, 40], x[3, 0] = np.inf, np.nan, -np.inf
    x[4, :32] = 1e-45
    got = quantise_rows(x)
    assert got.d[0].tolist() == [0, 0] and got.d[4, 0] == 0
    assert np.isnan(got.d[1, 0]) and got.d[1, 1] == 0
    assert got.d[2, 0] == 0 and np.isnan(got.d[2, 1]) and np.isnan(got.d[3, 0])
    assert not got.q.any() and not got.m.any()
    assert quantise_rows(np.zeros((0, 32), np.float32)).q.shape == (0, 32)
    unit = 2.0**-149  # 190 / 127 rounds to 1 of the smallest subnormal, so the ratio is 190: clamped
    tiny = quantise_rows(np.array([[190 * unit, -190 * unit, 3 * unit] + [0.0] * 29], np.float32))
    assert tiny.d[0, 0] == unit and tiny.q[0, :4].tolist() == [127, -127, 3, 0]
    with pytest.raises(ValueError, match="rows of 48 values cannot be quantised"):
        quantise_rows(np.zeros((1, 48), np.float32))
