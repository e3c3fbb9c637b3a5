"""Tokens that are chosen where the logits are: the same as the host's, and no row is looked at without need."""

import dataclasses

import numpy as np
import pytest
import torch

from models.made import load, ops_of, oracle, path_of
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.step_program import Unshared, Workspace
from strata.kernels.views import DrawRows
from strata.runtime.apart import Apart
from strata.runtime.outcome import Outcome, needs_logits, wish_of
from strata.runtime.runner import DeviceRunner
from strata.runtime.steps import Scored, in_host_memory
from strata.sampling.params import SamplingParams
from strata.state.memory import HOST, Memory

GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=1.3, top_p=0.95, top_k=50, min_p=0.01, seed=11)
PENALISED = dataclasses.replace(SAMPLED, repeat_penalty=1.2, frequency_penalty=0.4)
REPORTED = SamplingParams(logprobs=2)


class DrawingOps(CpuOps):
    """The CPU's operations, choosing tokens as a device does."""

    broken = False

    def workspace(self) -> Workspace:
        """`draw` is not recorded."""
        return Unshared()

    def draw(self, logits: torch.Tensor, rows: DrawRows) -> torch.Tensor:
        columns = (rows.temperature, rows.top_k, rows.top_p, rows.min_p, rows.uniform)
        found = [self.one(*row) for row in zip(logits, *(c.tolist() for c in columns), strict=True)]
        return torch.tensor(found, dtype=torch.int32)

    def one(self, values, temperature, top_k, top_p, min_p, mark) -> int:
        largest = int(values.argmax())
        if not values[largest].isfinite():
            return -1
        if self.broken or not temperature:
            return largest
        return self.choose(values, temperature, top_k, top_p, min_p, mark)


def runner(ops: CpuOps, memory: Memory) -> DeviceRunner:
    apart = Apart("a device", memory, ops) if memory.apart else None
    return DeviceRunner(load(path_of("qwen4_exp", "gguf"), ops), ops, Limits(3, 256, 64), apart=apart)


def answers(used: DeviceRunner, ids: list[int], params: tuple[SamplingParams, ...]) -> list[list[tuple]]:
    """What every slot draws: prompts, single tokens together, and windows with right and wrong drafts."""
    found: list[list[tuple]] = [[] for _ in params]

    def step(windows: list[Window]) -> None:
        for result in used.step(windows):
            found[result.slot] += [(d.token, d.logprob, d.top) for d in result.drawn]

    for slot, wished in enumerate(params):
        used.seat(slot, ids[: 9 + slot], wished)
        step([Window(slot, 0, tuple(ids[: 9 + slot]), 1)])
    for turn in range(6):
        windows = []
        for slot in range(len(params)):
            last = found[slot][-1][0]
            drafts = tuple((last + turn + i) % 199 for i in range((turn + slot) % 3))
            windows.append(Window(slot, used.states.length[slot], (last, *drafts), 1 + len(drafts)))
        step(windows)
    return found


@pytest.fixture(scope="module")
def ids():
    return oracle("qwen4_exp").ids


@pytest.fixture
def device():
    return runner(DrawingOps(ops_of().native), Memory(torch.device("cpu"), apart=True))


WISHES = [(GREEDY, SAMPLED, GREEDY), (PENALISED, SAMPLED, REPORTED)]


@pytest.mark.parametrize("params", WISHES, ids=["on the device", "with others"])
def test_where_a_token_is_chosen_does_not_show(ids, device, params):
    assert answers(device, ids, params) == answers(runner(ops_of(), HOST), ids, params)


def test_tokens_that_a_device_gets_wrong_are_seen(ids, device, monkeypatch):
    """Negative control: the device's tokens are what is drawn."""
    monkeypatch.setattr(DrawingOps, "broken", True)
    assert answers(device, ids, WISHES[0]) != answers(runner(ops_of(), HOST), ids, WISHES[0])


def test_no_row_is_brought_to_the_host_without_need(ids, device, monkeypatch):
    def refused(self: Outcome, number: int) -> np.ndarray:
        raise AssertionError

    monkeypatch.setattr(Outcome, "row", refused)
    answers(device, ids, WISHES[0])
    with pytest.raises(AssertionError):
        answers(device, ids, WISHES[1])


def test_a_row_without_a_choice_is_said_as_on_the_host(ids, device, monkeypatch):
    device.seat(0, ids[:3], SAMPLED)
    honest = type(device.model).head
    monkeypatch.setattr(type(device.model), "head", lambda *given: honest(*given) * torch.nan)
    (result,) = device.step([Window(0, 0, tuple(ids[:3]), 1)])
    assert "logits at position 3: token 0 of 199 has nan" in result.error and not result.drawn


@pytest.mark.parametrize("last", [np.nan, np.inf, -np.inf])
def test_the_largest_of_all_rows_are_found_at_once_and_what_is_no_number_is_not_taken(last):
    rows = np.random.default_rng(1).integers(0, 9, (4, 50)).astype(np.float32)
    rows[3] = -np.inf
    rows[3, 7] = last
    logits = torch.from_numpy(rows)
    outcome = Outcome(Scored(logits, None, logits, {}, in_host_memory(logits)), HOST)
    right = [int(np.flatnonzero(row == row.max())[0]) for row in rows[:3]]
    assert outcome.chosen(0, 3, GREEDY) == right and outcome.chosen(1, 1, GREEDY) == right[1:2]
    assert outcome.chosen(0, 4, GREEDY) is None and outcome.chosen(3, 1, GREEDY) is None
    assert outcome.chosen(0, 1, SAMPLED) is None


def test_what_needs_the_logits():
    assert not needs_logits(GREEDY) and not needs_logits(SAMPLED)
    assert needs_logits(PENALISED) and needs_logits(REPORTED) and needs_logits(SamplingParams(logit_bias=((3, 1.0),)))
    wish = wish_of(SAMPLED, 7)
    assert wish[:4] == (1.3, 50, 0.95, 0.01) and 0 < wish.uniform < 1 and wish != wish_of(SAMPLED, 8)
