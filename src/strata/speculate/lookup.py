"""Drafts from the conversation itself: where its last tokens stood before, what followed may follow again. Pure.

An index of every run of `GRAM` tokens leads to the place where it ended last, and each place to the one before it. Of
those the one whose past agrees longest with the present is gone on from (the latest among equals): copying, quoting and
editing repeat long runs. It is told of and asked for every token, so numbers are all that it makes.
"""

from collections.abc import Mapping, Sequence

from strata.speculate.drafter import Ask, Proposal

GRAM = 3
"""Tokens that must agree at least."""
PLACES = 8
"""Places of a run that are looked at: the latest."""
LONGEST = 32
"""A longer agreement says no more."""
DOUBT = 4
"""Tokens of agreement at which a draft is taken to be as likely right as wrong."""
BITS = 32
"""Of a token, in the number that stands for a run."""
BEFORE = (1 << BITS * (GRAM - 1)) - 1
"""The tokens of a run that one more is put behind."""


class SuffixIndex:
    """One growing sequence and its runs."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.run = 0
        """The last GRAM - 1 tokens as one number."""
        self.last: dict[int, int] = {}
        """Run -> the place after its last one."""
        self.earlier: list[int] = []
        """Of the place after each token, the one before it with the same run; 0 where there is none."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Append `tokens`."""
        text, last, earlier, run = self.tokens, self.last, self.earlier, self.run
        for token in tokens:
            run = (run & BEFORE) << BITS | token
            text.append(token)
            earlier.append(last.get(run, 0))
            last[run] = len(text)
        self.run = run

    def find(self, pending: int) -> tuple[int, int]:
        """(position after the best earlier place of the sequence's end with `pending`, tokens that agree); (0, 0) when
        there is none.
        """
        place = self.last.get((self.run & BEFORE) << BITS | pending, 0)
        if not place:  # the rule, with every token: nothing else may cost anything then
            return 0, 0
        now = [*self.tokens[-LONGEST:], pending]
        best, longest, left = 0, GRAM - 1, PLACES
        while place and left:
            agree = self._agreement(now, place)
            if agree > longest:
                best, longest = place, agree
            place, left = self.earlier[place - 1], left - 1
        return (best, longest) if best else (0, 0)

    def _agreement(self, now: Sequence[int], place: int) -> int:
        """Counted from the first token on: the numbers of the first runs have less in them than tokens."""
        most, count = min(len(now), place, LONGEST), 0
        while count < most and now[-1 - count] == self.tokens[place - 1 - count]:
            count += 1
        return count

    def after(self, place: int, count: int, pending: int) -> tuple[int, ...]:
        """Up to `count` tokens from `place` on; a repetition that reaches the present goes on with itself."""
        found: list[int] = []
        end = len(self.tokens)
        for at in range(place, place + count):
            if at < end:
                found.append(self.tokens[at])
            else:
                found.append(pending if at == end else found[at - end - 1])
        return tuple(found)


class LookupDrafter:
    """Implements `Drafter` on an index per slot. The longer the agreement, the more confident it is."""

    def __init__(self) -> None:
        self.indexes: dict[int, SuffixIndex] = {}

    def begin(self, slot: int, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`: an empty index; the prompt joins it as it is read."""
        self.indexes[slot] = SuffixIndex()

    def rest(self, slot: int) -> None:
        """See `Drafter.rest`."""
        self.indexes.pop(slot, None)

    def knows(self, slot: int) -> bool:
        """See `Drafter.knows`."""
        return slot in self.indexes

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        """See `Drafter.extend`."""
        if slot in self.indexes:
            self.indexes[slot].extend(tokens)

    def forget(self, slot: int) -> None:
        """See `Drafter.forget`."""
        self.indexes.pop(slot, None)

    def propose(self, asks: Mapping[int, Ask]) -> dict[int, Proposal]:
        """See `Drafter.propose`."""
        found = {}
        for slot, ask in asks.items():
            index = self.indexes.get(slot)
            if index is None:
                continue
            place, agree = index.find(ask.pending)
            if agree:
                tokens = index.after(place, ask.depth, ask.pending)
                agreed = range(agree, agree + len(tokens))
                found[slot] = Proposal(tokens, tuple(count / (count + DOUBT) for count in agreed))
        return found

    def spent(self) -> None:
        """See `Drafter.spent`: microseconds."""

    def took(self) -> float:
        """See `Drafter.took`: nothing to speak of."""
        return 0.0
