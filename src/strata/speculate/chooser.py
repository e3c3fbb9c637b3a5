"""Which drafts are worth checking in the next step: every drafter is asked, the most expected tokens per second win.

A drafter that costs nothing to speak of (lookup) is asked first. One that runs a model (costly.py) is asked where more
is to be expected of it. Then the rows of the step are given to drafts by depth.best_depths. What was proposed is
compared with what came, also when it was not checked: so what is not used now is known when it becomes worth it. Pure.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from strata.speculate.acceptance import Acceptance
from strata.speculate.costly import MARGIN, Costly, gain
from strata.speculate.costs import Costs
from strata.speculate.depth import Chances, Depths, best_depths
from strata.speculate.drafter import Ask, Drafter
from strata.speculate.looks import Looks
from strata.speculate.offer import Counts, Found, Offer, common
from strata.speculate.rest import Rest
from strata.speculate.trials import Trials

CHEAP_MOST = 16
"""Drafts of one slot at most."""
MARGIN_TOGETHER = 1.10
"""What drafts must promise over doing without where several slots decode: whoever ends sooner leaves the others with
fewer to share a step with. Measured with four slots: 1.15 let go of drafts that brought 1.10 to 1.17, whenever a few
steps were disturbed; with 1.05 drafts that promised 1.05 to 1.08 lost 2 to 5%."""

QUIET = 8
"""Steps in which no draft was worth checking, and no costly drafter read, after which not every step is thought of."""
NAP = 4
"""Steps that are not, then, between two that are: doing without drafts must cost next to nothing."""


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
        self.fixed = fixed
        self.cheap = {name: drafter for name, drafter in drafters.items() if name != costly}
        self.acceptance = {name: Acceptance((0.7, 0.6, 0.5) if name == costly else (0.5,)) for name in drafters}
        self.counts = {name: Counts() for name in drafters}
        self.costly: Costly | None = None
        if costly is not None:
            self.costly = Costly(costly, drafters[costly], self.acceptance[costly], costs)
        self.trials = Trials()
        self.looks = Looks()
        self.offers: defaultdict[int, Offer] = defaultdict(Offer)
        self.last: Depths | None = None
        """The last choice, for whoever looks on."""
        self.quiet = 0
        """Steps since drafts were checked, or a sequence began."""
        self.nap = 0
        """Steps before which `propose` need not be asked."""

    # --- sequences -------------------------------------------------------------------------------------------

    def begin(self, slot: int, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`."""
        self.forget(slot)
        self.quiet = self.nap = 0
        for drafter in self.cheap.values():
            drafter.begin(slot, tokens)
        if self.costly is not None:
            self.costly.begin(slot, tokens, always=self.fixed is not None)

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        """See `Drafter.extend`."""
        for drafter in self.drafters.values():
            drafter.extend(slot, tokens)

    def forget(self, slot: int) -> None:
        """See `Drafter.forget`."""
        self.offers.pop(slot, None)
        for acceptance in self.acceptance.values():
            acceptance.forget(slot)
        for drafter in self.drafters.values():
            drafter.forget(slot)
        if self.costly is not None:
            self.costly.forget(slot)

    # --- before a step ---------------------------------------------------------------------------------------

    def naps(self) -> bool:
        """Whether to do without `propose` before this step."""
        if not self.nap:
            return False
        self.nap -= 1
        return True

    def propose(self, caps: Mapping[int, int], pending: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """Drafts to check in the next step, at most caps[slot] for each of these slots, which all decode.

        `pending` are their newest tokens, which the drafters have not been told of.
        """
        if self.offers:
            self.offers.clear()
        best, costly = self._ask_cheap(caps, pending), self.costly
        if self.fixed is not None:
            return self._fixed(self.fixed, caps, pending, best)
        slots = len(caps)
        if self.looks.due(slots):
            self.last = Depths({}, float(slots), self.costs.step_s(slots))
            self.looks.ran(slots, False)
            return {}
        reads = costly is not None and bool(costly.reading)
        if not reads:
            self.quiet += 1
            self.nap = NAP if self.quiet > QUIET else 0
            if not best:
                self.last = None
                return {}
        plain = Depths({}, float(slots), self.costs.step_s(slots))
        if costly is not None and reads:
            costly.pay(plain.seconds)
            row = plain.rate * (self.costs.step_s(slots + 1) - plain.seconds)
            for slot, proposal in costly.propose(caps, pending, best, row).items():
                self.offers[slot].made[costly.name] = proposal
                chances = costly.acceptance.chances(slot, proposal.confidence)[: caps[slot]]
                if slot not in best or gain(best[slot].chances, row) < gain(chances, row):
                    best[slot] = Found(costly.name, proposal, chances)
        self.last = self._best(slots, {slot: found.chances for slot, found in best.items()}, plain)
        self.looks.ran(slots, bool(self.last.drafts))
        return self._offered(self.last, best, plain)

    def stepped(self, slots: int, rows: int, seconds: float) -> None:
        """A step of so many slots and rows, none of them of prompts, took `seconds`."""
        if rows == slots:
            self.looks.saw(slots, seconds, self.costs.step_s(rows))
        self.costs.observe_step(rows, seconds)

    def needs(self, rows: int) -> bool:
        """Whether to learn from the step of so many rows that ran, even if such are well known."""
        return not self.costs.sure_of(rows) or (self.last is not None and not self.last.drafts)

    def _ask_cheap(self, caps: Mapping[int, int], pending: Mapping[int, int]) -> dict[int, Found]:
        """The best proposal of each slot that costs nothing."""
        best: dict[int, Found] = {}
        asks = {slot: Ask(pending[slot], min(cap, CHEAP_MOST), _always) for slot, cap in caps.items()}
        for name, drafter in self.cheap.items():
            for slot, proposal in drafter.propose(asks).items():
                self.offers[slot].made[name] = proposal
                chances = self.acceptance[name].chances(slot, proposal.confidence)[: caps[slot]]
                if slot not in best or sum(chances) > sum(best[slot].chances):
                    best[slot] = Found(name, proposal, chances)
        return best

    def _best(self, slots: int, chances: Chances, plain: Depths) -> Depths:
        """By what steps cost; or a trial of more rows than were ever run, where that might be better still.

        What promises something, but less than the margin, is run within the same allowance: so a few disturbed steps
        are not believed for long.
        """
        margin = MARGIN if slots == 1 else MARGIN_TOGETHER
        best, most = best_depths(slots, chances, self.costs.step_s), self.costs.most_known()
        self.trials.step()
        if best.rate <= margin * plain.rate:
            short = best.seconds / plain.seconds - best.tokens / (margin * slots)
            if not best.drafts or not self.trials.take(short):
                best = plain
        if slots + sum(map(len, chances.values())) <= most:
            return best
        if most and self.costs.step_s(most) / plain.seconds - 1 > self.trials.left:
            return best  # more rows cost no less, and so much is not left
        hoped = best_depths(slots, chances, self.costs.hoped_s)
        rows = slots + sum(hoped.drafts.values())
        if hoped.rate <= margin * best.rate or rows <= most:
            return best
        seconds = self.costs.step_s(rows)
        return hoped._replace(seconds=seconds) if self.trials.take(seconds / plain.seconds - 1) else best

    def _offered(self, chosen: Depths, best: Mapping[int, Found], plain: Depths) -> dict[int, tuple[int, ...]]:
        """The chosen drafts, and what each row and token of them is worth."""
        if not chosen.drafts:
            return {}
        self.quiet = self.nap = 0
        slots, rows = round(plain.tokens), sum(chosen.drafts.values())
        row = (self.costs.step_s(slots + rows) / plain.seconds - 1) / rows
        for slot in chosen.drafts:
            self.offers[slot].row, self.offers[slot].token = row, 1 / slots
        return {slot: self._offer(slot, best[slot], count) for slot, count in chosen.drafts.items()}

    def _offer(self, slot: int, found: Found, count: int) -> tuple[int, ...]:
        offer = self.offers[slot]
        offer.source, offer.checked = found.drafter, min(count, len(found.proposal.tokens))
        return found.proposal.tokens[:count]

    def _fixed(
        self, most: int, caps: Mapping[int, int], pending: Mapping[int, int], best: Mapping[int, Found]
    ) -> dict[int, tuple[int, ...]]:
        """As many drafts as there should be: looked up where that is nearly sure, else the costly drafter's."""
        depths = {slot: min(cap, most) for slot, cap in caps.items()}
        chosen = {s: f for s, f in best.items() if self.costly is None or f.proposal.confidence[0] >= 0.7}
        if self.costly is not None:
            name, drafter = self.costly.name, self.costly.drafter
            left = [slot for slot in depths if slot not in chosen and drafter.knows(slot)]
            asks = {slot: Ask(pending[slot], depths[slot], _always) for slot in left}
            for slot, proposal in (drafter.propose(asks) if asks else {}).items():
                self.offers[slot].made[name] = proposal
                chosen[slot] = Found(name, proposal, ())
        return {slot: self._offer(slot, found, depths[slot]) for slot, found in chosen.items()}

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
            if self.costly is not None and offer.source == self.costly.name:
                self.costly.rest.add(accepted * offer.token - offer.checked * offer.row)

    def values(self) -> dict[str, object]:
        """Plain values: what was offered and accepted by drafter and depth, and what the choice goes by."""
        rest = self.costly.rest if self.costly is not None else Rest()
        shape = {str(rows): round(self.costs.shape(rows), 3) for rows in sorted(self.costs.seen)}
        return {
            "depth": "auto" if self.fixed is None else self.fixed,
            "drafters": {
                name: {
                    **counts.values(),
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
            "rests": rest.rests,
            "balance": round(rest.balance, 2),
            "last": {} if self.last is None else {str(slot): count for slot, count in self.last.drafts.items()},
        }


def _always(confidence: Sequence[float]) -> bool:
    return True
