"""A runner that takes notes: who sat where, and which of them took part in every step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from strata.core.held import Held
from strata.core.sharing import SHARED, Sharing
from strata.core.window import Window
from strata.engine.runner import Runner, Stepped
from strata.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Seating:
    """A prompt that was given a slot."""

    slot: int
    tokens: tuple[int, ...]
    held: Held
    step: int
    """Steps that had run by then."""


@dataclass(slots=True)
class Note:
    """One step: numbers of seatings, and what each of them ran."""

    decoding: list[int] = field(default_factory=list)
    reading: dict[int, int] = field(default_factory=dict)
    """Prompt tokens of each."""


Harm = Callable[["Watched", Seating | Note], Sequence[int]]
"""After a seating, or a step: the numbers of the seatings whose memory is to be damaged."""


def harmless(watched: "Watched", seen: Seating | Note) -> Sequence[int]:
    """No damage."""
    return ()


class Watched:
    """Stands before a runner. `harm` is for negative controls: what it names is damaged by `spoil`, once."""

    def __init__(
        self, runner: Runner, harm: Harm = harmless, spoil: Callable[[Runner, int], None] = lambda runner, slot: None
    ) -> None:
        self.runner = runner
        self.harm = harm
        self.spoil = spoil
        self.seatings: list[Seating] = []
        self.notes: list[Note] = []
        self.damaged: set[int] = set()
        self.sitting: dict[int, int] = {}
        """Slot -> its latest seating's number."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)

    def seat(
        self,
        slot: int,
        tokens: Sequence[int],
        params: SamplingParams,
        most: int | None = None,
        sharing: Sharing = SHARED,
    ) -> Held:
        """See `Runner.seat`."""
        held = self.runner.seat(slot, tokens, params, most, sharing)
        self.sitting[slot] = len(self.seatings)
        self.seatings.append(Seating(slot, tuple(tokens), held, len(self.notes)))
        self.damage(self.seatings[-1])
        return held

    def step(self, windows: Sequence[Window]) -> list[Stepped]:
        """See `Runner.step`."""
        note = Note()
        for window in windows:
            number = self.sitting[window.slot]
            if window.start < len(self.seatings[number].tokens):
                note.reading[number] = len(window.tokens)
            else:
                note.decoding.append(number)
        stepped = self.runner.step(windows)
        self.notes.append(note)
        self.damage(note)
        return stepped

    def damage(self, seen: Seating | Note) -> None:
        """Whatever `harm` wants."""
        for number in self.harm(self, seen):
            if number not in self.damaged:
                self.damaged.add(number)
                self.spoil(self.runner, self.slot(number))

    @property
    def latest(self) -> int:
        """The number of the last seating."""
        return len(self.seatings) - 1

    def slot(self, number: int) -> int:
        """Where a seating is."""
        return self.seatings[number].slot

    def seatings_of(self, tokens: Sequence[int]) -> list[int]:
        """The numbers of a prompt's seatings; several when its read was set aside."""
        return [number for number, seating in enumerate(self.seatings) if seating.tokens == tuple(tokens)]

    def steps_of(self, tokens: Sequence[int]) -> list[int]:
        """The steps in which a prompt, or the answer to it, took part."""
        numbers = set(self.seatings_of(tokens))
        return [step for step, note in enumerate(self.notes) if numbers & {*note.decoding, *note.reading}]

    def read(self, tokens: Sequence[int]) -> int:
        """Prompt tokens that were read for it."""
        numbers = self.seatings_of(tokens)
        return sum(note.reading.get(number, 0) for note in self.notes for number in numbers)
