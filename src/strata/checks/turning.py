"""`bench turns`: what a next turn costs whose history is held, beside reading it again.

The history is one long turn and its answer. The next turn goes on from the slots' memory, from disk with another
engine, behind an edited last message, and behind an answer whose thinking was dropped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strata.assemble import Loaded
from strata.checks.crowd import Answer, Crowd, Part
from strata.checks.engines import obey, running
from strata.checks.joining import require_whole
from strata.checks.runners import keeping
from strata.core.order import Order
from strata.core.sharing import Sharing
from strata.engine.engine import Engine, EngineSettings
from strata.engine.request import Request
from strata.runtime.keeping import Keeping, OnDisk

ANSWER = 32
"""Tokens of an answer; the first half of one counts as its thinking."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One next turn."""

    name: str
    prompt: int
    common: int
    """Tokens that it begins with and that were read or said before."""
    reused: int
    tier: str
    first_s: float
    cold_s: float
    """The same prompt on an engine that holds nothing."""

    @property
    def share(self) -> float:
        """Of the cold one's time to first token."""
        return self.first_s / self.cold_s

    @property
    def kept(self) -> float:
        """What was reused of what is common."""
        return self.reused / self.common


class Turns:
    """Runs the turns on one loaded model."""

    def __init__(self, loaded: Loaded, settings: EngineSettings, history: Sequence[int], disk: OnDisk) -> None:
        """`history`: the first turn's prompt, and some tokens more for questions."""
        self.loaded = loaded
        self.settings = settings
        self.disk = disk
        self.history = tuple(history[: -3 * ANSWER])
        self.questions = [tuple(history[len(self.history) + i * ANSWER :][:ANSWER]) for i in range(3)]

    def turns(self) -> Iterator[Turn]:
        """Every kind of next turn, one by one."""
        how = Keeping(disk=self.disk)
        with running(keeping(self.loaded, 2, how), self.settings) as engine:
            said = tuple(self.ask(engine, self.history, (len(self.history),)).tokens)
            before = (*self.history, *said)
            marks = (len(self.history), len(before))
            asked, edited, later = ((*before, *question) for question in self.questions)
            yield self.turn("next turn", engine, asked, len(before), marks)
            yield self.turn("edited last message", engine, edited, len(before), marks)
            dropped = (*self.history, *said[ANSWER // 2 :], *self.questions[0])
            yield self.turn("dropped thinking", engine, dropped, len(self.history), marks[:1])
            obey(engine, Order("save"))
        with running(keeping(self.loaded, 2, how), self.settings) as engine:
            yield self.turn("from disk, engine restarted", engine, later, len(before), marks)

    def ask(self, engine: Engine, tokens: Sequence[int], marks: Sequence[int], max_new: int = ANSWER) -> Answer:
        """One request, and nobody else."""
        part = Part(Request("turn", tuple(tokens), max_new=max_new, sharing=Sharing(tuple(marks))))
        answers = Crowd(engine, [part]).run()
        require_whole(answers)
        return answers["turn"]

    def turn(self, name: str, engine: Engine, tokens: Sequence[int], common: int, marks: Sequence[int]) -> Turn:
        """One next turn beside the cold one."""
        warm = self.ask(engine, tokens, marks)
        with running(keeping(self.loaded, 1), self.settings) as fresh:
            cold = self.ask(fresh, tokens, (), 1)
        return Turn(name, len(tokens), common, warm.reused, warm.tier, warm.first_s, cold.first_s)
