"""Which drafts are worth checking in the next step: every drafter is asked, the most expected tokens per second win.

A drafter that costs nothing to speak of (lookup) is asked first. One that runs a model (`costly`) is asked where more
is to be expected of it, and goes on as long as a further draft is likely to bring more than its time. Then the rows of
the step are given to drafts by depth.best_depths. What was proposed is compared with what came, also when it was not
checked: so what is not used now is known when it becomes worth it. Pure.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from strata.speculate.acceptance import Acceptance
from strata.speculate.costs import Costs
from strata.speculate.depth import Chances, Depths, best_depths, chain
from strata.speculate.drafter import Ask, Drafter, Proposal
from strata.speculate.offer import Counts, Found, Offer, common
from strata.speculate.rest import Rest
from strata.speculate.trials import Trials

CHEAP_MOST = 16
"""Drafts of one slot at most."""
COSTLY_MOST = 5
PATIENCE = 8
"""Steps, or more, after which a costly drafter that does not pay is tried again."""
TRIAL_SHARE = 0.01
"""Of the time, that such trials may take."""
MARGIN = 1.03
"""What drafts must promise over doing without: they also cost what no step shows."""
MARGIN_TOGETHER = 1.15
"""The same where several slots decode: whoever ends sooner leaves the others with fewer to share a step with."""


class Chooser:
    """Asks drafters for the slots of an engine, and learns from every step."""

    def __init__(
        self, drafters: Mapping[str, Drafter], costs: Costs, costly: str | None = None, fixed: int | None = None
    ) -> None:
        """`drafters` by name; `costly` names the one that costs time. `fixed` drafts are made for every slot and step
        (as far as they fit); None: as many as pay.
        """
        self.drafters = dict(drafters)
        self.costs = costs
        self.costly = costly
        self.fixed = fixed
        self.cheap = [name for name in drafters if name != costly]
        self.acceptance = {name: Acceptance((0.7, 0.6, 0.5) if name == costly else (0.5,)) for name in drafters}
        self.counts = {name: Counts() for name in drafters}
        self.idle: dict[int, int] = {}
        """By slot: steps without the costly drafter."""
        self.rest = Rest()
        self.reading: set[int] = set()
        """Slots whose sequences the costly drafter reads along with."""
        self.trials = Trials()
        self.offers: defaultdict[int, Offer] = defaultdict(Offer)
        self.last: Depths | None = None
        """The last choice, for whoever looks on."""

    # --- sequences -------------------------------------------------------------------------------------------

    def begin(self, slot: int, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`."""
        self.forget(slot)
        self.idle[slot] = 0
        for name, drafter in self.drafters.items():
            if name == self.costly and self.fixed is None and not self.rest.reads_next():
                drafter.rest(slot)
            else:
                drafter.begin(slot, tokens)
                self.reading |= {slot} if name == self.costly else set()

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        """See `Drafter.extend`."""
        for drafter in self.drafters.values():
            drafter.extend(slot, tokens)

    def forget(self, slot: int) -> None:
        """See `Drafter.forget`."""
        self.offers.pop(slot, None)
        self.idle.pop(slot, None)
        self.reading.discard(slot)
        for acceptance in self.acceptance.values():
            acceptance.forget(slot)
        for drafter in self.drafters.values():
            drafter.forget(slot)

    # --- before a step ---------------------------------------------------------------------------------------

    def propose(self, caps: Mapping[int, int], pending: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """Drafts to check in the next step, at most caps[slot] for each of these slots, which all decode.

        `pending` are their newest tokens, which the drafters have not been told of.
        """
        self.offers.clear()
        best = self._ask_cheap(caps, pending)
        if self.fixed is not None:
            return self._fixed(caps, pending, best)
        if not best and not self.reading:
            self.last = None
            return {}
        plain = Depths({}, float(len(caps)), self.costs.step_s(len(caps)))
        self._pay(plain)
        known = [] if self.costly is None else [s for s in caps if self.drafters[self.costly].knows(s)]
        costly = self._costly_slots(known, caps, best, plain)
        for slot, proposal in self._ask_costly(costly, pending, plain).items():
            if slot in best and self._gain(best[slot], plain) >= self._gain((self.costly or "", proposal, slot), plain):
                continue
            best[slot] = (self.costly or "", proposal, slot)
        chances = {slot: self._chances(found)[: caps[slot]] for slot, found in best.items()}
        self.last = self._best(len(caps), chances, plain)
        rows = sum(self.last.drafts.values())
        row = (self.costs.step_s(len(caps) + rows) / plain.seconds - 1) / rows if rows else 0.0
        for slot in self.last.drafts:
            self.offers[slot].row, self.offers[slot].token = row, 1 / len(caps)
        return {slot: self._offer(best[slot], count) for slot, count in self.last.drafts.items()}

    def _pay(self, plain: Depths) -> None:
        """Take the costly drafter's time off its account, and what no clock of it shows; when that is empty it stops
        reading at once.
        """
        if self.costly is None or self.fixed is not None or not self.reading:
            return
        drafter = self.drafters[self.costly]
        if self.rest.add(1 - MARGIN - drafter.took() / plain.seconds):
            for slot in self.reading:
                drafter.rest(slot)
            self.reading.clear()

    def _best(self, slots: int, chances: Chances, plain: Depths) -> Depths:
        """By what steps cost; or a trial of more rows than were ever run, where that might be better still."""
        margin = MARGIN if slots == 1 else MARGIN_TOGETHER
        best = best_depths(slots, chances, self.costs.step_s)
        if best.rate <= margin * plain.rate:
            best = plain
        self.trials.step()
        if slots + sum(map(len, chances.values())) <= self.costs.most_known():
            return best
        hoped = best_depths(slots, chances, self.costs.hoped_s)
        rows = slots + sum(hoped.drafts.values())
        if hoped.rate <= margin * best.rate or rows <= self.costs.most_known():
            return best
        seconds = self.costs.step_s(rows)
        return replace(hoped, seconds=seconds) if self.trials.take(seconds / plain.seconds - 1) else best

    def _offer(self, found: Found, count: int) -> tuple[int, ...]:
        name, proposal, slot = found
        offer = self.offers[slot]
        offer.source, offer.checked = name, min(count, len(proposal.tokens))
        return proposal.tokens[:count]

    def _ask_cheap(self, caps: Mapping[int, int], pending: Mapping[int, int]) -> dict[int, Found]:
        """The best proposal of each slot that costs nothing."""
        best: dict[int, Found] = {}
        for name in self.cheap:
            asks = {slot: Ask(pending[slot], min(cap, CHEAP_MOST), _always) for slot, cap in caps.items()}
            for slot, proposal in self.drafters[name].propose(asks).items():
                self.offers[slot].made[name] = proposal
                found = (name, proposal, slot)
                if slot in best and sum(self._chances(found)) <= sum(self._chances(best[slot])):
                    continue
                best[slot] = found
        return best

    def _chances(self, found: Found) -> tuple[float, ...]:
        name, proposal, slot = found
        return self.acceptance[name].chances(slot, proposal.confidence)

    def _row_tokens(self, plain: Depths) -> float:
        """Tokens that one row more must bring, to pay."""
        slots = round(plain.tokens)
        return plain.rate * (self.costs.step_s(slots + 1) - self.costs.step_s(slots))

    def _gain(self, found: Found, plain: Depths) -> float:
        """Tokens that a proposal is expected to bring beyond what its rows cost."""
        row = self._row_tokens(plain)
        return sum(max(0.0, chance - row) for chance in self._chances(found))

    def _costly_slots(
        self, known: Sequence[int], caps: Mapping[int, int], best: Mapping[int, Found], plain: Depths
    ) -> dict[int, int]:
        """Slots for which the costly drafter is worth its time, with the depth it may go to; or is due for a trial."""
        if not known:
            return {}
        expected = {slot: self._expected(slot, min(caps[slot], COSTLY_MOST)) for slot in known}
        row, worth = self._row_tokens(plain), {}
        for slot, chances in expected.items():
            other = self._gain(best[slot], plain) if slot in best else 0.0
            if sum(max(0.0, chance - row) for chance in chances) > other:
                worth[slot] = chances
        if worth:
            cheap = {slot: self._chances(found)[: caps[slot]] for slot, found in best.items() if slot not in worth}
            with_it = max(
                best_depths(
                    len(caps),
                    {**cheap, **{slot: chances[:depth] for slot, chances in worth.items()}},
                    self.costs.step_s,
                    self.costs.draft_s(depth),
                ).rate
                for depth in range(1, COSTLY_MOST + 1)
            )
            rest = {slot: self._chances(found)[: caps[slot]] for slot, found in best.items()}
            if with_it <= MARGIN * best_depths(len(caps), rest, self.costs.step_s).rate:
                worth = {}
        due = self._due(set(known) - set(worth), plain)
        return {slot: min(caps[slot], COSTLY_MOST) for slot in worth} | dict.fromkeys(due, 1)

    def _expected(self, slot: int, depth: int) -> tuple[float, ...]:
        assert self.costly is not None
        return chain(self.acceptance[self.costly].expectations(slot, depth))

    def _due(self, slots: set[int], plain: Depths) -> list[int]:
        """Of the slots without the costly drafter those for which it is tried again: the text may have changed."""
        wait = max(PATIENCE, self.costs.draft_s(1) / (TRIAL_SHARE * plain.seconds))
        for slot in slots:
            self.idle[slot] += 1
        return [slot for slot in slots if self.idle[slot] >= wait]

    def _ask_costly(self, depths: Mapping[int, int], pending: Mapping[int, int], plain: Depths) -> dict[int, Proposal]:
        if not depths or self.costly is None:
            return {}
        name, drafter = self.costly, self.drafters[self.costly]
        row = self._row_tokens(plain) + plain.rate * self.costs.draft_s(2) - plain.rate * self.costs.draft_s(1)

        def goes_on(slot: int, confidence: Sequence[float]) -> bool:
            acceptance = self.acceptance[name]
            so_far = acceptance.chances(slot, confidence)
            if len(so_far) < len(confidence):
                return False
            return so_far[-1] * acceptance.expected(slot, len(confidence) + 1) > row

        asks = {slot: Ask(pending[slot], depth, partial(goes_on, slot)) for slot, depth in depths.items()}
        found = drafter.propose(asks)
        if (spent := drafter.spent()) is not None:
            self.costs.observe_drafts(*spent)
        for slot, proposal in found.items():
            self.offers[slot].made[name] = proposal
            self.idle[slot] = 0
        return found

    def _fixed(
        self, caps: Mapping[int, int], pending: Mapping[int, int], best: Mapping[int, Found]
    ) -> dict[int, tuple[int, ...]]:
        """As many drafts as there should be: looked up where that is nearly sure, else the costly drafter's."""
        assert self.fixed is not None
        depths = {slot: min(cap, self.fixed) for slot, cap in caps.items()}
        chosen: dict[int, Found] = {s: f for s, f in best.items() if self.costly is None or f[1].confidence[0] >= 0.7}
        left = {slot: Ask(pending[slot], depth, _always) for slot, depth in depths.items() if slot not in chosen}
        if self.costly is not None:
            known = {slot: ask for slot, ask in left.items() if self.drafters[self.costly].knows(slot)}
            for slot, proposal in (self.drafters[self.costly].propose(known) if known else {}).items():
                self.offers[slot].made[self.costly] = proposal
                chosen[slot] = (self.costly, proposal, slot)
        return {slot: self._offer(found, depths[slot]) for slot, found in chosen.items()}

    # --- after a step ----------------------------------------------------------------------------------------

    def checked(self, slot: int, drawn: Sequence[int]) -> None:
        """The slot's window gave these tokens: accepted drafts, and the one after them."""
        offer = self.offers.pop(slot, None)
        if offer is None or not drawn:
            return
        for name, proposal in offer.made.items():
            known = min(len(proposal.tokens), len(drawn))
            right = common(proposal.tokens, drawn)
            self.acceptance[name].observe(slot, proposal.confidence[:known], right)
        if offer.source:
            accepted = min(offer.checked, len(drawn) - 1)
            self.counts[offer.source].add(offer.checked, accepted)
            if offer.source == self.costly:
                self.rest.add(accepted * offer.token - offer.checked * offer.row)

    def values(self) -> dict[str, object]:
        """Plain values: what was offered and accepted by drafter and depth, and what the choice goes by."""
        shape = {str(rows): round(self.costs.shape(rows), 3) for rows in sorted(self.costs.seen)}
        return {
            "depth": "auto" if self.fixed is None else self.fixed,
            "drafters": {
                name: {
                    "offered": {str(depth): count for depth, count in counts.offered.items()},
                    "accepted": {str(depth): count for depth, count in counts.accepted.items()},
                    "right": self.acceptance[name].values(),
                }
                for name, counts in self.counts.items()
            },
            "costs": {
                "step_ms": round(1000 * (self.costs.base_s or 0.0), 3),
                "rows": shape,
                "first_draft_ms": round(1000 * self.costs.first_s, 3),
                "next_draft_ms": round(1000 * self.costs.more_s, 3),
                "price_us": round(1e6 * self.costs.routing.price_s, 3),
            },
            "rests": self.rest.rests,
            "balance": round(self.rest.balance, 2),
            "last": {} if self.last is None else {str(slot): count for slot, count in self.last.drafts.items()},
        }


def _always(confidence: Sequence[float]) -> bool:
    return True
