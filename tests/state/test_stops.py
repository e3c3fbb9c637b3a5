"""Where prompts are cut so that their states can be kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import UsageError
from strata.state.stops import Spacing


def test_below_marks_below_the_end_and_every_so_often():
    spacing = Spacing(64, 256)
    assert spacing.stops(0, 700, [130, 191, 400]) == (128, 256, 384, 512, 640)
    assert spacing.stops(300, 700, [130, 400]) == (384, 512, 640)
    assert spacing.stops(0, 64, []) == () and spacing.stops(0, 65, []) == (64,)


def test_below_the_place_where_another_prompt_parted():
    assert Spacing(64, 256).stops(100, 700, [], parted=450) == (256, 448, 512, 640)
    assert Spacing(64, 256).stops(448, 700, [], parted=450) == (512, 640)


def test_a_mark_near_the_end_takes_the_place_of_the_stop_below_the_last_token():
    spacing = Spacing(64, 1024)
    assert spacing.stops(0, 705, [700]) == (640,) and spacing.stops(0, 706, [700]) == (640,)
    assert spacing.stops(0, 705, [600]) == (576, 704) and spacing.stops(0, 705, [705]) == (704,)


def test_of_many_marks_the_first_and_the_last_are_used():
    spacing = Spacing(1, 1000, most_marks=3)
    assert spacing.stops(0, 100, range(10, 90, 10)) == (10, 70, 80, 99)
    assert Spacing(1, 1000, most_marks=1).stops(0, 100, [10, 20]) == (20, 99)


@given(st.integers(0, 500), st.integers(1, 500), st.lists(st.integers(0, 500)), st.integers(1, 9), st.integers(1, 9))
def test_stops_lie_on_the_grid_between_what_is_held_and_the_end(held, total, marks, grid, times):
    stops = Spacing(grid, grid * times).stops(held, total, marks)
    assert list(stops) == sorted(set(stops)) and all(held < stop < total and stop % grid == 0 for stop in stops)


@pytest.mark.parametrize("numbers", [(0, 64), (64, 0), (64, 100), (64, 64, 0)])
def test_what_does_not_fit_the_grid_is_refused(numbers):
    with pytest.raises(UsageError, match="states are kept every multiple of the grid"):
        Spacing(*numbers)
