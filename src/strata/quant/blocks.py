"""Reading fields out of blocks: every function takes uint8 [N, block_bytes], fields are little-endian."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Decoded:
    """N blocks: value = scale * w_int - min_scale, scales shared by runs of `sub` values.

    w_int int32 [N, block]; scale, min_scale float32 [N, block / sub].
    """

    w_int: Ints
    scale: Floats
    min_scale: Floats | None = None


def ints(raw: Bytes, start: int, count: int) -> Ints:
    """`count` unsigned bytes at `start` -> int32 [N, count]."""
    return raw[:, start : start + count].astype(np.int32)


def signed(raw: Bytes, start: int, count: int) -> Ints:
    """`count` signed bytes at `start` -> int32 [N, count]."""
    return np.ascontiguousarray(raw[:, start : start + count]).view(np.int8).astype(np.int32)


def words(raw: Bytes, start: int, count: int, size: int) -> npt.NDArray[np.int64]:
    """`count` unsigned words of `size` (2 or 4) bytes at `start` -> int64 [N, count]."""
    part = np.ascontiguousarray(raw[:, start : start + count * size])
    return part.view(f"<u{size}").astype(np.int64)


def half(raw: Bytes, start: int) -> Floats:
    """The fp16 at `start`, exactly -> float32 [N, 1]."""
    return np.ascontiguousarray(raw[:, start : start + 2]).view("<f2").astype(np.float32)


def nibbles(packed: Ints) -> Ints:
    """[N, G, B] bytes -> [N, G * 2B]: per group all low nibbles, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)


def nibble_pairs(packed: Ints) -> Ints:
    """[N, B] bytes -> [N, 2B]: low and high nibble of each byte next to each other."""
    return np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)


def bits(packed: Ints, count: int = 8) -> Ints:
    """[N, B] integers -> [N, B * count]: their `count` lowest bits, lowest first."""
    return (packed[:, :, None] >> np.arange(count, dtype=np.int32) & 1).reshape(len(packed), -1)


def by_scale(scale: Floats, small: Ints) -> Floats:
    """fp16 scale times a small integer scale, as one float32 product.

    Exact: 11 significant bits times at most 8 fit in float32's 24, and fp16's range leaves no way to underflow.
    """
    return scale * small.astype(np.float32)
