"""Experts in VRAM: the arena's memory, what is copied into it, and the table that steps read."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from strata.experts.adaptive import Counts, Swap
from strata.experts.frames import Frames, Owner
from strata.experts.residency import ResidencyTable
from strata.kernels.transfers import Transfer, Transfers
from strata.store.experts import Progress
from strata.store.pinned import PinnedStore, StagingRing


@dataclass(frozen=True, slots=True)
class Vram:
    """A device's memory as the arena needs it."""

    allocate: Callable[[int], torch.Tensor]
    """Bytes -> uint8 memory; RuntimeError when there is none."""
    free_bytes: Callable[[], int]
    """What the system says is free; torch's own unused memory counts as free."""
    release: Callable[[], None]
    """Give memory of dropped blocks back to the system."""
    granule: int = 1
    """Bytes to whole multiples of which `allocate` rounds up."""


@dataclass(slots=True)
class Landing:
    """A copy into a frame that steps must not read yet."""

    owner: Owner
    transfer: Transfer


class ExpertCache:
    """The experts that have a frame, and those on their way to one."""

    def __init__(
        self, pinned: PinnedStore, table: ResidencyTable, vram: Vram, copies: Transfers, frames: Frames
    ) -> None:
        self.pinned = pinned
        self.table = table
        self.vram = vram
        self.copies = copies
        self.frames = frames
        self.ring = StagingRing(pinned)
        self.blocks: dict[int, torch.Tensor] = {}
        self.landing: list[Landing] = []
        self.moved_bytes = 0
        """Copied into frames so far."""
        layers = table.frames.shape[0]
        self.sizes = np.array([pinned.layouts[i].nbytes if i in pinned.layouts else 0 for i in range(layers)])

    @property
    def busy(self) -> set[Owner]:
        """Experts on their way."""
        return {landing.owner for landing in self.landing}

    def grow(self, budget_bytes: int, reserve_bytes: int) -> int:
        """Add blocks up to the budget, as long as `reserve_bytes` stay free -> bytes of the arena.

        The last block is a smaller one where the budget is no multiple of blocks, so that less than `LEAST_FRAMES`
        experts' bytes stay unused.

        The free figure is read again behind every block: other processes allocate too, and a card that is filled to
        its last MiB gets slow instead of failing.
        """
        largest, granule = int(self.sizes.max()), self.vram.granule
        while nbytes := self.frames.next_block(budget_bytes, largest) // granule * granule:
            if self.vram.free_bytes() < reserve_bytes + nbytes:
                break
            try:
                memory = self.vram.allocate(nbytes)
            except RuntimeError:
                break
            if self.vram.free_bytes() < reserve_bytes:
                del memory
                self.vram.release()
                break
            self.blocks[self.frames.add_block(nbytes)] = memory
        return self.frames.nbytes

    def shrink(self, budget_bytes: int, counts: Counts) -> int:
        """Give blocks back until the arena has at most `budget_bytes` -> bytes of the arena.

        The block whose experts were used least goes first. No step may be running.
        """
        self.land(wait=True)
        while self.frames.nbytes > budget_bytes:
            worth = dict.fromkeys(self.frames.blocks, 0.0)
            for owner, frame in self.frames.held.items():
                worth[frame.block] += counts[owner] * frame.nbytes
            coldest = min(worth, key=lambda block: (worth[block], -block))
            for owner in self.frames.owners(coldest):
                self.frames.give(owner)
                self.table.drop_frame(owner)
            self.frames.drop_block(coldest)
            del self.blocks[coldest]
        self.table.publish()
        self.vram.release()
        return self.frames.nbytes

    def fill(self, order: Iterable[Owner], progress: Progress = lambda done, total: None) -> int:
        """Give frames to experts in `order` until the first that finds no space -> how many got one.

        `progress` hears of the bytes that were sent on their way, of the arena's.
        """
        count, sent = 0, 0
        for owner in order:
            if owner in self.frames.held:
                continue
            if not self._bring(owner):
                break
            count += 1
            sent += int(self.sizes[owner[0]])
            progress(sent, self.frames.nbytes)
        self.land(wait=True)
        return count

    def swap(self, swaps: Sequence[Swap]) -> int:
        """Begin the swaps -> how many newcomers are on their way; `land` makes them count.

        Leavers stop counting first, so no step that is launched from now on reads a frame that is being written.
        """
        begun: list[Owner] = []
        for swap in swaps:
            if swap.leaver is not None:
                self.frames.give(swap.leaver)
                self.table.drop_frame(swap.leaver)
            if self.frames.take(swap.newcomer, int(self.sizes[swap.newcomer[0]])) is not None:
                begun.append(swap.newcomer)
        self.table.publish()
        for owner in begun:
            self._copy(owner)
        return len(begun)

    def land(self, wait: bool = False) -> int:
        """Let the copies that have ended count (with `wait`: all) -> how many newly do."""
        rest, count = [], 0
        for landing in self.landing:
            if wait:
                landing.transfer.wait()
            if not landing.transfer.landed():
                rest.append(landing)
                continue
            layer, expert = landing.owner
            weights = self.pinned.weights(layer, expert)
            address = self._place(landing.owner).data_ptr()
            self.table.set_frame(landing.owner, self.pinned.layouts[layer].addresses(weights, address))
            count += 1
        self.landing = rest
        self.table.publish()
        return count

    def _bring(self, owner: Owner) -> bool:
        if self.frames.take(owner, int(self.sizes[owner[0]])) is None:
            return False
        self._copy(owner)
        return True

    def _copy(self, owner: Owner) -> None:
        source, place = self.ring.source(*owner)
        transfer = self.copies(self._place(owner)[: source.nbytes], source)
        self.ring.holds(place, transfer.wait)
        self.landing.append(Landing(owner, transfer))
        self.moved_bytes += source.nbytes

    def _place(self, owner: Owner) -> torch.Tensor:
        frame = self.frames.held[owner]
        return self.blocks[frame.block][frame.offset : frame.end]
