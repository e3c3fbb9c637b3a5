"""A model's own drafting head: its passes, what it reads along and when it rests."""

import numpy as np
import pytest
import torch

from models.heads import HEADED, headed, load_headed
from models.made import ops_of, oracle, same_bits
from runtime.drafting import (
    read,
    runner_of,
    with_head,
)
from strata.core.errors import EngineError
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.naive_ops import NaiveOps
from strata.runtime.drafts import Drafting
from strata.runtime.head_steps import HeadSteps
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams


def test_a_step_that_fails_leaves_nothing_of_its_slot_to_drafters(monkeypatch):
    runner = runner_of("qwen3_next", depth=2)
    runner.seat(0, [1, 2, 3], SamplingParams(), 20)

    def fail(*_):
        raise EngineError("told to")

    monkeypatch.setattr(runner.forwarder, "scored", fail)
    with pytest.raises(EngineError, match="told to"):
        runner.step([Window(0, 0, (1, 2, 3), 1)])
    assert not runner.drafts.head.readings
    runner.release(0)


def test_a_head_that_was_told_of_other_rows_says_so():
    runner = runner_of("qwen3_next")
    runner.seat(0, [1, 2, 3], SamplingParams(), 20)
    runner.forward([Window(0, 0, (1, 2, 3), 1)])
    runner.states.commit(0, 3, runner.ops)
    with pytest.raises(EngineError, match="slot 0 holds 3 tokens, its drafting head was told of other rows"):
        runner.draft({0: 2})


@pytest.mark.parametrize("name", HEADED)
def test_a_recorded_pass_equals_one_op_by_op(name):
    """Several slots, catching up and chained; and the specification gives the same."""
    found = []
    for ops in (ops_of(), ops_of(), NaiveOps()):
        model, head = load_headed(headed(name, "gguf"), ops)
        runner = DeviceRunner(model, ops, Limits(3, 128, 64), drafting=Drafting(head))
        if len(found) == 1:
            runner.drafts.head.steps._program_for = lambda shape: None
        found.append(passes(runner, head.width))
    for other in found[1:]:
        assert all(same_bits(a, b) for a, b in zip(found[0], other, strict=True))


def passes(runner, width):
    steps: HeadSteps = runner.drafts.head.steps
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(9, width)).astype(np.float32))
    for slot in range(3):
        runner.states.make_room(slot, 40)
    found = []
    for turn in range(3):
        windows = [Window(0, 3 * turn, (3, 4, 5), 1), Window(2, turn, (7 + turn,), 1)]
        passed = steps.run(windows, rows[turn : turn + 4], chained=False)
        found += [passed.logits.numpy().copy(), passed.hidden.numpy().copy()]
        passed = steps.run([Window(2, turn + 1, (9,), 1)], passed.hidden[1:].clone(), chained=True)
        found.append(passed.logits.numpy().copy())
        steps.run([Window(1, 3 * turn, (1, 2, 3), 0)], rows[turn : turn + 3], chained=False)
    return found


@pytest.mark.parametrize("name", HEADED)
def test_a_narrowed_head_proposes_the_best_of_its_tokens(name):
    model, head = with_head(name)
    some = torch.tensor([3, 8, 50, 51, 120])
    ids = oracle(name).ids[:20]
    chosen = []
    for each in (head, head.narrowed(some)):
        runner = DeviceRunner(model, ops_of(), Limits(1, 64, 64), drafting=Drafting(each, 1))
        runner.seat(0, ids, SamplingParams(), 40)
        runner.step([Window(0, 0, tuple(ids), 1)])
        steps = runner.drafts.head.steps
        run, kept = steps.run, []
        steps.run = lambda *a, _run=run, _kept=kept, **k: _kept.append(_run(*a, **k)) or _kept[-1]
        chosen.append((runner.draft({0: 1})[0][0], kept[-1].logits[0].numpy().copy()))
    (_, full), (token, few) = chosen
    assert same_bits(few, full[some.numpy()])
    assert token == int(some[int(few.argmax())])


def test_a_head_that_does_not_pay_rests_and_what_it_missed_is_not_taken_for_read():
    """Nor by a sequence that goes on from what was kept; a new one is read again when the head is awake."""
    name = "qwen4_exp"
    runner, ids = runner_of(name), (oracle(name).ids * 3)[:80]
    chooser, head = runner.drafts.chooser, runner.drafts.head
    chooser.costly.rest.rests = True
    runner.seat(0, ids[:70], SamplingParams(), 120)
    read(runner, 0, ids[:70])
    assert not head.knows(0) and not head.steps.recorded
    runner.release(0)
    chooser.costly.rest.rests = False
    assert runner.seat(1, ids[:75], SamplingParams(), 120).tokens == 70
    assert not head.knows(1)
    assert runner.seat(2, ids[40:70], SamplingParams(), 120).tokens == 0
    assert head.knows(2)
    read(runner, 1, ids[:75])
    runner.seats[1].pending = runner.seats[2].pending = 5
    read(runner, 2, ids[40:70])
    runner.draft({1: 3, 2: 3})
    assert set(chooser.offers[1].made) <= {"lookup"} and "mtp" in chooser.offers[2].made
