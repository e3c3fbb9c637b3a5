"""A format as data."""

from dataclasses import dataclass


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

    def row_bytes(self, values: int) -> int:
        """Bytes of a row of `values` values; ValueError when they do not fill whole blocks."""
        if values % self.block:
            raise ValueError(f"{values} values are no multiple of {self.name}'s block of {self.block}")
        return values // self.block * self.block_bytes
