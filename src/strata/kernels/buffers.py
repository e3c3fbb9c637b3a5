"""Memory for the results of steps of which one runs at a time.

A block goes back when the last tensor over it is gone, and serves a later operation of the same step. A recorded step
does the same whenever it runs again: nothing that a later operation of it still reads is overwritten. The next step,
recorded or not, has all blocks to itself again, so what a step leaves has to be read before.
"""

import math
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from strata.core.mapping import mapped

Block = npt.NDArray[np.uint8]

SMALLEST = 4096
"""Bytes of the smallest block; sizes are powers of two, so that blocks are found again."""
OWN_PAGES = 1 << 16
"""From this size on a block is a mapping of its own."""
TYPES: dict[torch.dtype, type[np.generic]] = {torch.float32: np.float32, torch.int32: np.int32, torch.int64: np.int64}
"""Those that results have."""


class Blocks:
    """All blocks of those steps, by size."""

    def __init__(self) -> None:
        self.by_size: dict[int, list[Block]] = {}
        self.nbytes = 0
        """Bytes of all blocks."""

    def add(self, size: int) -> Block:
        """A new block."""
        block = np.frombuffer(mapped(size), np.uint8) if size >= OWN_PAGES else np.empty(size, np.uint8)
        self.by_size.setdefault(size, []).append(block)
        self.nbytes += size
        return block


class Buffers:
    """Tensors on the blocks, for one step."""

    def __init__(self, blocks: Blocks, least: int = 0) -> None:
        """All blocks are free: what the step before left is not read any more.

        Results of less than `least` bytes come from the heap; a recorded step needs all of its results here.
        """
        self.blocks = blocks
        self.least = least
        self.free = {size: list(found) for size, found in blocks.by_size.items()}
        self.lent: dict[int, weakref.ref[npt.NDArray[np.generic]]] = {}

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised contiguous tensor."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < self.least:
            return torch.empty(shape, dtype=dtype)
        size, free = 1 << max(SMALLEST - 1, nbytes - 1).bit_length(), self.free
        # Also a block up to four times as large, else steps of every length would have blocks of their own.
        waiting = free.get(size) or free.get(2 * size) or free.get(4 * size) or free.setdefault(size, [])
        block = waiting.pop() if waiting else self.blocks.add(size)
        view: npt.NDArray[np.generic] = np.ndarray(shape, TYPES[dtype], block)
        # The tensor's storage holds `view`, and so do all tensors that share it. A plain reference, for this runs
        # for every operation: weakref.finalize took three times as long as all else here.
        number, lent = id(view), self.lent

        def give_back(_: object) -> None:
            del lent[number]
            waiting.append(block)

        lent[number] = weakref.ref(view, give_back)
        return torch.from_numpy(view)
