"""Whether a measurement had the machine to itself: the share of processor time that others took meanwhile."""

import os
import resource
import time
from pathlib import Path

DISTURBED = 0.06
"""A measurement beside which others took a larger share than this should not count."""


class Company:
    """Counts from its making. Linux only: elsewhere `share` is None."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self.stat = stat
        self.started = time.perf_counter()
        self.busy = busy_seconds(stat)
        self.own = own_seconds()

    def share(self) -> float | None:
        """Processor time of other processes, by all processor time there was: 0 = alone, 1 = no time left for us."""
        busy = busy_seconds(self.stat)
        if busy is None or self.busy is None:
            return None
        others = busy - self.busy - (own_seconds() - self.own)
        available = (time.perf_counter() - self.started) * (os.cpu_count() or 1)
        # The system counts in ticks of a hundredth of a second.
        return max(0.0, others / available) if available > 0 else 0.0


def busy_seconds(stat: Path) -> float | None:
    """Processor seconds that the whole machine has worked, all processors together."""
    if not stat.is_file():
        return None
    # user nice system idle iowait irq softirq steal
    ticks = [int(word) for word in stat.read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Processor seconds of this process and of its children that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usage)
