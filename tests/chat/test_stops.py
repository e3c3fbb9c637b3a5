"""Stop strings over borders: the result depends on the text, never on how it was cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.chat.stops import StopFinder


def run(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    finder = StopFinder(stops)
    passed = "".join(finder.push(piece) for piece in pieces)
    if finder.found is None:
        passed += finder.flush()
    return passed, finder.found


def by_letters(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The rule, spelled out: the first end of any stop; of several, the longest."""
    for end in range(len(text) + 1):
        hits = [stop for stop in stops if text[:end].endswith(stop)]
        if hits:
            longest = max(hits, key=len)
            return text[: end - len(longest)], longest
    return text, None


def test_a_stop_over_three_pieces_leaves_nothing_behind() -> None:
    pieces = ["The quick br", "own f", "ox jumps"]
    assert run(pieces, ["own fox"]) == ("The quick br", "own fox")
    assert run(pieces, ["own fox", "own cat"]) == ("The quick br", "own fox")
    assert run(pieces, ["own cow"]) == ("The quick brown fox jumps", None)


def test_nothing_is_held_longer_than_needed() -> None:
    finder = StopFinder(["END"])
    assert finder.push("abcE") == "abc"
    assert finder.push("x") == "Ex"
    assert finder.push("EN") == ""
    assert finder.push("D more") == ""
    assert finder.rest == " more"
    assert finder.push("after") == ""


@given(
    st.text(alphabet="ab😀\n", max_size=40),
    st.lists(st.text(alphabet="ab😀\n", min_size=1, max_size=5), max_size=4),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_equals_the_rule_for_every_cut(text: str, stops: list[str], cuts: list[int]) -> None:
    borders = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[a:b] for a, b in pairwise(borders)]
    assert run(pieces, stops) == by_letters(text, stops)


def test_an_empty_stop_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopFinder([""])
