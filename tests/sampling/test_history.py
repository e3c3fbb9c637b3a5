import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.sampling.history import TokenCounts

TOKENS = st.lists(st.integers(0, 5), max_size=12)


def view(history: TokenCounts) -> tuple[list[int], dict[int, int], int]:
    ids, counts = history.answered()
    return sorted(history.seen().tolist()), dict(zip(ids.tolist(), counts.tolist(), strict=True)), len(history)


@given(TOKENS, TOKENS, st.data())
def test_appending_and_rolling_back_equals_a_recount(prompt: list[int], answer: list[int], data: st.DataObject) -> None:
    history = TokenCounts(prompt)
    for token in answer:
        history.append(token)
    count = data.draw(st.integers(0, len(answer)))
    history.rollback(count)
    left = answer[: len(answer) - count]
    assert view(history) == (sorted({*prompt, *left}), {t: left.count(t) for t in left}, len(left))


def test_no_more_than_the_answer_can_be_rolled_back() -> None:
    history = TokenCounts([1, 2])
    history.append(3)
    with pytest.raises(ValueError, match="cannot roll back 2 of 1"):
        history.rollback(2)
    assert view(history) == ([1, 2, 3], {3: 1}, 1)
