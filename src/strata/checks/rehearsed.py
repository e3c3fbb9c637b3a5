"""A drafter that knows the answers, and is right as often as it is told to be: to check and measure drafts with."""

from collections.abc import Mapping, Sequence

from strata.sampling.philox import uniform
from strata.speculate.drafter import Ask, Proposal


class Rehearsed:
    """Implements `Drafter` on texts (prompt and answer) that were recorded before.

    The draft of depth d is right, when those before it are, with the chance `rates[d - 1]` (the last holds from there
    on); whether it is depends on its position alone, so every run meets the same drafts, and its confidence tells
    nothing of it. Answers that differ from the texts, and those that are not among them, get no drafts.
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
            right = uniform(self.seed, (at + i) * 64 + i) < rate
            tokens.append(token if right else (token + 1) % self.vocabulary)
            sure.append(rate)
        return Proposal(tuple(tokens), tuple(sure))

    def spent(self) -> None:
        """See `Drafter.spent`: nothing to speak of."""

    def took(self) -> float:
        """See `Drafter.took`: nothing to speak of."""
        return 0.0
