"""A checkpoint's tensors under GGUF's names and conventions, made one at a time as float32."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Item:
    """One tensor to be written: `parts` makes its rows piece by piece, in order, each float32 [rows, cols]."""

    name: str
    """GGUF's, with its suffix."""
    shape: tuple[int, ...]
    """Torch order."""
    parts: Callable[[], Iterator[Floats]]
    stored: str
    """Format in the source file, e.g. "BF16"."""

    @property
    def columns(self) -> int:
        """Length of a row."""
        return self.shape[-1]

    @property
    def count(self) -> int:
        """Number of values."""
        n = 1
        for d in self.shape:
            n *= d
        return n


def tile_heads(x: Floats, key_heads: int, dim: int, axis: int = 0) -> Floats:
    """Value heads grouped by key head -> tiled: file position j * nk + i holds head i * r + j; `dim` rows per head.

    llama.cpp's converter for qwen35moe and qwen4exp does this to every tensor that counts value heads, so that head h
    reads key head h mod nk.
    """
    moved = np.moveaxis(x, axis, 0)
    share = moved.shape[0] // (key_heads * dim)
    parts = moved.reshape(key_heads, share, dim, *moved.shape[1:]).swapaxes(0, 1)
    return np.ascontiguousarray(np.moveaxis(parts.reshape(moved.shape), 0, axis))
