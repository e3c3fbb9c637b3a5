"""Pages against a plain model: a set of free pages and a list per slot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import CapacityError
from strata.state.pages import PageTable

SLOTS, PER_SLOT, PAGES, PAGE = 3, 4, 7, 8
STEPS = st.lists(
    st.tuples(st.sampled_from(("grow", "shrink")), st.integers(0, SLOTS - 1), st.integers(0, PAGE * (PER_SLOT + 2)))
)


@given(STEPS)
def test_every_page_is_free_or_in_one_place(steps):
    table = PageTable(SLOTS, PER_SLOT, PAGES, PAGE)
    pages_of = [0] * SLOTS
    for what, slot, tokens in steps:
        wanted, before = -(-tokens // PAGE), [list(held) for held in table.held]
        if what == "shrink":
            table.shrink(slot, tokens)
            pages_of[slot] = min(pages_of[slot], wanted)
        elif wanted > PER_SLOT or max(0, wanted - pages_of[slot]) > PAGES - sum(pages_of):
            with pytest.raises(CapacityError):
                table.grow(slot, tokens)
            assert table.held == before
        else:
            taken = table.grow(slot, tokens)
            pages_of[slot] = max(pages_of[slot], wanted)
            assert table.held[slot] == [*before[slot], *taken]
        table.check()
        assert [len(held) for held in table.held] == pages_of
        # What a slot keeps stays where it was.
        assert all(now[: len(old)] == old[: len(now)] for now, old in zip(table.held, before, strict=True))


def test_the_error_says_what_was_asked_and_what_there_is():
    table = PageTable(2, 4, 5, 8)
    with pytest.raises(CapacityError, match=r"slot 1 holds 32 tokens, 33 were asked"):
        table.grow(1, 33)
    table.grow(0, 32)
    with pytest.raises(CapacityError, match=r"slot 1 needs 2 more pages, 1 of 5 are free"):
        table.grow(1, 9)


@pytest.mark.parametrize("spoil", [lambda t: t.free.pop(), lambda t: t.held[1].append(t.held[0][0])])
def test_check_sees_a_lost_and_a_doubled_page(spoil):
    table = PageTable(2, 4, 5, 8)
    table.grow(0, 20)
    table.check()
    spoil(table)
    with pytest.raises(AssertionError):
        table.check()
