"""Whether two sides of a measurement differ: medians, their ratio, and a rule for what is noise."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

CHANCE = 0.01
"""Sides that are the same are called different at most this often."""

SMALLEST = 0.01
"""A smaller difference of medians is not worth a word, however steady it is."""

LEAST_ROUNDS = 5
"""With fewer rounds no outcome is as rare as CHANCE."""


@dataclass(frozen=True, slots=True)
class Versus:
    """Rates of two sides, one of each per round, measured in turn."""

    a: tuple[float, ...]
    b: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """B's median by A's."""
        return statistics.median(self.b) / statistics.median(self.a)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the largest ratio within a round."""
        ratios = [b / a for a, b in zip(self.a, self.b, strict=True)]
        return min(ratios), max(ratios)

    @property
    def chance(self) -> float:
        """How often two equal sides would look at least this different (see `rank_chance`)."""
        return rank_chance(self.a, self.b)

    @property
    def differs(self) -> bool:
        """The rule: the ranks are rarer than CHANCE by chance, and the medians differ by more than SMALLEST."""
        return self.chance <= CHANCE and abs(self.ratio - 1) > SMALLEST

    def values(self) -> dict[str, object]:
        """As plain values."""
        sides = {
            name: {"median": statistics.median(runs), "min": min(runs), "max": max(runs), "runs": list(runs)}
            for name, runs in (("a", self.a), ("b", self.b))
        }
        least, most = self.spread
        ratio = {"median": self.ratio, "min": least, "max": most}
        return {**sides, "ratio": ratio, "chance": self.chance, "differs": self.differs}

    def words(self) -> str:
        """The verdict."""
        least, most = self.spread
        ratio = f"B / A = {self.ratio:.3f} (rounds from {least:.3f} to {most:.3f})"
        if not self.differs:
            return f"{ratio}: no difference beyond noise"
        return f"{ratio}: {'B' if self.ratio > 1 else 'A'} is faster (by chance in {self.chance:.1%} of such runs)"


def median_range(values: Sequence[float], chance: float = 0.05) -> tuple[float, float]:
    """Where the median of what these values are drawn from lies, except with this probability: two of the values.

    By the sign test, which asks nothing of the distribution: each value is above the median as often as below. With too
    few values for that, the least and the largest.
    """
    ordered, n = sorted(values), len(values)
    outside, tail = 0, 0.0
    while outside + 1 < n / 2 and 2 * (tail + math.comb(n, outside) / 2**n) <= chance:
        tail += math.comb(n, outside) / 2**n
        outside += 1
    inner = max(0, outside - 1)
    return ordered[inner], ordered[n - 1 - inner]


def rank_chance(a: Sequence[float], b: Sequence[float]) -> float:
    """The exact two-sided probability of the Mann-Whitney test: only the order of the runs counts, not their size.

    So one run that something disturbed weighs no more than any other. Ties count half.
    """
    wins = sum(Fraction(1 if y > x else 0) + Fraction(1, 2) * (x == y) for x in a for y in b)
    fewer = math.floor(min(wins, len(a) * len(b) - wins))
    ways = ways_to_win(len(a), len(b))
    return min(1.0, 2 * sum(ways[: fewer + 1]) / sum(ways))


def ways_to_win(n: int, m: int) -> list[int]:
    """Of all orders of n + m runs, how many give the second side 0, 1, 2 ... n m wins over the first."""
    table = [[[1] for _ in range(m + 1)] for _ in range(n + 1)]
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            # The last run in the order is of the first side (no win), or of the second (a win over i).
            ways = [0] * (i * j + 1)
            for count, of in enumerate(table[i - 1][j]):
                ways[count] += of
            for count, of in enumerate(table[i][j - 1]):
                ways[count + i] += of
            table[i][j] = ways
    return table[n][m]
