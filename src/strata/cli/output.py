"""What commands write: answers to stdout, figures and logs to stderr."""

import sys
from collections.abc import Callable

from strata.chat.events import Done
from strata.core.log import Level, Log
from strata.plan.wishes import Wishes


def make_log(wishes: Wishes, heard: Callable[[str, int, int], None] | None = None) -> Log:
    """The log at the level and in the form that were asked for."""
    return Log(Level[wishes.log_level.upper()], form=wishes.log_format, heard=heard)


def figures(done: Done) -> str:
    """One line: prompt tokens, their speed, answer tokens, their speed, seconds."""
    counts = done.counts
    read = counts.prompt - counts.reused
    parts = [f"prompt {counts.prompt} tokens"]
    if counts.reused:
        parts.append(f"{counts.reused} of them held already")
    if counts.prompt_s:
        parts.append(f"{read / counts.prompt_s:.1f} tok/s")
    parts.append(f"answer {counts.generated} tokens")
    if counts.decode_s and counts.generated > 1:
        parts.append(f"{(counts.generated - 1) / counts.decode_s:.1f} tok/s")
    parts.append(f"{counts.queue_s + counts.prompt_s + counts.decode_s:.2f} s")
    return ", ".join(parts)


def say(text: str) -> None:
    """A piece of the answer, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """A line beside the answer."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
