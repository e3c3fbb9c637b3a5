import math
from typing import Any

import pytest

from strata.core.errors import CapacityError, RequestError
from strata.core.limits import Limits
from strata.engine.request import Request

LIMITS = Limits(slots=2, context=10, step_tokens=4)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"id": ""}, "id"),
        ({"id": "-"}, "id"),
        ({"id": "a b"}, "id"),
        ({"id": "a=b"}, "id"),
        ({"id": "a\nb"}, "id"),
        ({"id": "x" * 129}, "id"),
        ({"tokens": ()}, "tokens"),
        ({"tokens": (1, -2)}, "tokens"),
        ({"tokens": (1, 1 << 31)}, "tokens"),
        ({"stop_ids": (-1,)}, "stop_ids"),
        ({"max_new": -1}, "max_new"),
        ({"draft": -1}, "draft"),
        ({"stream_from": -1}, "stream_from"),
        ({"slot": -1}, "slot"),
        ({"deadline_s": 0.0}, "deadline_s"),
        ({"deadline_s": math.nan}, "deadline_s"),
    ],
)
def test_a_bad_field_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        Request(**{"id": "a", "tokens": (1,), **fields})
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("prompt", "max_new", "budget"), [(1, 9, 9), (9, 1, 1), (10, 0, 0), (4, None, 6), (9, None, 1)]
)
def test_prompt_and_answer_may_fill_the_context_exactly(prompt: int, max_new: int | None, budget: int) -> None:
    assert Request("a", (1,) * prompt, max_new).budget(LIMITS) == budget


@pytest.mark.parametrize(
    ("prompt", "max_new", "new"), [(2, 9, 9), (10, 1, 1), (11, 0, 0), (10, None, 1), (40, None, 1)]
)
def test_what_does_not_fit_is_refused_with_all_numbers(prompt: int, max_new: int | None, new: int) -> None:
    with pytest.raises(CapacityError, match=rf"prompt of {prompt} tokens and {new} new ones .* context of 10 tokens"):
        Request("a", (1,) * prompt, max_new).budget(LIMITS)


def test_a_slot_that_is_not_there_is_refused_with_both_numbers() -> None:
    with pytest.raises(CapacityError, match="slot 2 was asked for, there are 2"):
        Request("a", (1,), 1, slot=2).budget(LIMITS)
