"""A format as data."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class QuantFormat:
    """How a row of numbers lies in bytes.

    A row of `n` values is `n / block` blocks of `block_bytes` bytes each (block 1 for plain floats).
    `sub` is the number of values that share one scale in the canonical product (docs/numerics.md), 0 for plain
    floats, which use the float twin of the rule.
    """

    name: str
    """GGML's name in capitals, e.g. "Q4_K"; ours for safetensors forms, e.g. "FP8_BLOCK"."""
    type_id: int
    """GGML type id; negative when GGUF has no such type."""
    block: int
    block_bytes: int
    sub: int
    kind: Literal["float", "data", "codes"] = "codes"
    """float: weights used as they are; data: numbers that are no weights; codes: integers times scales."""
    minima: bool = False
    """Whether every sub-block also has a minimum: value = scale * code - min."""
    scale_block: tuple[int, int] | None = None
    """(rows, values) that one entry of `planes[1]` covers, for formats with their scales apart."""

    def row_bytes(self, values: int) -> int:
        """Bytes of a row of `values` values; ValueError when they do not fill whole blocks."""
        if values % self.block:
            raise ValueError(f"{values} values are no multiple of {self.name}'s block of {self.block}")
        return values // self.block * self.block_bytes

    def row_values(self, row_bytes: int) -> int:
        """Values in a row of `row_bytes` bytes; ValueError when those are no whole blocks."""
        if row_bytes % self.block_bytes:
            raise ValueError(f"{row_bytes} bytes are no multiple of {self.name}'s block of {self.block_bytes} bytes")
        return row_bytes // self.block_bytes * self.block
