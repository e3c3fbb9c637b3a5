"""How soon a full queue has a place again, by how often requests came to their end lately. Pure: `now` is passed in."""

import math
from collections import deque

UNKNOWN_S = 2
"""Where too few requests have ended to tell."""
MOST_S = 120
"""Nobody is sent away for longer: by then the rate is another one."""
REMEMBERED = 16


class Departures:
    """Requests that ended, and clients that were sent away since."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=REMEMBERED)
        self._away = 0
        """Clients that were sent away and for whom no place has come free yet."""

    def left(self, now: float) -> None:
        """A request ended, so one that waits gets its slot, and there is one place more in the queue."""
        self._times.append(now)
        self._away = max(0, self._away - 1)

    def wait_s(self, now: float) -> int:
        """Another client is sent away: seconds after which there should be a place, behind those sent away before."""
        self._away += 1
        if len(self._times) < 2:
            return UNKNOWN_S
        each_s = (now - self._times[0]) / (len(self._times) - 1)
        return max(1, min(MOST_S, math.ceil(self._away * each_s)))
