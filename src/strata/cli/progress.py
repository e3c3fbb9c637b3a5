"""How far a long piece of work is: a bar on a terminal, a line every few seconds otherwise. On stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Said = Callable[[str, int, int], None]
"""(what is being done, units done, units in all)"""

EVERY_S = 3.0


@contextmanager
def progress(title: str, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic) -> Iterator[Said]:
    """Gives a function to call with how far things are."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(title, every_s, clock)
        return
    columns = (
        TextColumn(title),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[at]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, at="")
        yield lambda at, done, total: bar.update(task, completed=done, total=total, at=escape(at))


def telling(said: Said, at: str) -> Callable[[int, int], None]:
    """`said` for one kind of work."""
    return lambda done, total: said(at, done, total)


class Lines:
    """At most one line every `every_s` seconds, and one at the end."""

    def __init__(self, title: str, every_s: float, clock: Callable[[], float]) -> None:
        self.title = title
        self.every_s = every_s
        self.clock = clock
        self.last = clock()

    def __call__(self, at: str, done: int, total: int) -> None:
        now = self.clock()
        if done < total and now - self.last < self.every_s:
            return
        self.last = now
        sys.stderr.write(f"{self.title} {100 * done / max(total, 1):.0f}% {at}\n")
        sys.stderr.flush()
