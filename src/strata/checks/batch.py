"""`check batch`: every stream of a crowd says what it says alone, and the crowd really shares its steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from strata.checks.crowd import Answer, Crowd, Moment, Part, Tell, difference
from strata.checks.engines import obey, running
from strata.checks.watched import Note, Seating, Watched
from strata.core.order import Order
from strata.engine.request import Request
from strata.engine.runner import Runner
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
    drafted: int
    """Draft tokens offered."""
    accepted: int
    """Draft tokens that became part of an answer."""
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
        tokens = tuple(long) if i == count // 2 else tuple(prompt[:cut])
        late = Moment("0", said=3) if i == count // 2 or i >= count - count // 3 else None
        request = Request(str(i), tokens, max_new=12 + 5 * i % 41, params=draws_of(i))
        parts.append(Part(request, comes=late, leaves=Moment("1", said=5) if i == 1 else None))
    return parts


def draws_of(number: int) -> SamplingParams:
    """Greedy for even numbers, else seeded draws, every other of them with penalties."""
    if number % 2 == 0:
        return SamplingParams()
    drawn = SamplingParams(temperature=0.8, top_p=0.95, top_k=40, seed=1000 + number)
    return replace(drawn, presence_penalty=0.4, frequency_penalty=0.2) if number % 4 == 3 else drawn


def together(
    name: str,
    watched: Watched,
    turns: Sequence[tuple[Sequence[Part], Mapping[str, Answer]]],
    parked: bool = False,
    tell: Tell | None = None,
) -> Outcome:
    """All at once, turn after turn; `parked`: between turns every conversation leaves the slots' memory."""
    wrong, tokens, reused = "", 0, 0
    with running(watched) as engine:
        for turn, (parts, solo) in enumerate(turns):
            if turn and parked:
                obey(engine, Order("park"))
            found = Crowd(engine, parts, tell, watched).run()
            wrong = wrong or difference(solo, found, parts)
            tokens += sum(len(answer.tokens) for answer in found.values())
            reused += sum(answer.reused for answer in found.values())
        status = engine.status()
    rows, streams = (counts(status[key]) for key in ("rows_per_step", "decoding_per_step"))
    drafts = status["tokens"]
    assert isinstance(drafts, Mapping)
    total = sum(len(parts) for parts, _ in turns)
    return Outcome(name, total, tokens, reused, drafts["drafted"], drafts["accepted"], rows, streams, wrong)


def counts(histogram: object) -> dict[int, int]:
    """A status' histogram with numbers as keys."""
    assert isinstance(histogram, Mapping)
    return {int(value): int(count) for value, count in histogram.items()}


def company_harm(watched: Watched, seen: Seating | Note) -> Sequence[int]:
    """The negative control: as soon as several decode, the first of them is damaged."""
    if isinstance(seen, Note) and len(seen.decoding) > 1:
        return seen.decoding[:1]
    return ()


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
    before = read()
    with running(runner) as engine:
        Crowd(engine, parts).run()
    return ExpertReads(tap.uses, tap.distinct, read() - before)
