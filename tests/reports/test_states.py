"""Reports of states that mix, on a hybrid model: recurrent layers beside attention, experts in both."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.made import load, ops_of, oracle, path_of
from strata.checks.crowd import Answer, Crowd, Moment, Part, difference
from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.window import Window
from strata.engine.engine import Engine
from strata.engine.events import Finished, Reason
from strata.engine.request import Request
from strata.runtime.outcome import Outcome
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams

pytestmark = pytest.mark.timeout(60)
LENGTHS = (17, 33, 64, 65)


class Watched(DeviceRunner):
    """Refuses to seat a sequence over another; spoils states or logits on demand."""

    def __init__(self, path: Path, slots: int) -> None:
        super().__init__(load(path), ops_of(), Limits(slots, 256, 96))
        self.swap_at: int | None = None
        self.poisoned: tuple[int, int] | None = None
        """First token of a prompt, and the length from which on its logits are no numbers."""
        self.freed: list[int] = []

    def seat(self, slot: int, tokens: Sequence[int], *rest: Any) -> Held:
        """See Runner."""
        assert slot not in self.seats, "a slot in use was handed out again"
        return super().seat(slot, tokens, *rest)

    def release(self, slot: int) -> None:
        """See Runner."""
        assert slot in self.seats, "a slot was given back twice"
        self.freed.append(slot)
        super().release(slot)

    def _run(self, windows: Sequence[Window], wishes: Any) -> Outcome:
        if self.steps == self.swap_at:
            for layer in self.states.layers:
                if layer.delta is not None:
                    layer.delta[[0, 1]] = layer.delta[[1, 0]].clone()
        outcome, first = super()._run(windows, wishes), 0
        for window in windows:
            token, least = self.poisoned or (-1, 0)
            if window.score and window.end >= least and self.states.tokens[window.slot, 0] == token:
                outcome.all()[first, 5] = np.nan
            first += window.score
        return outcome


@pytest.fixture(scope="module")
def path() -> Path:
    return path_of("qwen3_next", "gguf")


def parts_of(order: Sequence[int], new: int = 16) -> list[Part]:
    """Prompts that each begin with a token of their own; they come one after the other, as the first one says more."""
    ids = oracle("qwen3_next").ids
    made = []
    for place, number in enumerate(order):
        tokens = (50 + number, *(ids * 2)[number : number + LENGTHS[number] - 1])
        comes = None if not place else Moment(str(order[0]), said=2 * place - 1)
        draws = SamplingParams(temperature=0.9, seed=7) if number % 2 else SamplingParams()
        made.append(Part(Request(str(number), tokens, new, draws), comes=comes))
    return made


def alone(path: Path, parts: Sequence[Part]) -> dict[str, Answer]:
    """Each in an engine of its own."""
    found: dict[str, Answer] = {}
    for part in parts:
        found |= run(Watched(path, 1), [Part(part.request)])
    return found


def run(runner: DeviceRunner, parts: Sequence[Part]) -> Mapping[str, Answer]:
    """All on one engine."""
    engine = Engine(runner)
    engine.start()
    try:
        return Crowd(engine, parts).run(40)
    finally:
        engine.stop()


@pytest.fixture(scope="module")
def solo(path: Path) -> dict[str, Answer]:
    return alone(path, parts_of(range(4)))


def test_requests_beside_each_other_say_what_each_says_alone(path: Path, solo: Mapping[str, Answer]) -> None:
    """O-001: from three busy slots on, requests of a hybrid model read each other's recurrent state."""
    assert len({tuple(answer.tokens) for answer in solo.values()}) == 4
    for order in itertools.islice(itertools.permutations(range(4)), 0, 24, 6):
        parts = parts_of(order)
        assert difference(solo, run(Watched(path, 4), parts), parts) == ""


def test_the_comparison_goes_red_when_two_states_change_places(path: Path, solo: Mapping[str, Answer]) -> None:
    parts = parts_of(range(4))
    runner = Watched(path, 4)
    runner.swap_at = 6
    assert "answer position" in difference(solo, run(runner, parts), parts)


def test_a_long_request_keeps_its_slot_while_short_ones_come_and_go(path: Path) -> None:
    """O-002: the slot is chosen by the request's number, so that a later one gets the state of one that still runs."""
    ids = oracle("qwen3_next").ids
    long = Part(Request("long", tuple(ids[:20]), 60))
    short = [
        Part(
            Request(f"s{i}", (60 + i, *ids[i : i + 9]), 6),
            comes=Moment("long", said=2 + 9 * i),
            leaves=Moment(f"s{i}", said=2) if i in (1, 3) else None,
        )
        for i in range(6)
    ]
    parts = [long, *short]
    runner = Watched(path, 2)
    found = run(runner, parts)
    assert difference(alone(path, parts), found, parts) == ""
    ends = [found[part.request.id].finished for part in parts]
    assert [end.reason for end in ends if end is not None].count(Reason.CANCEL) == 2
    assert len(runner.freed) == len(parts) and not runner.seats


def test_logits_that_are_no_numbers_end_one_request(path: Path, solo: Mapping[str, Answer]) -> None:
    """O-099: the answer goes on as one repeated token. O-037: what fails in one request ends all of its step."""
    parts = parts_of(range(4))
    runner = Watched(path, 4)
    runner.poisoned = (52, 69)
    found = run(runner, parts)
    bad = found["2"].finished
    assert isinstance(bad, Finished)
    assert (bad.reason, bad.code, bad.generated) == (Reason.ERROR, "failed", 5)
    assert found["2"].tokens == solo["2"].tokens[:5]
    assert "token 5 of 199 has nan" in bad.error
    assert difference(solo, found, [part for part in parts if part.request.id != "2"]) == ""
    held = [runner.known((*part.request.tokens, *solo[part.request.id].tokens)) > 0 for part in parts]
    assert held == [True, True, False, True], "what it read is not offered to others"
    runner.cache.check()
