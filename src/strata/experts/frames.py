"""Frames for experts in VRAM: which bytes of the arena belong to which expert. Pure bookkeeping.

The arena is a number of blocks, so that part of it can be given back to the system: of one size, and smaller ones that
fill a budget up. A frame has the size of its expert (layers differ) and lies within one block. No layer has a quota:
who is used most gets the space.
"""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass

ALIGNMENT = 256
"""Bytes; frames start at multiples of it, so that vector loads of a plane are aligned."""
LEAST_FRAMES = 8
"""Of the largest expert, in a block: less would waste what is left over at its end."""

Owner = tuple[int, int]
"""(layer, expert)"""


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to whole alignments."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True, order=True)
class Frame:
    """A run of bytes of one block."""

    block: int
    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        """Offset of the first byte after the frame."""
        return self.offset + self.nbytes


class Frames:
    """Frames by owner, and what is free between them."""

    def __init__(self, block_bytes: int) -> None:
        if block_bytes < ALIGNMENT or block_bytes % ALIGNMENT:
            raise ValueError(f"blocks need a multiple of {ALIGNMENT} bytes, found {block_bytes}")
        self.block_bytes = block_bytes
        self.blocks: dict[int, int] = {}
        """Bytes of the blocks that are there, by their numbers."""
        self.held: dict[Owner, Frame] = {}
        self.free: dict[int, list[Frame]] = {}
        """Free runs of every block by offset, never two side by side."""
        self.used_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(self.blocks.values())

    def next_block(self, budget_bytes: int, largest: int) -> int:
        """Bytes of the block that comes next within a budget, 0 when there is none: a whole one, or what is left if
        that holds `LEAST_FRAMES` of the `largest` expert (one, where there is no block yet).
        """
        left = (budget_bytes - self.nbytes) // ALIGNMENT * ALIGNMENT
        least = LEAST_FRAMES if self.blocks else 1
        return self.block_bytes if left >= self.block_bytes else left if left >= least * aligned(largest) else 0

    def add_block(self, nbytes: int | None = None) -> int:
        """Another block, free, of `nbytes` (a whole one); its number is the lowest that is not in use."""
        number = next(i for i in range(len(self.blocks) + 1) if i not in self.blocks)
        self.blocks[number] = self.block_bytes if nbytes is None else nbytes
        self.free[number] = [Frame(number, 0, self.blocks[number])]
        return number

    def drop_block(self, block: int) -> None:
        """The block goes; ValueError while an expert lies in it."""
        if self.owners(block):
            raise ValueError(f"block {block} still holds {len(self.owners(block))} experts")
        del self.blocks[block], self.free[block]

    def owners(self, block: int) -> list[Owner]:
        """Whose frames lie in `block`."""
        return [owner for owner, frame in self.held.items() if frame.block == block]

    def take(self, owner: Owner, nbytes: int) -> Frame | None:
        """A frame of at least `nbytes` for `owner`, from the smallest free run that holds it; None when none does."""
        if owner in self.held:
            raise ValueError(f"layer {owner[0]}, expert {owner[1]} has a frame already")
        if nbytes < 1:
            raise ValueError(f"a frame of {nbytes} bytes")
        size = aligned(nbytes)
        run = min((r for r in self._runs() if r.nbytes >= size), key=lambda r: (r.nbytes, r), default=None)
        if run is None:
            return None
        frame = Frame(run.block, run.offset, size)
        runs = self.free[run.block]
        at = runs.index(run)
        runs[at : at + 1] = [Frame(run.block, frame.end, run.nbytes - size)] if run.nbytes > size else []
        self.held[owner] = frame
        self.used_bytes += size
        return frame

    def give(self, owner: Owner) -> Frame:
        """The frame of `owner` is free again -> where it was; KeyError when there is none."""
        frame = self.held.pop(owner)
        self.used_bytes -= frame.nbytes
        before, after = self._neighbours(frame)
        runs = self.free[frame.block]
        for run in (before, after):
            if run is not None:
                runs.remove(run)
        first = before.offset if before is not None else frame.offset
        end = after.end if after is not None else frame.end
        insort(runs, Frame(frame.block, first, end - first))
        return frame

    def fits_in_place_of(self, owner: Owner, nbytes: int) -> bool:
        """Whether `nbytes` would fit where `owner` lies, with what is free beside it."""
        frame = self.held[owner]
        before, after = self._neighbours(frame)
        room = frame.nbytes + sum(run.nbytes for run in (before, after) if run is not None)
        return aligned(nbytes) <= room

    def _runs(self) -> Iterator[Frame]:
        for runs in self.free.values():
            yield from runs

    def _neighbours(self, frame: Frame) -> tuple[Frame | None, Frame | None]:
        """The free runs that touch `frame`."""
        runs = self.free[frame.block]
        before = next((run for run in runs if run.end == frame.offset), None)
        return before, next((run for run in runs if run.offset == frame.end), None)
