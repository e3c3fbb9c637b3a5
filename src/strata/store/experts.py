"""The experts' bytes: views of the mapped file, or copies in a RAM arena."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from strata.core.errors import EngineError
from strata.kernels.views import ExpertBank, Weight

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)"""


def bank_bytes(bank: ExpertBank) -> int:
    """Bytes of all experts of one layer."""
    return sum(p.numel() for ws in (bank.gate, bank.up, bank.down) for w in ws for p in w.planes)


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

    @property
    def nbytes(self) -> int:
        """Bytes of all experts of all layers."""
        return sum(bank_bytes(b) for b in self.banks.values())

    def to_arena(self, progress: Progress) -> None:
        """Copy every expert into memory that the file system cannot take back; needs `nbytes` of free RAM."""
        done, total = 0, self.nbytes
        for layer, bank in self.banks.items():
            arena = torch.empty(bank_bytes(bank), dtype=torch.uint8)
            self.banks[layer] = _moved(bank, arena)
            done += arena.numel()
            progress(done, total)


def _moved(bank: ExpertBank, arena: torch.Tensor) -> ExpertBank:
    offset = 0

    def move(weight: Weight) -> Weight:
        nonlocal offset
        planes = []
        for plane in weight.planes:
            place = arena[offset : offset + plane.numel()].view(plane.shape)
            place.copy_(plane)
            offset += plane.numel()
            planes.append(place)
        return replace(weight, planes=tuple(planes))

    gate = tuple(move(w) for w in bank.gate)
    up = tuple(move(w) for w in bank.up)
    return ExpertBank(gate, up, tuple(move(w) for w in bank.down))
