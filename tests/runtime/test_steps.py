"""Steps that run as recorded programs give the bits of steps that run op by op."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from models.made import load, ops_of, oracle, path_of, same_bits
from oracles.build import ORACLES
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.buffers import Blocks
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.program import Program
from strata.kernels.step_program import Unshared, Workspace
from strata.runtime.pack import StepInputs
from strata.runtime.runner import DeviceRunner
from strata.runtime.steps import MOST_PROGRAMS, MOST_ROWS
from strata.state.sequence import SequenceStates


def runner(name: str, recorded: bool, slots: int = 3) -> DeviceRunner:
    tap = None if recorded else lambda *_: None
    return DeviceRunner(load(path_of(name, "gguf"), ops_of()), ops_of(), Limits(slots, 128, 64), tap)


def history(runner: DeviceRunner, ids: list[int]) -> list[np.ndarray]:
    """Prompts, single tokens in one and in all slots, and verify windows that are cut."""
    found = []

    def step(windows: list[Window], kept: list[int]) -> None:
        found.append(runner.forward(windows))
        for window, rows in zip(windows, kept, strict=True):
            runner.states.commit(window.slot, rows, runner.ops)

    def window(slot: int, size: int, score: int) -> Window:
        start = runner.states.length[slot]
        at = start + 7 * slot
        return Window(slot, start, tuple(ids[at : at + size]), score)

    for slot in range(3):
        step([window(slot, 9 + slot, 1)], [9 + slot])
    for _ in range(3):
        step([window(0, 1, 1)], [1])
        step([window(slot, 1, 1) for slot in (2, 0, 1)], [1] * 3)
        step([window(1, 4, 4), window(2, 1, 1)], [2, 1])
        step([window(0, 2, 0)], [2])
    return found


@pytest.mark.parametrize("name", ORACLES)
def test_a_recorded_step_equals_one_op_by_op(name):
    ids, quick, slow = oracle(name).ids * 3, runner(name, True), runner(name, False)
    for a, b in zip(history(quick, ids), history(slow, ids), strict=True):
        assert same_bits(a, b)
    assert len(quick.forwarder.recorded) == 7
    assert not slow.forwarder.recorded


def test_a_program_that_missed_its_inputs_is_seen(monkeypatch):
    """Negative control: with the first step's inputs the second step of the same shape is wrong."""
    ids, quick, slow = oracle("qwen3_moe").ids * 3, runner("qwen3_moe", True), runner("qwen3_moe", False)
    expected = history(slow, ids)
    monkeypatch.setattr("strata.runtime.steps.StepInputs.fill", fill_once())
    assert not all(same_bits(a, b) for a, b in zip(history(quick, ids), expected, strict=True))


def fill_once():
    honest, filled = StepInputs.fill, set()

    def fill(self, windows, wishes, held):
        if id(self) not in filled:
            filled.add(id(self))
            honest(self, windows, wishes, held)

    return fill


def test_logits_that_were_handed_out_stay():
    ids, quick = oracle("qwen3_moe").ids, runner("qwen3_moe", True)
    first = quick.forward([Window(0, 0, (ids[0],), 1)])
    kept = first.copy()
    quick.states.commit(0, 1, quick.ops)
    quick.forward([Window(0, 1, (ids[1],), 1)])
    assert same_bits(first, kept)


def test_large_steps_are_not_kept_and_old_programs_go():
    ids, quick = oracle("qwen3_moe").ids * 3, runner("qwen3_moe", True)
    quick.forward([Window(0, 0, tuple(ids[: MOST_ROWS + 1]), 1)])
    assert not quick.forwarder.recorded
    quick.states.clear(0)
    shapes = [(rows, score) for rows in range(1, 13) for score in range(1, rows + 1)]
    assert len(shapes) > MOST_PROGRAMS
    for rows, score in shapes:
        quick.forward([Window(0, 0, tuple(ids[:rows]), score)])
        quick.states.clear(0)
    assert len(quick.forwarder.recorded) == MOST_PROGRAMS


def test_timed_steps_name_their_parts_and_give_the_same_bits():
    ids, timed, slow = oracle("qwen3_moe").ids * 3, runner("qwen3_moe", True), runner("qwen3_moe", False)
    timed.forwarder.time()
    for a, b in zip(history(timed, ids), history(slow, ids), strict=True):
        assert same_bits(a, b)
    times = timed.forwarder.times()
    assert {"embed", "blk.0.attention", "blk.0.router", "blk.0.routed", "head"} <= {t.part for t in times}
    assert [t.operation for t in times if t.part == "blk.0.routed"].count("experts") == len(timed.forwarder.recorded)
    assert sum(t.nanoseconds for t in times) > 0


class LazyProgram(Program):
    """Runs nothing while it records, as on a device: what the operations wrote is taken back."""

    runs_while_recording = False

    def __init__(self, ops: "LazyOps") -> None:
        super().__init__(ops.native, Blocks())
        self.ops = ops

    @contextmanager
    def recording(self):
        kept = {name: tensor.clone() for name, tensor in remembered(self.ops.states).items()}
        with super().recording():
            yield
        if self.ops.takes_back:
            for name, tensor in remembered(self.ops.states).items():
                tensor.copy_(kept[name])


class LazyOps(CpuOps):
    states: SequenceStates
    takes_back = True

    def workspace(self) -> Workspace:
        return Unshared(lambda timed: LazyProgram(self))


def remembered(states: SequenceStates) -> dict[str, torch.Tensor]:
    """What a step changes twice when it runs twice."""
    named = {}
    for i, layer in enumerate(states.layers):
        named |= {f"{i}.conv": layer.conv, f"{i}.delta": layer.delta, f"{i}.ngram": layer.ngram}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def lazy_runner(name: str) -> DeviceRunner:
    ops = LazyOps(ops_of().native)
    found = DeviceRunner(load(path_of(name, "gguf"), ops), ops, Limits(3, 128, 64))
    ops.states = found.states
    return found


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen4_exp"])
def test_where_recording_runs_nothing_a_step_still_happens_once(name):
    ids, lazy, slow = oracle(name).ids * 3, lazy_runner(name), runner(name, False)
    for a, b in zip(history(lazy, ids), history(slow, ids), strict=True):
        assert same_bits(a, b)
    # The three shapes of prompts came once and ran op by op.
    assert len(lazy.forwarder.seen) == 7 and len(lazy.forwarder.recorded) == 4


def test_a_step_that_happens_twice_is_seen(monkeypatch):
    """Negative control."""
    ids, lazy, slow = oracle("qwen4_exp").ids * 3, lazy_runner("qwen4_exp"), runner("qwen4_exp", False)
    monkeypatch.setattr(LazyOps, "takes_back", False)
    assert not all(same_bits(a, b) for a, b in zip(history(lazy, ids), history(slow, ids), strict=True))
