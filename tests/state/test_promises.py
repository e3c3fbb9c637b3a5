"""When everybody can come to an end, against all orders tried out."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from strata.state.promises import Need, safe

NEEDS = st.lists(st.builds(Need, st.integers(0, 9), st.integers(0, 9)), max_size=5)


def can_end(spare, order):
    for need in order:
        if need.lacks > spare:
            return False
        spare += need.returns
    return True


@given(st.integers(0, 12), NEEDS)
def test_it_is_safe_exactly_when_some_order_works(spare, needs):
    assert safe(spare, needs) == any(can_end(spare, order) for order in permutations(needs))


def test_what_cannot_be_had_now_is_not_safe():
    assert not safe(-1, []) and safe(0, []) and not safe(-1, [Need(0, 5)])
