"""What the last minutes were like for clients, second by second. Pure: seconds are passed in."""

from collections import deque
from dataclasses import dataclass

KEPT_S = 300


@dataclass(slots=True)
class Second:
    """What clients saw within one second."""

    second: int
    tokens: int = 0
    """Answer tokens."""
    first_s: float = 0.0
    """The longest wait for a first token that ended here."""
    firsts: int = 0
    gap_s: float = 0.0
    """The longest gap between two tokens of one answer."""
    gaps: int = 0
    gaps_s: float = 0.0
    """All gaps together."""

    def values(self) -> dict[str, object]:
        """Plain values; times in milliseconds, None where there is nothing to tell."""
        return {
            "second": self.second,
            "tokens": self.tokens,
            "first_ms": round(1000 * self.first_s, 2) if self.firsts else None,
            "gap_ms": round(1000 * self.gap_s, 2) if self.gaps else None,
            "mean_gap_ms": round(1000 * self.gaps_s / self.gaps, 2) if self.gaps else None,
        }


class Timeline:
    """The last `KEPT_S` seconds in which anything happened."""

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque()

    def first_token(self, now_s: float, waited_s: float) -> None:
        """An answer's first token came."""
        second = self._at(now_s)
        second.tokens += 1
        second.firsts += 1
        second.first_s = max(second.first_s, waited_s)

    def later_token(self, now_s: float, gap_s: float) -> None:
        """Another token came, so long after the one before."""
        second = self._at(now_s)
        second.tokens += 1
        second.gaps += 1
        second.gaps_s += gap_s
        second.gap_s = max(second.gap_s, gap_s)

    def since(self, second: int, now_s: float) -> list[dict[str, object]]:
        """The seconds from `second` on that are not too old, oldest first."""
        oldest = max(second, int(now_s) - KEPT_S + 1)
        return [one.values() for one in self._seconds if one.second >= oldest]

    def _at(self, now_s: float) -> Second:
        now = int(now_s)
        if not self._seconds or self._seconds[-1].second < now:
            self._seconds.append(Second(now))
            while self._seconds[0].second <= now - KEPT_S:
                self._seconds.popleft()
        return self._seconds[-1]  # a clock that was set back goes on in the last second
