"""Experts of a drawn model in pinned host memory, for models that are larger than that memory.

The experts of all layers share some gigabytes there: far more than any cache holds, and what is in VRAM is apart. Their
bytes are drawn on the GPU, so that a pool takes seconds.
"""

from dataclasses import replace

import numpy as np
import torch

from strata.kernels.views import ExpertBank, Weight
from strata.store.blobs import BlobLayout
from strata.store.experts import ExpertStore
from strata.store.pinned import PinnedStore, pinned_memory, plain_memory

BLOCK_BYTES = 512 << 20
BLOCKS = 16

Triple = tuple[Weight, Weight, Weight]
Views = list[Weight]


def host_blocks(device: torch.device) -> list[torch.Tensor]:
    """Raw memory that the device reads in place; made once, it serves pools of one format after the other."""
    if device.type == "cpu":
        return [plain_memory(1 << 20) for _ in range(4)]
    return [pinned_memory(BLOCK_BYTES) for _ in range(BLOCKS)]


class ExpertPool:
    """Pinned blobs of one layout, and banks whose experts are views of them."""

    def __init__(self, blocks: list[torch.Tensor], template: Triple, rows: tuple[torch.Tensor, ...]) -> None:
        """`template`: gate, up and down of any expert; `rows[i]` on the GPU: rows that matrix i is drawn from."""
        self.emulated = rows[0].is_cpu
        template = tuple(replace(w, planes=(w.planes[0].cpu(),)) for w in template)  # type: ignore[assignment]
        self.layout = BlobLayout.of(ExpertBank(*((w,) for w in template)))
        self.blobs: list[torch.Tensor] = []
        each, nbytes = blocks[0].nbytes // self.layout.nbytes, self.layout.nbytes
        for block in blocks:
            filled = torch.zeros(each, nbytes, dtype=torch.uint8, device=rows[0].device)
            for offset, w, pool in zip(self.layout.offsets[0::2], template, rows, strict=True):
                at = torch.randint(len(pool), (each * w.rows,), device=pool.device)
                filled[:, offset : offset + w.planes[0].nbytes] = pool[at].view(each, -1)
            block[: each * nbytes].copy_(filled.view(-1))
            self.blobs += list(block[: each * nbytes].view(each, nbytes))
        self.views: list[Views] = [self.layout.views(template, blob) for blob in self.blobs]
        self.at: dict[tuple[int, int], int] = {}
        """The blob of every expert that was given out."""
        self.rng = np.random.default_rng(2)

    def bank(self, layer: int, experts: int) -> ExpertBank:
        """The experts of a layer, each somewhere else than its neighbours."""
        places = self.rng.permutation(len(self.views))[np.arange(experts) % len(self.views)]
        self.at.update({(layer, e): int(place) for e, place in enumerate(places)})
        return ExpertBank(*(tuple(self.views[int(place)][part] for place in places) for part in range(3)))

    def store(self, store: ExpertStore) -> PinnedStore:
        """The model's experts with all of them pinned already."""
        pinned = PinnedStore(store, plain_memory if self.emulated else pinned_memory)
        pinned.blobs.update({owner: self.blobs[place] for owner, place in self.at.items()})
        return pinned
