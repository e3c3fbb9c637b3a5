"""`check batch`: every stream of a crowd says what it says alone, and the crowd really shares its steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, cast

import torch

from strata.checks.crowd import Answer, Crowd, Part, Progress, difference
from strata.core.order import Order
from strata.core.window import Window
from strata.engine.engine import Engine, EngineSettings
from strata.engine.request import Request
from strata.engine.runner import Runner, Stepped
from strata.sampling.params import SamplingParams

LONG = 3000
"""Tokens of the prompt that is read beside the others."""
LEAST_ROWS = 2.0
"""Mean decoding streams per step below which nothing was shared."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One variant of the crowd against the solo runs."""

    name: str
    streams: int
    tokens: int
    """Answer tokens compared."""
    reused: int
    """Prompt tokens that were not read again."""
    rows: Mapping[int, int]
    """Steps by rows."""
    streams_per_step: Mapping[int, int]
    """Steps by decoding streams."""
    difference: str

    @property
    def mean(self) -> float:
        """Mean streams of the steps in which any decoded."""
        steps = {n: count for n, count in self.streams_per_step.items() if n}
        return sum(n * count for n, count in steps.items()) / max(1, sum(steps.values()))

    @property
    def failure(self) -> str:
        """What is wrong; "" when nothing is."""
        if not self.difference and self.mean < LEAST_ROWS:
            return f"{self.mean:.2f} streams per step on average, so nothing was shared (least {LEAST_ROWS:g})"
        return self.difference


def crowd_of(prompts: Sequence[Sequence[int]], long: Sequence[int], count: int) -> list[Part]:
    """`count` requests: greedy and seeded draws in turn, of different lengths; one is cancelled, one reads `long`.

    The prompts are taken in turn, each shortened a little more, so that no two are equal. The long one and the last
    third come while the others already decode.
    """
    parts = []
    for i in range(count):
        prompt = prompts[i % len(prompts)]
        cut = max(2, len(prompt) - i // len(prompts))
        draws = SamplingParams(temperature=0.8, top_p=0.95, top_k=40, seed=1000 + i) if i % 2 else SamplingParams()
        tokens = tuple(long) if i == count // 2 else tuple(prompt[:cut])
        late = ("0", 3) if i == count // 2 or i >= count - count // 3 else None
        request = Request(str(i), tokens, max_new=12 + 5 * i % 41, params=draws)
        parts.append(Part(request, cancel_after=5 if i == 1 else None, after=late))
    return parts


def second_turns(parts: Sequence[Part], answers: Mapping[str, Answer], prompts: Sequence[Sequence[int]]) -> list[Part]:
    """Each conversation goes on with a new question behind its answer."""
    again = []
    for i, part in enumerate(parts):
        said = answers[part.request.id].tokens
        question = prompts[(i + 1) % len(prompts)][:20]
        tokens = (*part.request.tokens, *said, *question)
        again.append(Part(Request(f"{part.request.id}.2", tokens, max_new=10, params=part.request.params)))
    return again


class Engines:
    """Fresh engines over one model, and the crowds that run on them."""

    def __init__(self, make: Callable[[int, bool], Runner], slots: int, spoil: Callable[[Runner, int], None]) -> None:
        """`make(slots, keeps)` gives a fresh runner; `keeps`: with conversations kept for later requests."""
        self.make = make
        self.slots = slots
        self.spoil = spoil

    def alone(self, parts: Sequence[Part], progress: Progress | None = None) -> dict[str, Answer]:
        """Every request in an engine with one slot that keeps nothing, one after the other."""
        engine = Engine(self.make(1, False), EngineSettings())
        engine.start()
        found: dict[str, Answer] = {}
        for done, part in enumerate(parts, 1):
            found |= Crowd(engine, [Part(part.request)]).run()
            if progress is not None:
                progress(done, len(parts))
        engine.stop()
        return found

    def together(
        self,
        name: str,
        turns: Sequence[tuple[Sequence[Part], Mapping[str, Answer]]],
        keeps: bool,
        parked: bool = False,
        broken: bool = False,
        progress: Progress | None = None,
    ) -> Outcome:
        """All at once, turn after turn; `parked`: between turns every conversation leaves the slots' memory."""
        runner = self.make(self.slots, keeps)
        engine = Engine(cast(Runner, Spoiler(runner, self.spoil)) if broken else runner, EngineSettings())
        engine.start()
        wrong, tokens, reused = "", 0, 0
        for turn, (parts, solo) in enumerate(turns):
            if turn and parked:
                obey(engine, Order("park"))
            found = Crowd(engine, parts, progress).run()
            wrong = wrong or difference(solo, found, parts)
            tokens += sum(len(answer.tokens) for answer in found.values())
            reused += sum(answer.reused for answer in found.values())
        status = engine.status()
        engine.stop()
        rows, streams = (counts(status[key]) for key in ("rows_per_step", "decoding_per_step"))
        return Outcome(name, sum(len(parts) for parts, _ in turns), tokens, reused, rows, streams, wrong)


def counts(histogram: object) -> dict[int, int]:
    """A status' histogram with numbers as keys."""
    assert isinstance(histogram, Mapping)
    return {int(value): int(count) for value, count in histogram.items()}


def obey(engine: Engine, order: Order) -> Mapping[str, int]:
    """Give an order and wait for what became of it; raises what it failed with."""
    answers: SimpleQueue[Mapping[str, int] | Exception] = SimpleQueue()
    engine.order(order, answers.put)
    answer = answers.get()
    if isinstance(answer, Exception):
        raise answer
    return answer


class Spoiler:
    """A runner that damages what streams remember as soon as several decode: the negative control."""

    def __init__(self, runner: Runner, spoil: Callable[[Runner, int], None]) -> None:
        self._runner = runner
        self._spoil = spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def step(self, windows: Sequence[Window]) -> list[Stepped]:
        """The step, and afterwards the damage to the first of the slots that decode."""
        stepped = self._runner.step(windows)
        decoding = [window.slot for window in windows if len(window.tokens) == 1]
        if len(decoding) > 1:
            self._spoil(self._runner, decoding[0])
        return stepped


@dataclass(frozen=True, slots=True)
class ExpertReads:
    """How often experts were read in the steps of a crowd."""

    uses: int
    """Rows x layers with experts x top_k."""
    distinct: int
    """Distinct experts of every layer of every step, added up: what the routing asks for."""
    read: int
    """What the kernels counted."""

    @property
    def failure(self) -> str:
        """What is wrong; "" when each distinct expert was read once per step."""
        if self.read == self.distinct:
            return ""
        return f"{self.read} experts were read, the routing names {self.distinct} distinct ones"


class RoutingTap:
    """Adds up what every step's routing asks for."""

    def __init__(self) -> None:
        self.uses = 0
        self.distinct = 0

    def __call__(self, name: str, tensors: dict[str, torch.Tensor]) -> None:
        """See layers.batch.Tap."""
        if name.endswith(".router"):
            ids = tensors["ids"]
            self.uses += ids.numel()
            self.distinct += len(torch.unique(ids))


def expert_reads(runner: Runner, tap: RoutingTap, read: Callable[[], int], parts: Sequence[Part]) -> ExpertReads:
    """Run the crowd on a runner that reports to `tap`, beside the kernels' own count `read`."""
    engine = Engine(runner, EngineSettings())
    before = read()
    engine.start()
    Crowd(engine, parts).run()
    engine.stop()
    return ExpertReads(tap.uses, tap.distinct, read() - before)
