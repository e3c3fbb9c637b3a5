import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.speculate.accept import accepted


@pytest.mark.parametrize(
    ("drafts", "drawn", "count"),
    [((), (5,), 0), ((1, 2), (1, 2, 3), 2), ((1, 2), (1, 9, 2), 1), ((1, 2), (9, 2, 3), 0), ((1, 2), (1, 2), 2)],
)
def test_drafts_are_kept_while_equal(drafts: tuple[int, ...], drawn: tuple[int, ...], count: int) -> None:
    assert accepted(drafts, drawn) == count


def step(prefix: tuple[int, ...]) -> int:
    return (sum(prefix) * 7 + len(prefix)) % 5


@given(st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=8))
def test_any_drafts_give_the_tokens_of_one_by_one_decoding(proposals: list[list[int]]) -> None:
    text: tuple[int, ...] = (3,)
    for drafts in proposals:
        drawn = [step((*text, *drafts[:i])) for i in range(len(drafts) + 1)]
        text += tuple(drawn[: accepted(drafts, drawn) + 1])
    alone: tuple[int, ...] = (3,)
    while len(alone) < len(text):
        alone += (step(alone),)
    assert text == alone


def test_missing_draws_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 drafts need as many draws, found 1"):
        accepted((1, 2), (1,))
