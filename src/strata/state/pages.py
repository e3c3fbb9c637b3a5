"""Which page of the caches holds which part of which slot, and who else holds it. Pure bookkeeping on ids."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strata.core.errors import CapacityError


@dataclass(frozen=True, slots=True)
class Taken:
    """A page that a slot got for its place `place`."""

    place: int
    page: int
    copy_of: int | None = None
    """The shared page that lay there before: its contents have to be copied first."""


PAGE = 64
"""Tokens of a page."""


class PageTable:
    """Pages of `page` tokens, each free or held: by slots, and by whoever retained it (kept prefixes).

    A slot writes only into pages that nobody else holds: a shared one is replaced before (copy on write). `claim`
    promises pages to a slot, and `room` is what is neither held nor promised. Invariant: a page is free exactly when
    nobody holds it; `check` proves it.

    A slot that goes on from a position writes the last `rewrites` ones before it again.
    """

    def __init__(self, slots: int, pages_per_slot: int, pages: int, page: int, rewrites: int = 0) -> None:
        self.page = page
        self.rewrites = rewrites
        self.pages = pages
        self.pages_per_slot = pages_per_slot
        self.held: list[list[int]] = [[] for _ in range(slots)]
        self.holders = [0] * pages
        self.claims = [0] * slots
        """Pages that were promised to a slot."""
        self.most = [0] * slots
        """Pages that a slot's sequence may come to need; it asks for more than its claim as it grows."""
        self.copies = [0] * slots
        """Of a claim: shared pages that the slot will replace."""
        self.free = list(range(pages - 1, -1, -1))
        self.used = 0
        """Pages that were ever taken, which are the first ones: what was given back is taken again before others."""

    @property
    def room(self) -> int:
        """Pages that are free and promised to nobody."""
        return len(self.free) - sum(self.owed(slot) for slot in range(len(self.held)))

    def owed(self, slot: int) -> int:
        """Pages that the slot was promised and has not taken yet."""
        return max(0, self.claims[slot] - len(self.held[slot])) + self.copies[slot]

    def count(self, tokens: int) -> int:
        """Pages that `tokens` tokens need."""
        return -(-tokens // self.page)

    def wanted(self, slot: int, start: int, tokens: int) -> int:
        """Pages that `grow` would take."""
        return len(self._shared(slot, start)) + max(0, self.count(tokens) - len(self.held[slot]))

    def ready(self, slot: int, start: int, tokens: int) -> bool:
        """Whether `grow` would take nothing, as with most steps."""
        held, first = self.held[slot], self.first_written(start)
        return self.count(tokens) <= len(held) and all(self.holders[page] == 1 for page in held[first:])

    def claim(self, slot: int, start: int, tokens: int, most: int = 0) -> None:
        """Promise the slot what it takes to write positions `start` to `tokens`, until it is emptied.

        Its sequence may grow to `most` tokens (or `tokens`, if that is more).
        """
        self.claims[slot], self.copies[slot] = self.count(tokens), len(self._shared(slot, start))
        self.most[slot] = max(self.count(most), self.claims[slot])

    def share(self, slot: int, start: int) -> None:
        """The slot's pages were retained, and it goes on from `start`: promise it the copies that this takes."""
        self.copies[slot] = len(self._shared(slot, start))

    def grow(self, slot: int, start: int, tokens: int) -> Sequence[Taken]:
        """Make positions `start` to `tokens` of `slot` its own to write; returns the newly taken pages.

        CapacityError, with nothing taken, when they do not fit the slot or the pool.
        """
        held, shared = self.held[slot], self._shared(slot, start)
        if self.count(tokens) > self.pages_per_slot:
            raise CapacityError(f"slot {slot} holds {self.pages_per_slot * self.page} tokens, {tokens} were asked")
        missing = self.wanted(slot, start, tokens)
        if missing > len(self.free):
            raise CapacityError(f"slot {slot} needs {missing} more pages, {len(self.free)} of {self.pages} are free")
        taken = []
        for place in shared:
            taken.append(Taken(place, self._take(), held[place]))
            self.drop([held[place]])
            held[place] = taken[-1].page
        while len(held) < self.count(tokens):
            taken.append(Taken(len(held), self._take()))
            held.append(taken[-1].page)
        self.copies[slot] = max(0, self.copies[slot] - len(shared))
        return taken

    def _shared(self, slot: int, start: int) -> list[int]:
        held, first = self.held[slot], self.first_written(start)
        return [place for place in range(first, len(held)) if self.holders[held[place]] > 1]

    def first_written(self, start: int) -> int:
        """The first place that a slot which goes on from `start` writes to."""
        return first_written(start, self.page, self.rewrites)

    def _take(self) -> int:
        page = self.free.pop()
        self.used = max(self.used, page + 1)
        self.holders[page] = 1
        return page

    def shrink(self, slot: int, tokens: int) -> None:
        """Give back the pages beyond those that `tokens` tokens need."""
        held, kept = self.held[slot], self.count(tokens)
        while len(held) > kept:
            self.drop([held.pop()])

    def empty(self, slot: int) -> None:
        """The slot holds nothing and was promised nothing."""
        self.shrink(slot, 0)
        self.claims[slot] = self.copies[slot] = self.most[slot] = 0

    def adopt(self, slot: int, pages: Sequence[int]) -> None:
        """Let an empty slot hold `pages`, which stay whose they are."""
        if self.held[slot]:
            raise ValueError(f"slot {slot} holds {len(self.held[slot])} pages already")
        self.retain(pages)
        self.held[slot] = list(pages)

    def take(self, count: int) -> list[int]:
        """Pages for the caller to hold; CapacityError, with nothing taken, when so many are not free."""
        if count > len(self.free):
            raise CapacityError(f"{count} pages were asked, {len(self.free)} of {self.pages} are free")
        return [self._take() for _ in range(count)]

    def retain(self, pages: Iterable[int]) -> None:
        """Hold pages that somebody holds already."""
        for page in pages:
            if not self.holders[page]:
                raise ValueError(f"page {page} is free")
            self.holders[page] += 1

    def drop(self, pages: Iterable[int]) -> None:
        """Hold them no longer; who was the last frees them."""
        for page in pages:
            if not self.holders[page]:
                raise ValueError(f"page {page} is free already")
            self.holders[page] -= 1
            if not self.holders[page]:
                self.free.append(page)

    def check(self, kept: Iterable[int] = ()) -> None:
        """Raise AssertionError when a page is lost or its holders were miscounted; `kept` are retained pages."""
        counted = Counter(page for held in self.held for page in held) + Counter(kept)
        assert self.holders == [counted[page] for page in range(self.pages)], "holders of a page were miscounted"
        assert sorted(self.free) == [p for p in range(self.pages) if not counted[p]], "a page is lost or used twice"
        assert not any(self.holders[self.used :]), "a page is held that was never taken"


def first_written(start: int, page: int, rewrites: int) -> int:
    """The first page, of `page` positions each, that is written when `rewrites` positions before `start` are too."""
    return max(0, start - rewrites) // page
