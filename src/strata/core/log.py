"""One line per event on standard error: `time level event key=value ...`."""

import sys
import time
from enum import IntEnum
from typing import TextIO


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


class Log:
    """Writes events at or above `level`; passed to what needs it, never fetched."""

    def __init__(self, level: Level = Level.INFO, stream: TextIO | None = None) -> None:
        self.level = level
        self.stream = stream if stream is not None else sys.stderr

    def write(self, level: Level, event: str, **fields: object) -> None:
        """Write one event with its fields in the order given."""
        if level < self.level:
            return
        pairs = "".join(f" {k}={field(v)}" for k, v in fields.items())
        now = time.strftime("%H:%M:%S")
        self.stream.write(f"{now} {level.name.lower()} {event}{pairs}\n")
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
