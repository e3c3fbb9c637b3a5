"""The experts' bytes: views of the mapped file, or copies in a RAM arena."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from strata.core.errors import EngineError
from strata.kernels.os_memory import huge
from strata.kernels.views import ExpertBank, Weight

ALIGNMENT = 64
"""Bytes; a cache line, and more than any plane's values need."""

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)"""


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def bank_bytes(bank: ExpertBank) -> int:
    """Bytes of all experts of one layer."""
    return sum(p.nbytes for ws in (bank.gate, bank.up, bank.down) for w in ws for p in w.planes)


class ExpertStore:
    """Every layer's experts by layer number. Layers without experts are absent."""

    def __init__(self, banks: Mapping[int, ExpertBank]) -> None:
        self.banks = dict(banks)

    def bank(self, layer: int) -> ExpertBank:
        """The experts of `layer`; EngineError when it has none."""
        try:
            return self.banks[layer]
        except KeyError:
            raise EngineError(f"layer {layer} has no experts") from None

    def add(self, layer: int, bank: ExpertBank) -> None:
        """The experts of one layer more; EngineError when it has some already."""
        if layer in self.banks:
            raise EngineError(f"layer {layer} has experts already")
        self.banks[layer] = bank

    @property
    def nbytes(self) -> int:
        """Bytes of all experts of all layers."""
        return sum(bank_bytes(b) for b in self.banks.values())

    def to_arena(self, progress: Progress) -> None:
        """Copy every expert into memory that the file system cannot take back; needs `nbytes` of free RAM."""
        done, total = 0, self.nbytes
        for layer, bank in self.banks.items():
            self.banks[layer] = _moved(bank)
            done += bank_bytes(bank)
            progress(done, total)


def _moved(bank: ExpertBank) -> ExpertBank:
    """The bank with its bytes in one allocation, every plane at a multiple of `ALIGNMENT`."""
    planes = [p for ws in (bank.gate, bank.up, bank.down) for w in ws for p in w.planes]
    arena = huge(torch.empty(sum(_aligned(p.nbytes) for p in planes), dtype=torch.uint8))
    offset = 0

    def move(weight: Weight) -> Weight:
        nonlocal offset
        moved = []
        for plane in weight.planes:
            place = arena[offset : offset + plane.nbytes].view(plane.dtype).view(plane.shape)
            place.copy_(plane)
            offset += _aligned(plane.nbytes)
            moved.append(place)
        return replace(weight, planes=tuple(moved))

    gate = tuple(move(w) for w in bank.gate)
    up = tuple(move(w) for w in bank.up)
    return ExpertBank(gate, up, tuple(move(w) for w in bank.down))
