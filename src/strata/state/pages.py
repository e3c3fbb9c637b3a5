"""Which page of the caches holds which part of which slot. Pure bookkeeping on ids."""

from collections.abc import Sequence

from strata.core.errors import CapacityError


class PageTable:
    """Pages of `page` tokens, handed to slots as they grow and taken back when they shrink.

    Invariant: every page is free or belongs to exactly one (slot, place); `check` proves it.
    """

    def __init__(self, slots: int, pages_per_slot: int, pages: int, page: int) -> None:
        self.page = page
        self.pages = pages
        self.pages_per_slot = pages_per_slot
        self.held: list[list[int]] = [[] for _ in range(slots)]
        self.free = list(range(pages - 1, -1, -1))

    def grow(self, slot: int, tokens: int) -> Sequence[int]:
        """Make room for `tokens` tokens in `slot`; returns the newly taken pages in place order.

        CapacityError, with nothing taken, when they do not fit the slot or the pool.
        """
        held = self.held[slot]
        wanted = -(-tokens // self.page)
        if wanted > self.pages_per_slot:
            raise CapacityError(f"slot {slot} holds {self.pages_per_slot * self.page} tokens, {tokens} were asked")
        missing = wanted - len(held)
        if missing > len(self.free):
            raise CapacityError(f"slot {slot} needs {missing} more pages, {len(self.free)} of {self.pages} are free")
        taken = [self.free.pop() for _ in range(missing)]
        held.extend(taken)
        return taken

    def shrink(self, slot: int, tokens: int) -> None:
        """Give back the pages beyond those that `tokens` tokens need."""
        held = self.held[slot]
        wanted = -(-tokens // self.page)
        while len(held) > wanted:
            self.free.append(held.pop())

    def check(self) -> None:
        """Raise AssertionError when a page is lost or used twice."""
        owned = [p for held in self.held for p in held] + self.free
        assert sorted(owned) == list(range(self.pages)), "a page is lost or used twice"
