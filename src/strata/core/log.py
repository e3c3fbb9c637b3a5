"""One line per event on standard error: `time level event key=value ...`, or the same as JSON."""

import json
import math
import sys
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Literal, TextIO

PROGRESS_EVERY_S = 2.0
Form = Literal["text", "json"]


class Level(IntEnum):
    """Severity, and the threshold that `--log-level` sets."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


def field(value: object) -> str:
    """`value` as it stands in a log line: quoted when it holds spaces."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return repr(text) if not text or any(c.isspace() for c in text) else text


def plain(value: object) -> object:
    """`value` as it stands in JSON: numbers, truth and null as they are, anything else as text."""
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else str(value)
    return value if isinstance(value, int | str | None) else str(value)


class Log:
    """Writes events at or above `level`; passed to what needs it, never fetched."""

    def __init__(
        self,
        level: Level = Level.INFO,
        stream: TextIO | None = None,
        form: Form = "text",
        heard: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """`heard` is called with all progress: (what, units done, units in all)."""
        self.level = level
        self.stream = stream if stream is not None else sys.stderr
        self.form = form
        self._heard = heard
        self._next_s: dict[str, float] = {}
        """When the progress of what gets its next line."""

    def write(self, level: Level, event: str, **fields: object) -> None:
        """Write one event with its fields in the order given."""
        if level < self.level:
            return
        name = level.name.lower()
        if self.form == "json":
            now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            values = {"time": now, "level": name, "event": event, **{k: plain(v) for k, v in fields.items()}}
            line = json.dumps(values, ensure_ascii=False, allow_nan=False)
        else:
            now = time.strftime("%H:%M:%S")
            line = f"{now} {name} {event}" + "".join(f" {k}={field(v)}" for k, v in fields.items())
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def info(self, event: str, **fields: object) -> None:
        """Something a person running the engine wants to know."""
        self.write(Level.INFO, event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something that works less well than asked."""
        self.write(Level.WARNING, event, **fields)

    def debug(self, event: str, **fields: object) -> None:
        """Detail for development."""
        self.write(Level.DEBUG, event, **fields)

    def progress(self, what: str, done: int, total: int, counted: bool = False) -> None:
        """How far something long is, in bytes or `counted` pieces; a line every few seconds."""
        if self._heard is not None:
            self._heard(what, done, total)
        now_s = time.monotonic()
        if now_s < self._next_s.setdefault(what, now_s + PROGRESS_EVERY_S):
            return
        self._next_s[what] = now_s + PROGRESS_EVERY_S
        amounts = {"done": done, "total": total} if counted else {"done_mib": done >> 20, "total_mib": total >> 20}
        self.info(what, percent=100 * done // max(1, total), **amounts)
