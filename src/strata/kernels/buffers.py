"""Memory for the intermediate results of a recorded program.

A block goes back when the last tensor over it is gone, and serves a later operation of the same program. That order is
the program's own, so it holds whenever the program runs again: nothing a later operation still reads is overwritten.
"""

import math
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

Block = npt.NDArray[np.uint8]

SMALLEST = 4096
"""Bytes of the smallest block; sizes are powers of two, so that blocks are found again."""


class Buffers:
    """Blocks by size; those that no tensor uses are free."""

    def __init__(self) -> None:
        self.free: dict[int, list[Block]] = {}
        self.nbytes = 0
        """Bytes of all blocks."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised contiguous tensor."""
        nbytes = math.prod(shape) * dtype.itemsize
        block = self.block(nbytes)
        view = block[:nbytes]
        # The tensor's storage holds `view`, and so do all tensors that share it.
        weakref.finalize(view, self.free[len(block)].append, block).atexit = False
        return torch.from_numpy(view).view(dtype).view(tuple(shape))

    def block(self, nbytes: int) -> Block:
        """A free block of at least `nbytes` bytes, or a new one."""
        size = max(SMALLEST, 1 << max(0, nbytes - 1).bit_length())
        waiting = self.free.setdefault(size, [])
        if waiting:
            return waiting.pop()
        self.nbytes += size
        return np.empty(size, np.uint8)
