"""Windows as rows."""

import pytest
import torch

from strata.core.errors import RequestError
from strata.core.window import Window
from strata.runtime.pack import FEW, StepInputs, StepShape, check_tokens
from strata.state.memory import Memory

WINDOWS = [Window(2, 5, (7, 8, 9), 2), Window(0, 0, (4,), 0), Window(1, 3, (6, 6), 1)]
OTHERS = [Window(1, 0, (1, 2), 0), Window(2, 9, (3, 4), 2), Window(0, 7, (5, 6), 1)]


def test_rows_stand_in_the_order_of_the_windows():
    inputs = StepInputs(StepShape.of(WINDOWS, False))
    inputs.fill(WINDOWS)
    assert inputs.tokens.tolist() == [7, 8, 9, 4, 6, 6]
    assert inputs.rows.slot.tolist() == [2, 2, 2, 0, 1, 1]
    assert inputs.rows.position.tolist() == [5, 6, 7, 0, 3, 4]
    assert inputs.rows.segments.tolist() == [[2, 0, 3], [0, 3, 1], [1, 4, 2]]


@pytest.mark.parametrize("length", [FEW, FEW + 1, 40])
def test_long_windows_are_written_as_short_ones_are(length):
    windows = [Window(1, 70, tuple(range(100, 100 + length)), 2), WINDOWS[0]]
    inputs = StepInputs(StepShape.of(windows, False))
    inputs.fill(windows)
    assert inputs.tokens.tolist() == [*range(100, 100 + length), 7, 8, 9]
    assert inputs.rows.slot.tolist() == [1] * length + [2] * 3
    assert inputs.rows.position.tolist() == [*range(70, 70 + length), 5, 6, 7]
    assert inputs.rows.segments.tolist() == [[1, 0, length], [2, length, 3]]
    assert inputs.scored.tolist() == [length - 2, length - 1, length + 1, length + 2]


def test_the_last_rows_of_each_window_are_scored():
    inputs = StepInputs(StepShape.of(WINDOWS, False))
    inputs.fill(WINDOWS)
    assert inputs.scored.tolist() == [1, 2, 5]
    assert StepShape.of([Window(0, 0, (1, 2), 0)], True) == StepShape(2, 1, 0, True)


def test_other_windows_of_the_shape_take_the_same_places():
    inputs = StepInputs(StepShape.of(WINDOWS, False))
    inputs.fill(WINDOWS)
    places = [t.data_ptr() for t in (inputs.tokens, inputs.rows.position, inputs.scored)]
    assert StepShape.of(OTHERS, False) == StepShape.of(WINDOWS, False)
    inputs.fill(OTHERS)
    assert places == [t.data_ptr() for t in (inputs.tokens, inputs.rows.position, inputs.scored)]
    assert inputs.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert inputs.rows.segments.tolist() == [[1, 0, 2], [2, 2, 2], [0, 4, 2]]
    assert inputs.scored.tolist() == [2, 3, 5]


def test_a_journaled_step_says_which_windows_are_held():
    inputs = StepInputs(StepShape.of(WINDOWS, True))
    inputs.fill(WINDOWS, (), [True, False, True])
    assert inputs.rows.held is not None and inputs.rows.held.tolist() == [1, 0, 1]
    assert inputs.rows.segments.tolist() == [[2, 0, 3], [0, 3, 1], [1, 4, 2]] and inputs.scored.tolist() == [1, 2, 5]
    assert StepInputs(StepShape.of(WINDOWS, False)).rows.held is None


def test_a_device_gets_all_in_one_copy():
    inputs = StepInputs(StepShape.of(WINDOWS, False), Memory(torch.device("cpu"), apart=True))
    assert not inputs.tokens.any()
    inputs.fill(WINDOWS)
    assert inputs.tokens.tolist() == [7, 8, 9, 4, 6, 6] and inputs.scored.tolist() == [1, 2, 5]
    assert inputs.rows.segments.tolist() == [[2, 0, 3], [0, 3, 1], [1, 4, 2]]
    places = {t.untyped_storage().data_ptr() for t in (inputs.tokens, inputs.rows.slot, inputs.scored)}
    assert places == {inputs.block.device.data_ptr()} and all(t.is_contiguous() for t in (inputs.rows.segments,))


@pytest.mark.parametrize("wrong", [-1, 9])
def test_a_token_outside_the_vocabulary_is_refused(wrong):
    check_tokens(WINDOWS, 10)
    with pytest.raises(RequestError, match=r"token ids must be from 0 to 8, found"):
        check_tokens([Window(0, 0, (4, wrong), 0)], 9)
