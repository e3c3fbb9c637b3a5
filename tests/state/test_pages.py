"""Pages against a plain model: a list of places per slot, and who holds each page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import CapacityError
from strata.state.pages import PageTable, Taken

SLOTS, PER_SLOT, PAGES, PAGE = 3, 4, 7, 8
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("grow", "shrink", "empty", "retain", "drop", "adopt", "claim", "share")),
        st.integers(0, SLOTS - 1),
        st.integers(0, PAGE * (PER_SLOT + 2)),
        st.integers(0, PAGE * (PER_SLOT + 2)),
    ),
    max_size=30,
)


@pytest.mark.parametrize("rewrites", [0, 1])
@given(steps=STEPS)
def test_every_page_is_free_or_held_and_nobody_writes_into_a_shared_one(rewrites, steps):
    table, kept = PageTable(SLOTS, PER_SLOT, PAGES, PAGE, rewrites), []
    for what, slot, one, other in steps:
        start, tokens = sorted((one, other))
        before = [list(held) for held in table.held]
        start = min(start, PAGE * len(before[slot]))
        first = max(0, start - rewrites) // PAGE
        shared = [p for p in before[slot][first:] if sum(held.count(p) for held in before) + kept.count(p) > 1]
        missing = max(0, -(-tokens // PAGE) - len(before[slot])) + len(shared)
        assert table.ready(slot, start, tokens) == (missing == 0)
        if what == "grow" and (-(-tokens // PAGE) > PER_SLOT or missing > len(table.free)):
            with pytest.raises(CapacityError):
                table.grow(slot, start, tokens)
            assert table.held == before
        elif what == "grow":
            taken = table.grow(slot, start, tokens)
            assert len(taken) == missing and [t.copy_of for t in taken if t.copy_of is not None] == shared
            assert all(table.held[slot][t.place] == t.page for t in taken)
            assert all(table.holders[p] == 1 for p in table.held[slot][first:])
        elif what == "shrink":
            table.shrink(slot, tokens)
            assert table.held[slot] == before[slot][: -(-tokens // PAGE)]
        elif what == "empty":
            table.empty(slot)
            assert not table.held[slot] and not table.owed(slot)
        elif what == "retain":
            table.retain(before[slot])
            kept += before[slot]
        elif what == "drop":
            table.drop(kept)
            kept = []
        elif what == "adopt" and not before[slot]:
            table.adopt(slot, kept[:PER_SLOT] if len(set(kept[:PER_SLOT])) == len(kept[:PER_SLOT]) else [])
        elif what in ("claim", "share"):
            table.claim(slot, start, tokens) if what == "claim" else table.share(slot, start)
            assert table.copies[slot] == len(shared)
            assert what == "share" or table.owed(slot) == missing
        table.check(kept)
        assert all(now == old for s, (now, old) in enumerate(zip(table.held, before, strict=True)) if s != slot)


def test_the_error_says_what_was_asked_and_what_there_is():
    table = PageTable(2, 4, 5, 8)
    with pytest.raises(CapacityError, match=r"slot 1 holds 32 tokens, 33 were asked"):
        table.grow(1, 0, 33)
    table.grow(0, 0, 32)
    with pytest.raises(CapacityError, match=r"slot 1 needs 2 more pages, 1 of 5 are free"):
        table.grow(1, 0, 9)
    with pytest.raises(CapacityError, match=r"2 pages were asked, 1 of 5 are free"):
        table.take(2)


def test_a_shared_page_is_replaced_before_it_is_written_and_others_stay():
    table = PageTable(2, 4, 8, 8)
    table.grow(0, 0, 20)
    first, second, third = table.held[0]
    table.adopt(1, table.held[0])
    assert table.wanted(1, 20, 21) == 1 and table.wanted(1, 24, 25) == 1
    assert table.grow(1, 20, 21) == [Taken(2, table.held[1][2], third)]
    assert table.held[0] == [first, second, third] and table.held[1][:2] == [first, second]
    assert table.grow(0, 20, 22) == []
    table.check()


def test_what_is_promised_is_not_room_for_others():
    table = PageTable(2, 4, 5, 8)
    table.claim(0, 0, 24)
    assert (table.room, table.owed(0)) == (2, 3)
    table.grow(0, 0, 9)
    assert (table.room, table.owed(0)) == (2, 1)
    table.shrink(0, 8)
    assert (table.room, table.owed(0)) == (2, 2)
    table.empty(0)
    assert table.room == 5


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t.free.pop(),
        lambda t: t.held[1].append(t.held[0][0]),
        lambda t: t.retain(t.held[0][:1]),
        lambda t: t.free.append(t.held[0][0]),
    ],
)
def test_check_sees_a_lost_and_a_doubled_page(spoil):
    table = PageTable(2, 4, 5, 8)
    table.grow(0, 0, 20)
    table.check()
    spoil(table)
    with pytest.raises(AssertionError):
        table.check()


@pytest.mark.parametrize("act", [lambda t: t.drop([4]), lambda t: t.retain([4]), lambda t: t.adopt(0, [])])
def test_what_nobody_holds_cannot_be_held_or_dropped(act):
    table = PageTable(2, 4, 5, 8)
    table.grow(0, 0, 8)
    with pytest.raises(ValueError, match=r"page 4 is free|holds 1 pages already"):
        act(table)
