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
    """One line: the prompt's tokens and how fast they were read, the first token, the answer's, drafts, seconds."""
    counts = done.counts
    read = counts.prompt - counts.reused
    parts = [f"prompt {counts.prompt} tokens"]
    if counts.reused:
        parts.append(f"{counts.reused} of them cached")
    if counts.prompt_s:
        parts.append(f"{read / counts.prompt_s:.1f} tok/s")
    if counts.generated:
        parts.append(f"first token after {counts.queue_s + counts.prompt_s:.2f} s")
    parts.append(f"answer {counts.generated} tokens")
    if counts.decode_s and counts.generated > 1:
        parts.append(f"{(counts.generated - 1) / counts.decode_s:.1f} tok/s")
    if counts.drafted:
        parts.append(f"{counts.accepted} of {counts.drafted} drafts right")
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
