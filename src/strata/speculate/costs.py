"""What steps and drafts cost, learned from those that ran; numbers in, numbers out. Pure.

A step of r rows is taken to cost base * shape(r). The base follows every step at once (contexts grow, machines warm
up); the shape is learned slowly, row count by row count, and between and beyond those from a line through them. That
includes whatever more rows bring: the distinct experts that they read above all. Where misses have a price of their own
(`price_s`, or a plan that knows it), the distinct experts that drafts add are paid on top.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

SLOPE = 0.25
"""What a row more adds to a step of one, before any was measured."""
SLOPE_WEIGHT = 2.0
"""Steps that this counts for."""
MOST_WEIGHT = 20.0
"""Steps of one row count that are remembered."""
FADE = 0.995
"""What is left of that with every other step: an unlucky measurement is tried again one day."""
KNOWN = 0.25
"""Steps, as far as they are remembered, that make a row count known."""
SURE = 4.0
"""Steps, as far as they are remembered, after which a row count need not be learned from every time."""
FAST = 0.1
"""How much of what a step tells of the base is believed."""
DRAFT_FAST = 0.25
SURPRISE = 3.0
"""A step that took longer than expected by more is taken for one that was disturbed."""


@dataclass(frozen=True, slots=True)
class Routing:
    """How many experts a step reads, where each distinct one has a price."""

    layers: int
    experts: int
    top_k: int
    price_s: float = 0.0
    """Seconds for each distinct expert that a step reads."""

    def distinct(self, rows: int) -> float:
        """Distinct experts of all layers that `rows` rows choose, were their choices independent."""
        if not self.experts:
            return 0.0
        return self.layers * self.experts * (1 - (1 - self.top_k / self.experts) ** rows)


@dataclass(slots=True)
class Seen:
    """What was learned of one row count."""

    shape: float
    weight: float = 1.0


@dataclass(slots=True)
class Costs:
    """Of one engine. `fixed_s` replaces what would be measured: seconds of a step by rows (tests, planning)."""

    routing: Routing
    fixed_s: Mapping[int, float] | None = None
    base_s: float | None = None
    seen: dict[int, Seen] = field(default_factory=dict)
    first_s: float = 0.0
    """Reading what the drafter missed, and a first draft."""
    more_s: float = 0.0
    """One draft more."""
    drafted: int = 0
    fit: tuple[float, float, float] | None = None
    """(rows, shape, slope) of the line through what was learned, until more is."""
    known_s: dict[int, float] = field(default_factory=dict)
    """`step_s` by rows, until more is learned: it is asked again and again for one step."""
    known_rows: int | None = None
    """`most_known`, until more is learned."""

    def step_s(self, rows: int) -> float:
        """Seconds of a step of `rows` rows, prices included; of a unit base before any step ran."""
        known = self.known_s.get(rows)
        if known is None:
            price = self.routing.price_s * self.routing.distinct(rows)
            if self.fixed_s is not None:
                known = self.fixed_s[rows] + price
            else:
                known = (1.0 if self.base_s is None else self.base_s) * self.shape(rows) + price
            self.known_s[rows] = known
        return known

    def most_known(self) -> int:
        """The most rows of which something is known."""
        if self.known_rows is None:
            learned = (rows for rows, seen in self.seen.items() if seen.weight >= KNOWN)
            self.known_rows = max(learned if self.fixed_s is None else self.fixed_s, default=0)
        return self.known_rows

    def sure_of(self, rows: int) -> bool:
        """Whether one more such step would change little of what is known."""
        known = self.seen.get(rows)
        return known is not None and known.weight >= SURE

    def hoped_s(self, rows: int) -> float:
        """The least that a step of more rows than are known may take: as long as one of those, but for prices."""
        most = self.most_known()
        if rows <= most or self.fixed_s is not None or not most:
            return self.step_s(rows)
        dearer = self.routing.price_s * (self.routing.distinct(rows) - self.routing.distinct(most))
        return min(self.step_s(rows), self.step_s(most) + dearer)

    def shape(self, rows: int) -> float:
        """Cost of a step of `rows` rows in units of the base."""
        known, line = self.seen.get(rows), self.line(rows)
        if known is None:
            return line
        return (known.shape * known.weight + line) / (known.weight + 1)

    def line(self, rows: int) -> float:
        """The same by the line alone."""
        if self.fit is None:
            self.fit = self._fitted()
        at, mean, slope = self.fit
        return max(mean + slope * (rows - at), 0.1 * mean)

    def _fitted(self) -> tuple[float, float, float]:
        """By weighted least squares, the slope drawn to SLOPE."""
        if not self.seen:
            return 1.0, 1.0, SLOPE
        total = sum(s.weight for s in self.seen.values())
        mean_rows = sum(r * s.weight for r, s in self.seen.items()) / total
        mean = sum(s.shape * s.weight for s in self.seen.values()) / total
        spread = sum(s.weight * (r - mean_rows) ** 2 for r, s in self.seen.items())
        along = sum(s.weight * (r - mean_rows) * (s.shape - mean) for r, s in self.seen.items())
        prior = SLOPE * mean / (1 + SLOPE * (mean_rows - 1))
        return mean_rows, mean, max(0.0, (along + SLOPE_WEIGHT * prior) / (spread + SLOPE_WEIGHT))

    def observe_step(self, rows: int, seconds: float) -> None:
        """A step of `rows` rows, none of them of prompts, took `seconds`."""
        if seconds <= 0:
            return
        if self.base_s is None:
            self.base_s = seconds / self.line(rows)
        error = seconds / (self.base_s * self.shape(rows))
        error = min(max(error, 1 / SURPRISE), SURPRISE)
        line, self.fit, self.known_rows = self.line(rows), None, None
        self.known_s.clear()
        for other in self.seen.values():
            other.weight *= FADE
        known = self.seen.get(rows)
        if known is None:
            self.seen[rows] = Seen(line * error)
            return
        self.base_s *= math.pow(error, FAST)
        known.weight = min(known.weight + 1, MOST_WEIGHT)
        known.shape *= math.pow(error, (1 - FAST) / known.weight)

    def observe_drafts(self, first_s: float, more_s: float, passes: int) -> None:
        """A drafter took `first_s` for its first pass and `more_s` for its further `passes`."""
        self.drafted += 1
        share = max(DRAFT_FAST, 1 / self.drafted)
        self.first_s += share * (min(first_s, SURPRISE * self.first_s or first_s) - self.first_s)
        if passes:
            each = more_s / passes
            share = DRAFT_FAST if self.more_s else 1.0
            self.more_s += share * (min(each, SURPRISE * self.more_s or each) - self.more_s)

    def draft_s(self, passes: int) -> float:
        """Seconds for `passes` passes of the drafter."""
        if not passes:
            return 0.0
        return self.first_s + (passes - 1) * (self.more_s or self.first_s)
