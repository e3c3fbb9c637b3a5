"""The drafter that runs a model: for which slots it reads along, when it is asked, and how deep it goes. Pure.

It is asked where more is to be expected of it than of what costs nothing, and goes on as long as a further draft is
likely to bring more than its time. Where it does not pay it is tried again now and then, and at last rests (rest.py).
"""

from collections.abc import Mapping, Sequence
from functools import partial

from strata.speculate.acceptance import Acceptance
from strata.speculate.costs import Costs
from strata.speculate.depth import best_depths, chain
from strata.speculate.drafter import Ask, Drafter, Proposal
from strata.speculate.offer import Found
from strata.speculate.rest import Rest

MOST = 5
"""Drafts of one slot at most."""
PATIENCE = 8
"""Steps, or more, after which it is tried again where it does not pay."""
TRIAL_SHARE = 0.01
"""Of the time, that such trials may take."""
MARGIN = 1.03
"""What drafts must promise over doing without: they also cost what no step shows."""


class Costly:
    """Of one engine, beside drafters that cost nothing to speak of."""

    def __init__(self, name: str, drafter: Drafter, acceptance: Acceptance, costs: Costs) -> None:
        self.name = name
        self.drafter = drafter
        self.acceptance = acceptance
        self.costs = costs
        self.idle: dict[int, int] = {}
        """By slot: steps without it."""
        self.rest = Rest()
        self.reading: set[int] = set()
        """Slots whose sequences it reads along with."""

    def begin(self, slot: int, tokens: Sequence[int], always: bool) -> None:
        """See `Drafter.begin`; a sequence that it need not read is left alone while it rests, but for `always`."""
        self.idle[slot] = 0
        if always or self.rest.reads_next():
            self.drafter.begin(slot, tokens)
            self.reading.add(slot)
        else:
            self.drafter.rest(slot)

    def forget(self, slot: int) -> None:
        """See `Drafter.forget`."""
        self.idle.pop(slot, None)
        self.reading.discard(slot)

    def pay(self, plain_s: float) -> None:
        """Take its time off its account, and what no clock of it shows; when that is empty it stops reading at once.

        `plain_s` are the seconds of a step without drafts.
        """
        if self.rest.add(1 - MARGIN - self.drafter.took() / plain_s):
            for slot in self.reading:
                self.drafter.rest(slot)
            self.reading.clear()

    def propose(
        self, caps: Mapping[int, int], pending: Mapping[int, int], best: Mapping[int, Found], row: float
    ) -> dict[int, Proposal]:
        """Of the slots for which it is worth its time, or due for a trial; `row` as `worth` has it."""
        known = [slot for slot in caps if slot in self.reading and self.drafter.knows(slot)]
        if not known:
            return {}
        slots = len(caps)
        worth = self.worth(known, caps, best, row)
        due = self.due([slot for slot in known if slot not in worth], self.costs.step_s(slots))
        depths = {slot: min(caps[slot], MOST) for slot in worth} | dict.fromkeys(due, 1)
        if not depths:
            return {}
        rate = slots / self.costs.step_s(slots)
        least = row + rate * (self.costs.draft_s(2) - self.costs.draft_s(1))
        asks = {s: Ask(pending[s], depth, partial(self.goes_on, s, least)) for s, depth in depths.items()}
        found = self.drafter.propose(asks)
        if (spent := self.drafter.spent()) is not None:
            self.costs.observe_drafts(*spent)
        for slot in found:
            self.idle[slot] = 0
        return found

    def goes_on(self, slot: int, least: float, confidence: Sequence[float]) -> bool:
        """Whether one more draft is likely to bring `least` tokens, after some of these confidences."""
        so_far = self.acceptance.chances(slot, confidence)
        if len(so_far) < len(confidence):
            return False
        return so_far[-1] * self.acceptance.expected(slot, len(confidence) + 1) > least

    def worth(
        self, known: Sequence[int], caps: Mapping[int, int], best: Mapping[int, Found], row: float
    ) -> dict[int, tuple[float, ...]]:
        """The slots for which it promises more than what costs nothing, and its time too, with its drafts' chances.

        `row` are the tokens that one row more must bring, to pay.
        """
        worth = {}
        for slot in known:
            chances = chain(self.acceptance.expectations(slot, min(caps[slot], MOST)))
            if gain(chances, row) > (gain(best[slot].chances, row) if slot in best else 0.0):
                worth[slot] = chances
        if not worth:
            return {}
        step_s, slots = self.costs.step_s, len(caps)
        others = {slot: found.chances for slot, found in best.items() if slot not in worth}
        with_it = max(
            best_depths(
                slots,
                {**others, **{slot: chances[:depth] for slot, chances in worth.items()}},
                step_s,
                self.costs.draft_s(depth),
            ).rate
            for depth in range(1, MOST + 1)
        )
        without = best_depths(slots, {slot: found.chances for slot, found in best.items()}, step_s).rate
        return worth if with_it > MARGIN * without else {}

    def due(self, slots: Sequence[int], plain_s: float) -> list[int]:
        """Of the slots without it those for which it is tried again: the text may have changed."""
        wait = max(PATIENCE, self.costs.draft_s(1) / (TRIAL_SHARE * plain_s))
        for slot in slots:
            self.idle[slot] += 1
        return [slot for slot in slots if self.idle[slot] >= wait]


def gain(chances: Sequence[float], row: float) -> float:
    """Tokens that drafts are expected to bring beyond what their rows cost."""
    return sum(chance - row for chance in chances if chance > row)
