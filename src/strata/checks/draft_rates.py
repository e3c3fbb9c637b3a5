"""What drafts gain: two settings of `--draft` over the same requests, through engines that live on.

In a round both sides read the same prompts and say the same tokens, some tokens each in turn (lanes.py), A first in one
round and B in the next. The ratio is B's rate by A's, prompts too, from the rounds' pieces (pieces.py), with where it
lies at 95%. The first rounds are for recording steps and learning, and do not count.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from strata.assemble import Loaded
from strata.checks.crowd import Crowd, Part
from strata.checks.engines import running
from strata.checks.lanes import Lane, Lanes
from strata.checks.pieces import pieces, ratio, ratio_range
from strata.checks.rehearsed import Rehearsed, fair_seed
from strata.checks.runners import lent, limits_of
from strata.core.errors import UsageError
from strata.core.held import Held
from strata.core.sharing import PRIVATE, Sharing
from strata.core.stepped import Drawn
from strata.core.window import Window
from strata.engine.engine import Engine
from strata.engine.request import Request
from strata.plan.drafting import choose_draft
from strata.runtime.drafts import Drafting
from strata.runtime.outcome import Outcome
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams
from strata.speculate.offer import common

WARM = 4
"""Rounds that do not count."""
TURN = 8
"""Tokens of each request in half a turn, and in a piece."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of one kind."""

    name: str
    prompts: Sequence[Sequence[int]]
    tokens: int
    """Answer tokens of each."""
    forced: Sequence[Sequence[int]] = ()
    """What is said in the place of the model's own answers."""
    rates: Sequence[float] = ()
    """Drafts are right as often as this says, by depth, in the place of the model's own drafters."""
    stop_ids: tuple[int, ...] = ()


class Forced(DeviceRunner):
    """Says given texts, whatever its logits are; drafts are right when they are in them."""

    texts: ClassVar[Mapping[tuple[int, ...], Sequence[int]]] = {}
    """By prompt."""

    def seat(
        self,
        slot: int,
        tokens: Sequence[int],
        params: SamplingParams,
        most: int | None = None,
        sharing: Sharing = PRIVATE,
    ) -> Held:
        """See `Runner.seat`."""
        held = super().seat(slot, tokens, params, most, sharing)
        self.said[slot] = (*tokens, *self.texts.get(tuple(tokens), ()))
        return held

    @property
    def said(self) -> dict[int, tuple[int, ...]]:
        """By slot: prompt and answer."""
        found: dict[int, tuple[int, ...]] = self.__dict__.setdefault("_said", {})
        return found

    def draw(self, window: Window, outcome: Outcome, first: int) -> tuple[Drawn, ...]:
        """See `DeviceRunner.draw`; the model's own draw is made too, for it takes its time."""
        honest, text = super().draw(window, outcome, first), self.said[window.slot]
        if not honest or len(text) < window.end + 1:
            return honest
        drafts = window.tokens[len(window.tokens) - window.score + 1 :]
        at = window.end - window.score + 1
        right = common(drafts, text[at:])
        self.seats[window.slot].pending = text[at + right]
        return tuple(Drawn(token) for token in text[at : at + right + 1])


@dataclass(slots=True)
class Side:
    """One setting."""

    draft: str
    engine: Engine
    lane: Lane
    seconds: list[float] = field(default_factory=list)
    pieces: list[list[float]] = field(default_factory=list)
    """Seconds of each round's."""
    tokens: int = 0
    steps: int = 0

    def values(self) -> dict[str, object]:
        """As plain values."""
        median = statistics.median(self.seconds)
        each = self.tokens / len(self.seconds)
        per_step = round(self.tokens / self.steps, 3) if self.steps else None
        return {"draft": self.draft, "tokens_per_second": round(each / median, 2), "tokens_per_step": per_step}


class DraftRates:
    """Compares two settings on a loaded model."""

    def __init__(self, loaded: Loaded, sides: Sequence[str], slots: int, rounds: int) -> None:
        """`sides` are two values of `--draft`; UsageError for others, or when the model was loaded without drafts."""
        for side in sides:
            choose_draft(side, "cpu", False)
        if len(sides) != 2 or loaded.drafting is None:
            raise UsageError(f"--draft {','.join(sides)}: expected two settings, as auto,off")
        self.loaded = loaded
        self.sides = sides
        self.slots = slots
        self.rounds = rounds

    def compare(self, work: Workload) -> dict[str, object]:
        """Both sides in turn -> plain values: rates, their paired ratio, drafts by depth."""
        texts = self.recorded(work) if work.rates else []
        lanes = Lanes(TURN * self.slots)
        both = [Lane(self.runner(draft, work, texts), lanes, side) for side, draft in enumerate(self.sides)]
        with running(both[0], clock=both[0].clock) as first, running(both[1], clock=both[1].clock) as second:
            found = [Side(*of) for of in zip(self.sides, (first, second), both, strict=True)]
            try:
                for turn in range(-WARM, self.rounds):
                    self.round(found, work, turn)
            finally:
                lanes.close()
            depths = [side.engine.status()["drafts_by_depth"] for side in found]
        first_s, second_s = (np.array(side.pieces) for side in found)
        return {
            "workload": work.name,
            "sides": [side.values() | {"drafts": depth} for side, depth in zip(found, depths, strict=True)],
            "ratio": round(ratio(first_s, second_s), 4),
            "ratio_95": [round(bound, 4) for bound in ratio_range(first_s, second_s)],
            "ratio_of_sums": round(sum(found[0].seconds) / sum(found[1].seconds), 4),
            "ratios": [round(a / b, 4) for a, b in zip(found[0].seconds, found[1].seconds, strict=True)],
        }

    def round(self, sides: Sequence[Side], work: Workload, turn: int) -> None:
        """One crowd on each side, in turns; the first rounds are not counted."""
        began = [side.lane.clock() for side in sides]
        crowds = []
        for side in sides:
            parts = [Part(request) for request in self.requests(work, f"{turn}")]
            crowds.append(Crowd(side.engine, parts, side.lane.tell))
            crowds[-1].begin()
        sides[0].lane.lanes.begin(turn % 2)
        for side, crowd, start in zip(sides, crowds, began, strict=True):
            answers = crowd.wait()
            if turn >= 0:
                said = sum(len(answer.tokens) for answer in answers.values())
                side.seconds.append(side.lane.clock() - start)
                side.pieces.append(pieces(side.lane.trace(), said, TURN * self.slots))
                side.tokens += said
                ended = (answer.finished for answer in answers.values())
                side.steps += sum(each.steps + 1 for each in ended if each is not None)

    def requests(self, work: Workload, tag: str) -> list[Request]:
        """The workload's, with ids of their own."""
        return [
            Request(f"{tag}.{i}", tuple(prompt), work.tokens, stop_ids=work.stop_ids, sharing=PRIVATE)
            for i, prompt in enumerate(work.prompts)
        ]

    def recorded(self, work: Workload) -> list[tuple[int, ...]]:
        """Prompts with their answers, for drafters that know them."""
        with running(self.runner("off", replace(work, rates=()), ())) as engine:
            answers = Crowd(engine, [Part(request) for request in self.requests(work, "r")]).run()
        return [(*p, *answers[f"r.{i}"].tokens) for i, p in enumerate(work.prompts)]

    def runner(self, side: str, work: Workload, texts: Sequence[Sequence[int]]) -> DeviceRunner:
        """A fresh runner over the loaded model."""
        run, model, choice = self.loaded.runner, self.loaded.model, choose_draft(side, "cpu", False)
        drafting: Drafting | None = None
        if choice.drafts and work.rates:
            seed = fair_seed(len(work.prompts[0]), len(work.prompts[0]) + work.tokens, work.rates)
            drafter = Rehearsed(texts, work.rates, model.shape.vocabulary, seed)
            price_s = 0.0 if self.loaded.drafting is None else self.loaded.drafting.price_s
            drafting = Drafting(depth=choice.depth, price_s=price_s, drafters={"rehearsed": drafter})
        elif choice.drafts and self.loaded.drafting is not None:
            drafting = replace(self.loaded.drafting, depth=choice.depth)
        kind: type[DeviceRunner] = DeviceRunner
        if work.forced:
            said = {tuple(p): text for p, text in zip(work.prompts, work.forced, strict=True)}
            kind = type("Forcing", (Forced,), {"texts": said})
        limits = limits_of(self.loaded, self.slots)
        return kind(model, run.ops, limits, None, run.states.kv_type, None, lent(run), drafting)
