"""Where a tensor's bytes are."""

from dataclasses import dataclass
from pathlib import Path

from strata.quant.format import QuantFormat


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A named run of bytes in a file; nothing is read until the bytes are asked for."""

    name: str
    shape: tuple[int, ...]
    """Torch order: [out, in] for a matrix, innermost last (GGUF lists them reversed)."""
    format: QuantFormat
    file: Path
    offset: int
    """From the start of the file."""
    nbytes: int

    @property
    def count(self) -> int:
        """Number of values."""
        n = 1
        for d in self.shape:
            n *= d
        return n
