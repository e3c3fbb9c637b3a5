"""An expert's bytes as one run: gate, up and down side by side, as they are copied to VRAM and read over PCIe."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from strata.kernels.views import ExpertBank, Weight

ALIGNMENT = 256
"""Bytes between the starts of planes; kernels load up to 16 bytes at once and may look that far beyond a plane."""
PLANES = 6
"""Of an expert: codes and scales of gate, up and down; a format without scales apart leaves theirs out."""


def weights_of(bank: ExpertBank, expert: int) -> tuple[Weight, Weight, Weight]:
    """Gate, up and down of one expert."""
    return bank.gate[expert], bank.up[expert], bank.down[expert]


def planes_of(weights: Sequence[Weight]) -> list[torch.Tensor | None]:
    """The `PLANES` planes in order, None where a matrix has no second one."""
    return [w.planes[i] if i < len(w.planes) else None for w in weights for i in range(2)]


@dataclass(frozen=True, slots=True)
class BlobLayout:
    """Where the planes of a layer's experts lie in a blob; the same for all of them, also when their formats differ."""

    offsets: tuple[int, ...]
    """Bytes from the blob's start, for each of `PLANES`."""
    nbytes: int
    """Of the largest expert, whole alignments."""

    @classmethod
    def of(cls, bank: ExpertBank) -> "BlobLayout":
        """The layout of one layer."""
        sizes = [0] * PLANES
        for expert in range(len(bank.gate)):
            for i, plane in enumerate(planes_of(weights_of(bank, expert))):
                sizes[i] = max(sizes[i], 0 if plane is None else plane.nbytes)
        offsets, at = [], 0
        for size in sizes:
            offsets.append(at)
            at += -(-size // ALIGNMENT) * ALIGNMENT
        return cls(tuple(offsets), at)

    def pack(self, weights: Sequence[Weight], blob: torch.Tensor) -> None:
        """Copy the planes to their places in `blob` (uint8 [nbytes])."""
        for offset, plane in zip(self.offsets, planes_of(weights), strict=True):
            if plane is not None:
                self._place(blob, offset, plane).copy_(plane)

    def views(self, weights: Sequence[Weight], blob: torch.Tensor) -> list[Weight]:
        """The weights with their planes in `blob`, which holds them."""
        placed = [
            None if plane is None else self._place(blob, offset, plane)
            for offset, plane in zip(self.offsets, planes_of(weights), strict=True)
        ]
        return [
            replace(w, planes=tuple(p for p in placed[2 * i : 2 * i + 2] if p is not None))
            for i, w in enumerate(weights)
        ]

    def addresses(self, weights: Sequence[Weight], base: int) -> list[int]:
        """Addresses of the planes of a blob at `base`; 0 where there is none."""
        return [
            0 if plane is None else base + offset
            for offset, plane in zip(self.offsets, planes_of(weights), strict=True)
        ]

    @staticmethod
    def _place(blob: torch.Tensor, offset: int, plane: torch.Tensor) -> torch.Tensor:
        return blob[offset : offset + plane.nbytes].view(plane.dtype).view(plane.shape)
