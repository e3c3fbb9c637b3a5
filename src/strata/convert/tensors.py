"""A checkpoint's tensors under GGUF's names and conventions, made piece by piece as float32."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.quant.format import QuantFormat

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
AnyArray = npt.NDArray[Any]

Pieces = Iterator[tuple[int, Floats]]
"""(expert, or 0 for a matrix; some of its rows, float32 [rows, cols]), in the order of the file."""

PIECE_VALUES = 1 << 22
"""About how many values are decoded at once."""


@dataclass(frozen=True, slots=True)
class Native:
    """A tensor's bytes where the source already has it in a GGUF format: copied, never decoded and encoded again."""

    format: QuantFormat
    pieces: Callable[[], Iterator[Bytes]]
    """uint8 [rows, row_bytes], in order."""
    scales: Floats | None = None
    """NVFP4's second scale, one per matrix: goes into a tensor of its own (`NAME.scale`)."""


@dataclass(frozen=True, slots=True)
class Item:
    """One tensor to be written."""

    name: str
    """GGUF's, with its suffix."""
    shape: tuple[int, ...]
    """Torch order."""
    pieces: Callable[[], Pieces]
    stored: str
    """Format in the source, e.g. "BF16"."""
    native: Native | None = None
    drafting: bool = False
    """Whether it belongs to a layer that only proposes tokens (MTP)."""
    reorder: Callable[[AnyArray], AnyArray] | None = None
    """From the source's order of columns to the file's, for what was measured on the source [..., cols]."""

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

    @property
    def matrices(self) -> int:
        """Experts of a stack; 1 for anything else."""
        return self.shape[0] if len(self.shape) == 3 else 1


def spans(rows: int, columns: int) -> Iterator[slice]:
    """`rows` in runs of about PIECE_VALUES values."""
    step = max(1, PIECE_VALUES // columns)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
