"""Experts in pinned host memory, which a GPU reads in place and copies from at full speed.

How much a system lets a process pin is not told by any interface, so it is tried: block by block until it refuses or
the quota is reached. The hottest experts come first. The others stay where they are, are computed by the CPU, and reach
VRAM through a small ring of pinned blobs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch

from strata.kernels.views import ExpertBank, Weight
from strata.store.blobs import BlobLayout, weights_of
from strata.store.experts import ExpertStore, Progress

BLOCK_BYTES = 256 << 20
"""Pinned at once; a power of two, to which allocators round up."""

Allocate = Callable[[int], torch.Tensor]
"""Bytes -> uint8 memory; RuntimeError when there is none."""
Owner = tuple[int, int]
"""(layer, expert)"""


def pinned_memory(nbytes: int) -> torch.Tensor:
    """Host memory that the current CUDA or HIP device sees at the same address."""
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)


def plain_memory(nbytes: int) -> torch.Tensor:
    """The same for the emulator, which sees all of the host's memory."""
    return torch.empty(nbytes, dtype=torch.uint8)


class PinnedStore:
    """An `ExpertStore` whose hottest experts lie in pinned blobs; its banks show them there."""

    def __init__(self, store: ExpertStore, allocate: Allocate, block_bytes: int = BLOCK_BYTES) -> None:
        self.store = store
        self.allocate = allocate
        self.layouts = {layer: BlobLayout.of(bank) for layer, bank in store.banks.items()}
        largest = max((layout.nbytes for layout in self.layouts.values()), default=0)
        self.block_bytes = max(block_bytes, largest)
        self.blobs: dict[Owner, torch.Tensor] = {}
        self.blocks: list[torch.Tensor] = []
        self.used = 0
        """Bytes taken of the last block."""
        self.refused = ""
        """Why the last block was not to be had; empty when the quota was reached."""

    @property
    def nbytes(self) -> int:
        """Pinned bytes."""
        return sum(block.nbytes for block in self.blocks)

    def weights(self, layer: int, expert: int) -> tuple[Weight, Weight, Weight]:
        """Gate, up and down, wherever their bytes lie."""
        return weights_of(self.store.bank(layer), expert)

    def fill(self, order: Iterable[Owner], quota_bytes: int, progress: Progress) -> tuple[int, ...]:
        """Pin experts in `order` until the quota or the system ends it -> layers whose banks changed."""
        moved: dict[int, dict[int, list[Weight]]] = {}
        for layer, expert in order:
            if (layer, expert) in self.blobs:
                continue
            blob = self._blob(self.layouts[layer].nbytes, quota_bytes, progress)
            if blob is None:
                break
            weights = self.weights(layer, expert)
            self.layouts[layer].pack(weights, blob)
            self.blobs[layer, expert] = blob
            moved.setdefault(layer, {})[expert] = self.layouts[layer].views(weights, blob)
        for layer, experts in moved.items():
            self.store.banks[layer] = _with(self.store.bank(layer), experts)
        progress(self.nbytes, quota_bytes)
        return tuple(moved)

    def _blob(self, nbytes: int, quota_bytes: int, progress: Progress) -> torch.Tensor | None:
        """The next free bytes of the blocks; None when there are no more."""
        if not self.blocks or self.used + nbytes > self.blocks[-1].nbytes:
            if self.nbytes + self.block_bytes > quota_bytes:
                return None
            try:
                self.blocks.append(self.allocate(self.block_bytes))
            except RuntimeError as error:
                self.refused = str(error).splitlines()[0]
                return None
            self.used = 0
            progress(self.nbytes, quota_bytes)
        blob = self.blocks[-1][self.used : self.used + nbytes]
        self.used += nbytes
        return blob


def _with(bank: ExpertBank, experts: dict[int, list[Weight]]) -> ExpertBank:
    """The bank with some experts' weights replaced."""

    def part(old: Sequence[Weight], which: int) -> tuple[Weight, ...]:
        return tuple(experts[e][which] if e in experts else w for e, w in enumerate(old))

    return replace(bank, gate=part(bank.gate, 0), up=part(bank.up, 1), down=part(bank.down, 2))


class StagingRing:
    """A few pinned blobs through which experts that are not pinned reach VRAM."""

    def __init__(self, pinned: PinnedStore, places: int = 4) -> None:
        self.pinned = pinned
        size = max((layout.nbytes for layout in pinned.layouts.values()), default=1)
        self.blobs = [pinned.allocate(size) for _ in range(places)]
        self.busy: list[Callable[[], None] | None] = [None] * places
        """What waits for a place's copy to have ended."""
        self.next = 0

    def source(self, layer: int, expert: int) -> tuple[torch.Tensor, int]:
        """The expert's bytes in pinned memory, and the ring's place they are in (-1: none).

        A place is taken until what `holds` was given has returned.
        """
        layout = self.pinned.layouts[layer]
        blob = self.pinned.blobs.get((layer, expert))
        if blob is not None:
            return blob, -1
        place, self.next = self.next, (self.next + 1) % len(self.blobs)
        wait = self.busy[place]
        if wait is not None:
            wait()
            self.busy[place] = None
        staged = self.blobs[place][: layout.nbytes]
        layout.pack(self.pinned.weights(layer, expert), staged)
        return staged, place

    def holds(self, place: int, wait: Callable[[], None]) -> None:
        """The copy from `place` ends when `wait` returns."""
        if place >= 0:
            self.busy[place] = wait
