"""A prefix cache on pages that hold tokens instead of keys: what a page or a state says can be read back."""

import zlib
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import numpy as np

from strata.core.log import Log
from strata.core.sharing import Sharing
from strata.state.archive import Archive
from strata.state.cache import PrefixCache
from strata.state.pages import PageTable
from strata.state.prefix import PrefixTree
from strata.state.stops import Spacing
from strata.state.tiers import Disk, Tiers
from strata.state.writer import Writer

PAGE = 4
PAIRED = 1000
"""Entries are tokens; with a drafting head, this many times the token after it (and one) is added."""


class TokenPages:
    """Implements `tiers.Contents`: pages of tokens; a state is a checksum of the sequence and some filling."""

    def __init__(self, slots: int, pages: int, page: int = PAGE, state_bytes: int = 32) -> None:
        self.pages = np.full((pages, page), -1, np.int64)
        self.page_bytes = self.pages[0].nbytes
        self.state_bytes = state_bytes
        self.sequences: list[list[int]] = [[] for _ in range(slots)]

    def gather(self, pages: Sequence[int]) -> dict[str, np.ndarray]:
        return {"tokens": self.pages[list(pages)].reshape(-1).view(np.uint8).copy()}

    def scatter(self, pages: Sequence[int], blob: dict[str, np.ndarray]) -> None:
        self.pages[list(pages)] = blob["tokens"].view(np.int64).reshape(len(pages), -1)

    def state_of(self, slot: int) -> dict[str, np.ndarray]:
        return self.state(self.sequences[slot])

    def state(self, tokens: Sequence[int]) -> dict[str, np.ndarray]:
        if not self.state_bytes:
            return {}
        filled = np.zeros(self.state_bytes, np.uint8)
        filled[:4] = np.frombuffer(np.uint32(zlib.crc32(bytes(tokens))).tobytes(), np.uint8)
        return {"checksum": filled}


class Kept:
    """Slots that append tokens, on a cache; what they read back is compared with what they wrote."""

    def __init__(
        self,
        slots: int = 3,
        context: int = 48,
        pages: int = 24,
        ram: int = 10_000,
        folder: Path | None = None,
        disk: int = 10**6,
        state_bytes: int = 32,
        spacing: Spacing | None = None,
        ahead: int = 100,
        rewrites: int = 0,
    ) -> None:
        self.contents = TokenPages(slots, pages, PAGE, state_bytes)
        self.table = PageTable(slots, -(-context // PAGE), pages, PAGE, rewrites)
        self.said = StringIO()
        tree = PrefixTree(PAGE, bool(state_bytes), b"root", rewrites)
        archive = None
        if folder is not None:
            state = {"checksum": state_bytes} if state_bytes else {}
            made = Archive(folder, b"root", {"tokens": self.contents.page_bytes}, state, PAGE, rewrites)
            archive = Disk(made, Writer(made, self.contents.gather), disk)
        self.tiers = Tiers(tree, self.table, self.contents, ram, archive, Log(stream=self.said))
        self.cache = PrefixCache(self.tiers, spacing or Spacing(PAGE, 2 * PAGE), ahead)
        self.context = context

    def seat(self, slot: int, tokens: Sequence[int], most: int | None = None, marks: Sequence[int] = ()) -> int:
        held, state = self.cache.seat(slot, tokens, most or len(tokens), Sharing(tuple(marks)))
        self.contents.sequences[slot] = list(tokens[: held.tokens])
        self.held = held
        self.verify(slot)
        expected = self.contents.state(tokens[: held.tokens]) if held.tokens else {}
        assert {k: v.tobytes() for k, v in state.items()} == {k: v.tobytes() for k, v in expected.items()}
        return held.tokens

    def append(self, slot: int, tokens: Sequence[int], unkept: int = 0) -> None:
        """A window of `tokens` and `unkept` more that are taken back."""
        sequence = self.contents.sequences[slot]
        stop = len(sequence) + len(tokens) + unkept
        self.tiers.reclaim(self.table.wanted(slot, len(sequence), stop))
        for taken in self.table.grow(slot, len(sequence), stop):
            page = -1 if taken.copy_of is None else self.contents.pages[taken.copy_of]
            self.contents.pages[taken.page] = page
        for position, token in enumerate([*tokens, *[99] * unkept], len(sequence)):
            page = self.table.held[slot][position // PAGE]
            assert self.table.holders[page] == 1, "written into a shared page"
            self.contents.pages[page, position % PAGE] = token
        first = max(0, len(sequence) - self.table.rewrites)
        sequence += tokens
        if self.table.rewrites:
            for position in range(first, len(sequence) - 1):
                self.pair(slot, position, sequence[position + 1])
        self.table.shrink(slot, len(sequence))
        self.cache.committed(slot, np.array(sequence))

    def pair(self, slot: int, position: int, token: int) -> None:
        """What a drafting head leaves: an entry that depends on the token after it too."""
        page = self.table.held[slot][position // PAGE]
        assert self.table.holders[page] == 1, "a shared entry is written again"
        entry = int(self.contents.pages[page, position % PAGE])
        self.contents.pages[page, position % PAGE] = entry % PAIRED + PAIRED * (token + 1)

    def read(self, slot: int, tokens: Sequence[int], marks: Sequence[int] = (), most: int | None = None) -> int:
        """Seat and read to the end, stopping where asked -> tokens that were not read."""
        held = self.seat(slot, tokens, most, marks)
        for stop in (*self.held.stops, len(tokens)):
            self.append(slot, tokens[len(self.contents.sequences[slot]) : stop])
        return held

    def release(self, slot: int) -> None:
        self.cache.release(slot, np.array(self.contents.sequences[slot], np.int64))
        self.clear(slot)

    def fail(self, slot: int) -> None:
        self.cache.fail(slot)
        self.clear(slot)

    def clear(self, slot: int) -> None:
        self.table.empty(slot)
        self.contents.sequences[slot] = []

    def verify(self, slot: int) -> None:
        """Every position of the slot's sequence reads what was written."""
        sequence, held = self.contents.sequences[slot], self.table.held[slot]
        found = [int(self.contents.pages[held[p // PAGE], p % PAGE]) for p in range(len(sequence))]
        assert [entry % PAIRED for entry in found] == sequence
        if self.table.rewrites:
            assert [entry // PAIRED - 1 for entry in found[:-1]] == sequence[1:]

    def check(self) -> None:
        self.cache.check()
        for slot in range(len(self.contents.sequences)):
            self.verify(slot)
