"""A drafter that knows the answers, and is right as often as it is told to be: to check and measure drafts with."""

import itertools
import operator
from collections.abc import Mapping, Sequence

from strata.sampling.philox import uniform
from strata.speculate.drafter import Ask, Proposal

SEEDS = 48
"""Looked at for fair draws."""


class Rehearsed:
    """Implements `Drafter` on texts (prompt and answer) that were recorded before.

    The draft of depth d is right, when those before it are, with the chance `rates[d - 1]` (the last holds from there
    on). Whether it is depends on its position alone, so every run meets the same drafts, and texts of one length stay
    side by side: none is left alone in the end. Confidence tells nothing of it. Answers that differ from the texts, and
    those that are not among them, get no drafts.
    """

    def __init__(self, texts: Sequence[Sequence[int]], rates: Sequence[float], vocabulary: int, seed: int = 1) -> None:
        self.texts = [tuple(text) for text in texts]
        self.rates = tuple(rates)
        self.vocabulary = vocabulary
        self.seed = seed
        self.told: dict[int, int] = {}
        """By slot: how long its sequence is."""
        self.known: dict[int, list[int]] = {}
        """By slot: numbers of the texts that its sequence is the beginning of."""
        self.made: dict[tuple[int, int, int], Proposal] = {}
        """By number of a text, position and depth: what asks for it measures drafts, and not how long it takes."""

    def begin(self, slot: int, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`."""
        self.told[slot] = 0
        start = tuple(tokens)
        self.known[slot] = [i for i, text in enumerate(self.texts) if text[: len(start)] == start]

    def rest(self, slot: int) -> None:
        """See `Drafter.rest`."""
        self.forget(slot)

    def knows(self, slot: int) -> bool:
        """See `Drafter.knows`."""
        return slot in self.told

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        """See `Drafter.extend`."""
        if slot in self.told:
            first, new = self.told[slot], tuple(tokens)
            self.told[slot] = stop = first + len(new)
            self.known[slot] = [i for i in self.known[slot] if self.texts[i][first:stop] == new]

    def forget(self, slot: int) -> None:
        """See `Drafter.forget`."""
        self.told.pop(slot, None)
        self.known.pop(slot, None)

    def propose(self, asks: Mapping[int, Ask]) -> dict[int, Proposal]:
        """See `Drafter.propose`."""
        found = {}
        for slot, ask in asks.items():
            at = self.told[slot]
            number = next((i for i in self.known[slot] if self.texts[i][at : at + 1] == (ask.pending,)), None)
            if number is not None and len(self.texts[number]) > at + 1:
                key = (number, at + 1, ask.depth)
                found[slot] = self.made.get(key) or self.made.setdefault(key, self._drafts(*key))
        return found

    def _drafts(self, number: int, at: int, depth: int) -> Proposal:
        tokens, sure = [], []
        for i, token in enumerate(self.texts[number][at : at + depth]):
            rate = self.rates[min(i, len(self.rates) - 1)]
            right = is_right(self.seed, at + i, i, rate)
            tokens.append(token if right else (token + 1) % self.vocabulary)
            sure.append(rate)
        return Proposal(tuple(tokens), tuple(sure))

    def spent(self) -> None:
        """See `Drafter.spent`: nothing to speak of."""

    def took(self) -> float:
        """See `Drafter.took`: nothing to speak of."""
        return 0.0


def is_right(seed: int, position: int, place: int, rate: float) -> bool:
    """Whether the draft at `position` is right that is `place` drafts behind a step's first."""
    return uniform(seed, position * 64 + place) < rate


def fair_seed(prompt: int, whole: int, rates: Sequence[float]) -> int:
    """The seed whose drafts bring most nearly what `rates` promise, whatever the depth, between two lengths.

    A hundred tokens are some forty draws, and those of one depth may bring 10% more than is to be expected.
    """
    promised: list[float] = list(itertools.accumulate(rates, operator.mul))

    def unfair(seed: int) -> float:
        found = (tokens_a_step(seed, prompt, whole, rates[:depth]) for depth in range(1, len(rates) + 1))
        return max(abs(brought / (1 + sum(promised[:depth])) - 1) for depth, brought in enumerate(found, 1))

    return min(range(1, SEEDS + 1), key=unfair)


def tokens_a_step(seed: int, prompt: int, whole: int, rates: Sequence[float]) -> float:
    """What as many drafts as there are `rates` bring in each step; the text goes on as long as the last one does."""
    at, steps = prompt, 0
    while at < whole - 1:
        said = 1
        while said <= len(rates) and is_right(seed, at + said, said - 1, rates[said - 1]):
            said += 1
        at, steps = at + said, steps + 1
    return (at - prompt) / steps
