"""Whose turn it is."""

from hypothesis import given
from hypothesis import strategies as st

from strata.engine.turns import Turn, in_turn

TURNS = st.lists(st.tuples(st.integers(0, 5000), st.booleans()), max_size=12)


def turns(*pairs: tuple[int, bool]) -> list[Turn[int]]:
    return [Turn(i, left, late, (i,)) for i, (left, late) in enumerate(pairs)]


def in_order(*lengths: int) -> list[int]:
    return in_turn(turns(*((left, False) for left in lengths)))


def test_a_prompt_under_half_as_long_goes_first() -> None:
    assert in_order(1000, 501, 499, 500) == [2, 0, 1, 3]
    assert in_order(4000, 1900, 10) == [1, 2, 0]


def test_who_is_late_goes_before_all() -> None:
    assert in_turn(turns((9000, True), (10, False), (8000, True))) == [0, 2, 1]


@given(TURNS)
def test_everyone_has_one_turn_and_only_short_ones_overtake(pairs: list[tuple[int, bool]]) -> None:
    order = in_turn(turns(*pairs))
    assert sorted(order) == list(range(len(pairs)))
    late = [who for who, (_, is_late) in enumerate(pairs) if is_late]
    assert order[: len(late)] == late
    for place, who in enumerate(order[len(late) :], len(late)):
        overtaken = [other for other in order[place + 1 :] if other < who]
        for other in overtaken:
            assert any(2 * pairs[who][0] < pairs[head][0] for head in range(other + 1) if not pairs[head][1])
