"""Where steps spend their time: what is told adds up, agrees with the programs' own clocks, and changes no bit."""

import pytest

from models.made import ops_of, oracle, path_of, runner_of, same_bits
from runtime.test_device import history, on_cpu, on_device
from strata.core.window import Window
from strata.runtime.runner import DeviceRunner
from strata.runtime.stages import WITHIN, Alike, StageClock, Stages, by_stage
from strata.sampling.params import SamplingParams

NAME = "qwen3_moe"


def decoded(steps: int, every: int = 1) -> DeviceRunner:
    """A runner that read a prompt and drew so many tokens, one step of `every` timed."""
    runner = runner_of(path_of(NAME, "gguf"), ops_of())
    runner.forwarder.every = every
    ids = oracle(NAME).ids[:40]
    runner.seat(0, ids, SamplingParams())
    runner.step([Window(0, 0, tuple(ids[:34]), 0)])
    for _ in range(steps):
        length = runner.states.length[0]
        runner.step([Window(0, length, (ids[length % 40],), 1)])
    return runner


def explained(runner: DeviceRunner) -> bool:
    """Whether the parts of steps fit into what was measured around them."""
    seconds = runner.stages.seconds(runner.spent.draw)
    outside = (runner.spent.reserve + runner.spent.commit) / 1e9
    return all(seconds[stage] > 0 for stage in ("mixer", "experts", "head", "sample")) and seconds["rest"] >= outside


def test_stages_add_up_to_the_time_of_all_steps() -> None:
    runner = decoded(8)
    seconds = runner.stages.seconds(runner.spent.draw)
    assert seconds.keys() == {*WITHIN, "rest"} and seconds["wait"] == 0
    assert sum(seconds.values()) == pytest.approx(runner.stages.whole / 1e9, rel=1e-9)
    spent = runner.spent
    assert runner.stages.whole >= spent.reserve + spent.run + spent.draw + spent.commit
    assert explained(runner)


def test_parts_that_are_longer_than_their_steps_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Negative control.
    monkeypatch.setattr(
        "strata.runtime.steps.by_stage", lambda times: {name: 10_000 * ns for name, ns in by_stage(times).items()}
    )
    assert not explained(decoded(8))


def test_recorded_steps_are_told_by_the_programs_own_clocks() -> None:
    runner = decoded(0)
    prompt = dict(runner.stages.within)
    assert prompt["mixer"] > 0 and prompt["experts"] > 0 and prompt["head"] == 0, "no row of the chunk was scored"
    length = runner.states.length[0]
    for at in range(6):
        runner.step([Window(0, length + at, (5,), 1)])
    found = by_stage(runner.forwarder.times())
    for stage in WITHIN:
        assert runner.stages.within[stage] - prompt[stage] == pytest.approx(found[stage], abs=1)
    assert runner.stages.timed == 6, "the chunk and all steps but the one that was recorded"


def test_one_step_of_many_is_timed_and_stands_for_the_others() -> None:
    runner = decoded(9, every=4)
    # The chunk, and of eight recorded steps the first and the fifth.
    assert runner.stages.timed == 3
    assert explained(runner)


def test_shares_of_the_last_timed_step_are_those_of_the_next() -> None:
    stages, alike = Stages(), Alike(every=3)
    due = []
    for run, parts in ((100, {"mixer": 50, "experts": 30}), (200, None), (40, None), (10, {"mixer": 1, "experts": 9})):
        due.append(alike.due())
        if parts is not None:
            alike.parts = {**dict.fromkeys((*WITHIN, "rest"), 0), **parts}
        stages.step(alike, run, run + 5)
    assert due == [True, False, False, True]
    assert stages.within["mixer"] == 50 + 100 + 20 + 1 and stages.within["experts"] == 30 + 60 + 12 + 9
    assert stages.seconds(7) == pytest.approx(
        {"mixer": 171e-9, "experts": 111e-9, "wait": 0, "head": 0, "sample": 7e-9, "rest": 81e-9}
    )


def test_a_step_that_failed_says_nothing_of_the_next() -> None:
    alike = Alike(every=1)
    alike.parts = {"mixer": 5}
    alike.due()
    assert alike.parts is None


def test_a_clock_waits_for_what_it_times() -> None:
    waits: list[None] = []
    clock = StageClock(lambda: waits.append(None))
    for part in ("embed", "blk.0.attention", "blk.0.routed", "head", "draw"):
        clock(part)
    assert len(waits) == 5 and all(clock.parts[stage] > 0 for stage in ("mixer", "experts", "head", "sample", "rest"))


def test_a_device_is_timed_by_a_twin_that_gives_the_same_bits() -> None:
    device, ids = on_device(NAME), oracle(NAME).ids * 2
    device.forwarder.every = 1
    for _ in range(2):
        for a, b in zip(history(device, ids), history(on_cpu(NAME), ids), strict=True):
            assert same_bits(a, b)
        for slot in range(3):
            device.states.clear(slot)
    clocked = [known for known in device.forwarder.recorded.values() if known.clocked is not None]
    assert clocked and all(sum(known.clocked.told.values()) > 0 for known in clocked if known.clocked is not None)
