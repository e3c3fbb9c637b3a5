"""Drafts change no token: answers with and without them, with and without kept prefixes, in one slot and in many.

Through whole engines, token by token, greedy and sampled. Negative control: with `tamper` drafts are taken for right
without being checked, and the comparison must then name a request and a position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from strata.assemble import Loaded
from strata.checks.crowd import Crowd, Part
from strata.checks.engines import running
from strata.checks.equalities import Verdict
from strata.checks.rehearsed import Rehearsed
from strata.checks.runners import lent, limits_of
from strata.core.log import Level, Log
from strata.core.sharing import PRIVATE, SHARED
from strata.core.stepped import Drawn
from strata.core.window import Window
from strata.engine.request import Request
from strata.runtime.drafts import Drafting
from strata.runtime.keeping import Keeping
from strata.runtime.outcome import Outcome
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams
from strata.speculate.offer import common

NAME = "drafts on = drafts off, prefixes kept or not, in 1 and 8 slots"
SLOTS = (1, 8)
RATES = (0.8, 0.7, 0.6)
PARAMS = (SamplingParams(), SamplingParams(temperature=0.9, top_p=0.95, seed=11))

Answers = dict[str, tuple[int, ...]]


class Gullible(DeviceRunner):
    """Takes every draft for right: what the check must notice."""

    def draw(self, window: Window, outcome: Outcome, first: int) -> tuple[Drawn, ...]:
        """See `DeviceRunner.draw`."""
        honest = super().draw(window, outcome, first)
        if window.score < 2:
            return honest
        drafts = window.tokens[len(window.tokens) - window.score + 1 :]
        return (*(Drawn(token) for token in drafts), honest[0])


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to run the requests."""

    drafts: str
    kept: bool
    slots: int

    def __str__(self) -> str:
        return f"drafts {self.drafts}, prefixes {'kept' if self.kept else 'not kept'}, {self.slots} slots"


class Drafted:
    """Runs the comparison on a loaded model."""

    keeping: ClassVar[Keeping] = Keeping(log=Log(Level.WARNING))

    def __init__(self, loaded: Loaded, prompts: Sequence[Sequence[int]], steps: int, tamper: bool = False) -> None:
        """`prompts` are answered with `steps` tokens each, greedy and sampled."""
        self.loaded = loaded
        self.tamper = tamper
        self.requests = [
            Request(f"{i}.{j}", tuple(prompt), steps, params)
            for i, prompt in enumerate(prompts)
            for j, params in enumerate(PARAMS)
        ]

    def compare(self) -> Verdict:
        """Every cell against no drafts, nothing kept and one slot."""
        expected, rows = self.answers(Cell("off", False, 1), ())[0], 0
        texts = [request.tokens + expected[request.id] for request in self.requests]
        for cell in self.cells():
            for found in self.answers(cell, texts):
                rows += sum(map(len, found.values()))
                for name, tokens in found.items():
                    if tokens != expected[name]:
                        at = common(tokens, expected[name])
                        return Verdict(NAME, rows, f"{cell}: request {name} differs at answer position {at}")
        return Verdict(NAME, rows, "")

    def cells(self) -> Iterator[Cell]:
        """Every combination."""
        own = ["3", "auto"] if self.loaded.drafting is not None else []
        for drafts in ("off", "rehearsed", *own):
            for kept in (False, True):
                for slots in SLOTS:
                    yield Cell(drafts, kept, slots)

    def answers(self, cell: Cell, texts: Sequence[Sequence[int]]) -> list[Answers]:
        """What every request says; where prefixes are kept a second time too, which then finds them."""
        sharing = SHARED if cell.kept else PRIVATE
        with running(self.runner(cell, texts)) as engine:
            said = []
            for turn in range(2 if cell.kept else 1):
                asked = [replace(each, id=f"{turn}-{each.id}", sharing=sharing) for each in self.requests]
                found = Crowd(engine, [Part(request) for request in asked]).run()
                said.append({name.partition("-")[2]: tuple(answer.tokens) for name, answer in found.items()})
        return said

    def runner(self, cell: Cell, texts: Sequence[Sequence[int]]) -> DeviceRunner:
        """A fresh runner over the loaded model."""
        run, model = self.loaded.runner, self.loaded.model
        kind = Gullible if self.tamper else DeviceRunner
        drafting: Drafting | None = None
        if cell.drafts == "rehearsed":
            drafter = Rehearsed(texts, RATES, model.shape.vocabulary)
            drafting = Drafting(depth=4, drafters={"rehearsed": drafter})
        elif cell.drafts != "off" and self.loaded.drafting is not None:
            depth = None if cell.drafts == "auto" else int(cell.drafts)
            drafting = replace(self.loaded.drafting, depth=depth)
        limits = limits_of(self.loaded, cell.slots)
        return kind(model, run.ops, limits, None, run.states.kv_type, self.keeping, lent(run), drafting)
