"""Experts are told of the next step where they have to be waited for, and of nothing where they are at hand."""

import pytest
import torch

from models.heads import HEADED
from models.made import load, ops_of, path_of
from strata.core.limits import Limits
from strata.core.window import Window
from strata.experts.placed import PlacedExperts
from strata.runtime.foresight import EVERY, FORECAST_S, START, Foresight
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams


class Far(PlacedExperts):
    """The model's own, of which each is said to be waited for so long; notes what is foretold."""

    def __init__(self, inner, seconds):
        super().__init__(inner)
        self.seconds = seconds
        self.foretold = []

    def wait_s(self):
        return self.seconds

    def prefetch(self, forecast):
        self.foretold.append(list(forecast))
        super().prefetch(forecast)


def driven(name, seconds, turns=3):
    """(runner, its experts) after some windows with drafts of the same text."""
    model = load(path_of(name, "gguf"))
    experts = model.experts.inner = Far(model.experts.inner, seconds)
    runner = DeviceRunner(model, ops_of(), Limits(1, 96, 64))
    text = (5, 9, 12, 7)
    runner.seat(0, [1, 2, 3], SamplingParams(), 90)
    runner.step([Window(0, 0, (1, 2, 3), 1)])
    for _ in range(turns):
        runner.step([Window(0, runner.states.length[0], text, 4)])
    return runner, experts


@pytest.mark.parametrize("name", HEADED)
def test_windows_with_drafts_foretell_what_their_tokens_read_last(name):
    runner, experts = driven(name, 1e-3)
    layers, top_k = runner.foresight.layers, runner.model.shape.top_k
    assert [bool(found) for found in experts.foretold] == [False, True, True]
    assert {layer for layer, _ in experts.foretold[-1]} == set(layers)
    for layer in layers:
        count = sum(at == layer for at, _ in experts.foretold[-1])
        assert top_k <= count <= min(4 * top_k, runner.model.shape.experts)
    assert runner.foresight.right != START and runner.status()["foresight"]["pays"]


def test_where_all_are_at_hand_nothing_is_foretold_or_learned():
    """Negative control of the decision: the same windows, experts that nobody waits for."""
    runner, experts = driven("qwen3_next", 0.0)
    assert experts.foretold == [] and not runner.foresight.forecast.last
    assert runner.status()["foresight"] == {"pays": False, "wait_us": 0.0, "right": START}


def test_a_forecast_that_is_mostly_wrong_does_not_pay():
    runner, experts = driven("qwen3_next", 1e-3)
    foresight = Foresight(experts, runner.foresight.layers)
    foresight.before([])
    assert foresight.pays
    foresight.right = FORECAST_S / 1e-3 / 2
    assert not foresight.pays


def test_whether_experts_are_at_hand_is_asked_now_and_then():
    runner, experts = driven("qwen3_next", 0.0)
    foresight = Foresight(experts, runner.foresight.layers)
    foresight.before([])
    experts.seconds = 1e-3
    for _ in range(EVERY - 1):
        foresight.before([])
    assert not foresight.pays
    foresight.before([])
    assert foresight.pays


def test_the_share_that_was_right_is_measured():
    runner, _ = driven("qwen3_next", 1e-3)
    foresight, window = runner.foresight, [Window(0, 0, (5, 9), 2)]
    before = foresight.right
    foresight.before(window)
    none = {layer: torch.full((2, 1), 10_000, dtype=torch.int32) for layer in foresight.layers}
    foresight.after(window, none)
    assert foresight.right == pytest.approx(0.9 * before)
