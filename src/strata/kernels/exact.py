"""Float32 arithmetic with every rounding written down, in numpy: the helpers of the naive twins (docs/numerics.md).

numpy rounds each float32 operation once and never fuses; what it lacks is the fused multiply-add, which `fma` builds
from float64. Invalid and overflowing operations give NaN and infinity without a warning, as the C++ form does.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array32 = npt.NDArray[np.float32]
LANES = 32
BLOCK = 32
"""Activations that share one scale."""


def fma(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> Array32:
    """a * b + c for float32 arrays (broadcast), rounded once to nearest even.

    The float64 product of two float32 is exact. Its float64 sum with c is rounded to odd: when TwoSum leaves an error
    and the sum's last bit is 0, the sum moves one step towards the error. Rounding that to float32 is then right,
    subnormals included, since float64 has more than two bits to spare (Boldo and Melquiond 2008).
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
        product, addend = np.broadcast_arrays(product, np.asarray(c, np.float64))
        total = np.asarray(product + addend)
        part = total - product
        error = (product - (total - part)) + (addend - part)
        pattern = total.view(np.int64)
        inexact = np.isfinite(total) & (error != 0) & (pattern & 1 == 0)
        step = np.where((error > 0) == (total > 0), 1, -1)
        return np.asarray(np.where(inexact, pattern + step, pattern).view(np.float64).astype(np.float32))


def multiply(a: npt.ArrayLike, b: npt.ArrayLike) -> Array32:
    """a * b in float32, rounded once."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        return np.asarray(np.asarray(a, np.float32) * np.asarray(b, np.float32))


def add(a: npt.ArrayLike, b: npt.ArrayLike) -> Array32:
    """a + b in float32, rounded once."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.asarray(a, np.float32) + np.asarray(b, np.float32))


def divide(a: npt.ArrayLike, b: npt.ArrayLike) -> Array32:
    """a / b in float32, rounded once (IEEE: x / 0 is an infinity or NaN)."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore", divide="ignore"):
        return np.asarray(np.asarray(a, np.float32) / np.asarray(b, np.float32))


def lane_tree(lanes: Array32) -> Array32:
    """Sum of 32 lanes [..., 32] -> [...]: l and l + 16 are added, then l + 8, + 4, + 2, + 1."""
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = add(lanes[..., :half], lanes[..., half:])
    return lanes[..., 0]


def lane_dot(a: Array32, b: Array32) -> Array32:
    """Dot product over the last axis (broadcast over the others): the float twin of the canonical product.

    Lane l takes elements l, l + 32, ... in order, one fma each, from 0; then the tree. A lane without an element in the
    last, partial round is left as it is (no fma with zeros: that could turn -0 into 0). a, b [..., D] -> [...].
    """
    length = a.shape[-1]
    acc = np.zeros((*np.broadcast_shapes(a.shape[:-1], b.shape[:-1]), LANES), np.float32)
    for start in range(0, length, LANES):
        used = min(LANES, length - start)
        acc[..., :used] = fma(a[..., start : start + used], b[..., start : start + used], acc[..., :used])
    return lane_tree(acc)


@dataclass(frozen=True, slots=True)
class QuantisedRows:
    """Activations as int8 blocks of 32.

    q int8 [T, K]; d float32 [T, K / 32], the scale of each block; m int32 [T, K / 32], the sum of each block's q.
    """

    q: npt.NDArray[np.int8]
    d: Array32
    m: npt.NDArray[np.int32]


def quantise_rows(x: Array32) -> QuantisedRows:
    """x float32 [T, K] -> int8 codes (docs/numerics.md, 1.1); ValueError when K is no multiple of 32.

    d = max|x| / 127; q = clamp(round_half_even(x / d), -127, 127), both divisions in float32; d = 0 gives q = 0; a
    block with a value that is not finite gets d = NaN and q = 0.
    """
    rows, length = x.shape
    if length % BLOCK:
        raise ValueError(f"rows of {length} values cannot be quantised: not a multiple of {BLOCK}")
    blocks = x.reshape(rows, length // BLOCK, BLOCK)
    finite = np.isfinite(blocks).all(axis=2)
    d = np.where(finite, divide(np.abs(blocks).max(axis=2, initial=0), np.float32(127)), np.float32(np.nan))
    usable = (d > 0)[:, :, None]
    ratio = divide(np.where(usable, blocks, np.float32(0)), np.where(usable, d[:, :, None], np.float32(1)))
    q = np.clip(np.rint(ratio), -127, 127).astype(np.int8)
    return QuantisedRows(q.reshape(rows, length), d.astype(np.float32), q.sum(axis=2, dtype=np.int32))
