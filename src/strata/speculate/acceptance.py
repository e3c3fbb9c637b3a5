"""How likely drafts are right, learned from those that were checked. Pure.

A proposal's confidence is the drafter's own measure, and means different things for different drafters, texts and
sampling settings. So what counts is how often drafts of that confidence turned out right: of this sequence lately, for
lack of those of all sequences, and for lack of those what the drafter says.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

BUCKETS = 8
ALL_WEIGHT = 4.0
"""Checked drafts that the drafter's own measure counts for."""
SLOT_WEIGHT = 8.0
"""Checked drafts that those of all sequences count for, against those of one."""
FADE = 0.97
"""What a checked draft counts for after the next one."""
ALL_FADE = 1 - (1 - FADE) / 8
"""The same among those of all sequences."""
LEAST = 0.1
"""Drafts with a smaller chance are not worth a thought."""
DEPTHS = 16
"""Deeper drafts are counted with these."""


@dataclass(slots=True)
class Rate:
    """How often something was right, the past fading."""

    right: float = 0.0
    seen: float = 0.0

    def estimate(self, prior: float, weight: float) -> float:
        """The share of those that were right, with `weight` more at the share `prior`."""
        return (self.right + prior * weight) / (self.seen + weight)


def rates(count: int) -> list[Rate]:
    """Of `count` things of which nothing is known."""
    return [Rate() for _ in range(count)]


@dataclass(slots=True)
class Rates:
    """By what is known before a draft is made (its depth), and after (its confidence too)."""

    by_depth: list[Rate] = field(default_factory=lambda: rates(DEPTHS + 1))
    by_confidence: list[Rate] = field(default_factory=lambda: rates(2 * BUCKETS))
    """First drafts, then further ones."""

    def add(self, checked: Iterable[tuple[int, int]], accepted: int, fade: float) -> None:
        """Drafts by (depth, bucket), of which those up to the depth `accepted` were right."""
        for depth, at in checked:
            right = depth <= accepted
            for rate in (self.by_depth[depth if depth < DEPTHS else DEPTHS], self.by_confidence[at]):
                rate.right = rate.right * fade + right
                rate.seen = rate.seen * fade + 1


def bucket(depth: int, confidence: float) -> int:
    """Drafts that are counted together: first ones and further ones, by confidence."""
    at = int(confidence * BUCKETS)
    return (at if at < BUCKETS else BUCKETS - 1) + (BUCKETS if depth > 1 else 0)


class Acceptance:
    """Of one drafter: what was learned of each slot's sequence, and of all."""

    def __init__(self, prior: Sequence[float]) -> None:
        """`prior[d - 1]` is the chance of a draft of depth d before anything is known; the last holds from there on."""
        self.prior = tuple(prior)
        self.all = Rates()
        self.slots: dict[int, Rates] = defaultdict(Rates)

    def forget(self, slot: int) -> None:
        """The slot's sequence is over."""
        self.slots.pop(slot, None)

    def expected(self, slot: int, depth: int) -> float:
        """The chance that a draft of `depth` will be right when those before it are, before it is made."""
        return self.expectations(slot, depth)[-1]

    def expectations(self, slot: int, depth: int) -> list[float]:
        """The same of every depth up to `depth`. Little is known of depths that are not reached often: what the depth
        before them is like counts for them too.
        """
        common, own, found = self.all.by_depth, self.slots[slot].by_depth, []
        chance, before = 1.0, 1.0
        for at in range(1, depth + 1):
            prior = self.prior[min(at, len(self.prior)) - 1]
            start = min(1.0, chance * prior / before)
            known = common[min(at, DEPTHS)].estimate(start, ALL_WEIGHT)
            chance, before = own[min(at, DEPTHS)].estimate(known, SLOT_WEIGHT), prior
            found.append(chance)
        return found

    def chances(self, slot: int, confidence: Sequence[float]) -> tuple[float, ...]:
        """Of every draft the chance that it and all before it are right, as long as that is LEAST or more."""
        everywhere, here = self.all.by_confidence, self.slots[slot].by_confidence
        product, found = 1.0, []
        for depth, sure in enumerate(confidence, 1):
            at = bucket(depth, sure)
            common, own = everywhere[at], here[at]  # Rate.estimate twice: calls are most of what choosing takes
            known = (common.right + sure * ALL_WEIGHT) / (common.seen + ALL_WEIGHT)
            product *= (own.right + known * SLOT_WEIGHT) / (own.seen + SLOT_WEIGHT)
            if product < LEAST:
                break
            found.append(product)
        return tuple(found)

    def observe(self, slot: int, confidence: Sequence[float], accepted: int) -> None:
        """Drafts of these confidences were made, and the first `accepted` of them turned out right."""
        checked = [(depth, bucket(depth, sure)) for depth, sure in enumerate(confidence[: accepted + 1], 1)]
        self.all.add(checked, accepted, ALL_FADE)
        self.slots[slot].add(checked, accepted, FADE)

    def values(self) -> Mapping[str, object]:
        """Plain values: the share of right drafts by depth, of all sequences."""
        return {str(d): round(r.right / r.seen, 3) for d, r in enumerate(self.all.by_depth) if r.seen}
