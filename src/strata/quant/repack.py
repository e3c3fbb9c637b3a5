"""Other codes in encoded rows: the scales that an encoder chose stay, byte for byte."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.core.errors import UnsupportedError
from strata.quant.blocks import Bytes, Floats
from strata.quant.decode_legacy import NON_LINEAR
from strata.quant.format import QuantFormat

Places = npt.NDArray[np.uint8]
"""Which of the format's levels each value has, [N, block]."""


def _nibbles(codes: Places, groups: int) -> Bytes:
    """[N, block] -> [N, block / 2]: per group of values the first half in the low nibbles, the second in the high."""
    parts = codes.reshape(len(codes), groups, 2, -1) & 15
    return np.ascontiguousarray(parts[:, :, 0] | parts[:, :, 1] << 4).reshape(len(codes), -1)


def _bit_of_each(codes: Places, bit: int) -> Bytes:
    """[N, 32] -> [N, 4]: one bit of every value, value i in bit i."""
    return np.packbits(codes >> bit & 1, axis=1, bitorder="little")


def _planes(codes: Places, bit: int) -> Bytes:
    """[N, 256] -> [N, 32]: one bit of value 32 g + l in bit g of byte l."""
    return np.packbits(codes.reshape(-1, 8, 32) >> bit & 1, axis=1, bitorder="little").reshape(-1, 32)


def _crumbs(codes: Places, shift: int) -> Bytes:
    """[N, 256] -> [N, 64]: two bits of value 128 h + 32 g + l in bits 2 g of byte 32 h + l."""
    parts = (codes >> shift & 3).reshape(-1, 2, 4, 32) << np.array([0, 2, 4, 6], np.uint8)[:, None]
    return np.asarray(np.bitwise_or.reduce(parts, axis=2).reshape(-1, 64), np.uint8)


Part = tuple[int, Callable[[Places], Bytes]]
"""(first byte of a block, the bytes there)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The integers that one value of a format can be, increasing, and where a block keeps which of them it is."""

    levels: Floats
    parts: tuple[Part, ...]


def _range(low: int, high: int) -> Floats:
    return np.arange(low, high + 1, dtype=np.float32)


_FOUR: Callable[[Places], Bytes] = lambda c: _nibbles(c, 1)  # noqa: E731
_K_FOUR: Callable[[Places], Bytes] = lambda c: _nibbles(c, 4)  # noqa: E731
_FIFTH: Callable[[Places], Bytes] = lambda c: _bit_of_each(c, 4)  # noqa: E731

LAYOUTS = {
    "Q4_0": Layout(_range(-8, 7), ((2, _FOUR),)),
    "Q4_1": Layout(_range(0, 15), ((4, _FOUR),)),
    "Q5_0": Layout(_range(-16, 15), ((2, _FIFTH), (6, _FOUR))),
    "Q5_1": Layout(_range(0, 31), ((4, _FIFTH), (8, _FOUR))),
    # -128 is left out: the encoders never write it, and kernels may negate
    "Q8_0": Layout(_range(-127, 127), ((2, lambda c: c - np.uint8(127)),)),
    "IQ4_NL": Layout(NON_LINEAR.astype(np.float32), ((2, _FOUR),)),
    "IQ4_XS": Layout(NON_LINEAR.astype(np.float32), ((8, lambda c: _nibbles(c, 8)),)),
    "Q2_K": Layout(_range(0, 3), ((16, lambda c: _crumbs(c, 0)),)),
    "Q3_K": Layout(_range(-4, 3), ((0, lambda c: _planes(c, 2)), (32, lambda c: _crumbs(c, 0)))),
    "Q4_K": Layout(_range(0, 15), ((16, _K_FOUR),)),
    "Q5_K": Layout(_range(0, 31), ((16, lambda c: _planes(c, 4)), (48, _K_FOUR))),
    "Q6_K": Layout(_range(-32, 31), ((0, lambda c: _nibbles(c, 2)), (128, lambda c: _crumbs(c, 4)))),
}
"""The formats whose values each have a code of their own (the grid formats code several together)."""


def repack(fmt: QuantFormat, raw: Bytes, places: Places) -> Bytes:
    """`raw` [rows, row_bytes] with the levels at `places` (uint8 [rows, n], indices into the layout's levels).

    UnsupportedError for a format without codes of single values, ValueError for an index beyond its levels.
    """
    layout = layout_of(fmt)
    if places.shape != (len(raw), fmt.row_values(raw.shape[1])):
        raise ValueError(f"codes of shape {places.shape} for {raw.shape} bytes of {fmt.name}")
    if places.size and int(places.max()) >= len(layout.levels):
        raise ValueError(f"{fmt.name} has {len(layout.levels)} levels, found index {int(places.max())}")
    blocks = raw.reshape(-1, fmt.block_bytes).copy()
    codes = places.reshape(-1, fmt.block)
    for start, packed in layout.parts:
        part = packed(codes)
        blocks[:, start : start + part.shape[1]] = part
    return blocks.reshape(raw.shape)


def layout_of(fmt: QuantFormat) -> Layout:
    """The format's layout, or an UnsupportedError."""
    if fmt.name not in LAYOUTS:
        raise UnsupportedError(f"{fmt.name} has no code for a single value")
    return LAYOUTS[fmt.name]
