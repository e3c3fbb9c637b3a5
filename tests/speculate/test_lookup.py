"""Lookup drafts against a search through the whole text."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from strata.speculate.drafter import Ask
from strata.speculate.lookup import DOUBT, GRAM, LONGEST, PLACES, LookupDrafter, SuffixIndex

TEXTS = st.lists(st.integers(0, 2), max_size=60)


def searched(text, pending):
    """(place, agreement) by comparing every place; the latest of the longest among the last PLACES that agree."""
    now = [*text, pending]
    found = []
    for place in range(GRAM, len(text) + 1):
        count = 0
        while count < min(place, LONGEST) and text[place - 1 - count] == now[-1 - count]:
            count += 1
        if count >= GRAM:
            found.append((place, count))
    longest = max((count for _, count in found[-PLACES:]), default=0)
    return max(((p, c) for p, c in found[-PLACES:] if c == longest), default=(0, 0))


@given(text=TEXTS, pending=st.integers(0, 2))
def test_the_longest_agreement_is_found(text, pending):
    index = SuffixIndex()
    index.extend(text)
    assert index.find(pending) == searched(text, pending)


@given(text=TEXTS, cuts=st.lists(st.integers(0, 60)), pending=st.integers(0, 2), depth=st.integers(1, 9))
def test_an_index_that_grew_proposes_what_one_made_at_once_does(text, cuts, pending, depth):
    grown, whole = LookupDrafter(), LookupDrafter()
    for drafter in (grown, whole):
        drafter.begin(3, text)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for first, stop in itertools.pairwise(borders):
        grown.extend(3, text[first:stop])
    whole.extend(3, text)
    ask = {3: Ask(pending, depth, lambda _: True)}
    assert grown.propose(ask) == whole.propose(ask)


@given(text=TEXTS, pending=st.integers(0, 2), depth=st.integers(1, 20))
def test_what_followed_is_proposed_and_a_repetition_goes_on(text, pending, depth):
    drafter = LookupDrafter()
    drafter.begin(0, text)
    drafter.extend(0, text)
    place, agree = searched(text, pending)
    found = drafter.propose({0: Ask(pending, depth, lambda _: True)})
    if not agree:
        assert found == {}
        return
    # What has been said, then the proposal itself: each token is the one as far back as the place was.
    said = [*text, pending]
    for token in found[0].tokens:
        assert token == said[place + len(said) - len(text) - 1]
        said.append(token)
    assert len(found[0].tokens) == depth
    assert found[0].confidence == tuple((agree + i) / (agree + i + DOUBT) for i in range(depth))


def test_a_short_agreement_is_no_proposal_and_a_sequence_that_is_over_is_forgotten():
    drafter = LookupDrafter()
    drafter.begin(0, [])
    drafter.extend(0, [1, 2, 3, 9, 2])
    ask = {0: Ask(3, 4, lambda _: True)}
    assert drafter.propose(ask) == {}
    drafter.extend(0, [3, 7, 1, 2])
    assert drafter.propose(ask)[0].tokens == (9, 2, 3, 7)
    assert drafter.spent() is None
    drafter.begin(0, [])
    assert drafter.propose(ask) == {}
