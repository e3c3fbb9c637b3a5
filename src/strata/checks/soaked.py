"""What a soak found: counts, what was left behind, memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strata.checks.loading import Spread

FLAT, FLAT_BYTES = 0.03, 32 << 20
"""Memory may grow so much between the middle and the end, by share or by bytes."""
NOT_GROWTH = frozenset(("kept", "files", "shared"))
"""Uses of the engine's that are not counted: conversations have a budget, files can be read again."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory at one time."""

    bytes: int | None
    """Of server and engine, without what the engine keeps of conversations in RAM."""
    kept: int
    uses: Mapping[str, int] = field(default_factory=dict)
    """The engine's own words for what it holds (`memory` of its runner); empty where it does not say."""


@dataclass(frozen=True, slots=True)
class Soaked:
    """What a soak found."""

    clients: int
    seconds: float
    asked: int
    whole: int
    left: int
    refused: int
    lost: int
    wrong: int
    compared: int
    rechecked: int
    leaked: Mapping[str, int]
    """Slots, pages, promised pages and sessions that were still taken when everything had ended."""
    memory: Mapping[str, Sample]
    """At the load's start, middle and end; and afterwards, for whole chunks of a prompt read alone need their room."""
    tokens: int
    rate: float
    """Tokens of whole answers per second."""
    first_token_s: Spread
    gap_s: Spread
    rows_per_step: Mapping[int, int] | None
    streams_per_step: Mapping[int, int] | None
    problems: tuple[str, ...]

    @property
    def growth(self) -> int | None:
        """Bytes from the middle to the end."""
        middle, end = self.memory["middle"].bytes, self.memory["end"].bytes
        return None if middle is None or end is None else end - middle

    @property
    def failure(self) -> str:
        """What is wrong; "" when nothing is."""
        found = [f"{count} {name}" for name, count in (("lost", self.lost), ("wrong", self.wrong)) if count]
        found += [f"{count} {name} leaked" for name, count in self.leaked.items() if count]
        middle, growth = self.memory["middle"].bytes, self.growth
        if middle is not None and growth is not None and growth > max(FLAT * middle, FLAT_BYTES):
            grew = f"memory grew by {growth >> 20} MiB from the middle to the end"
            found.append(grew + (f" ({words})" if (words := self.grown()) else ""))
        return ", ".join(found)

    def grown(self) -> str:
        """What the engine held more of at the end than in the middle, in words."""
        before, after = self.memory["middle"].uses, self.memory["end"].uses
        own = {use: nbytes for use, nbytes in after.items() if use not in NOT_GROWTH}
        more = {use: nbytes - before.get(use, 0) >> 20 for use, nbytes in own.items()}
        return ", ".join(f"{use} {mib}" for use, mib in more.items() if mib > 0)


def taken(status: Mapping[str, Any]) -> dict[str, int]:
    """Slots, pages and sessions that somebody has."""
    if not status:
        return {}
    kept, sessions = status["runner"]["kept"], status["sessions"]
    return {
        "slots": sum(seat["state"] != "idle" for seat in status["seats"]),
        "pages": kept["pages"] - kept["free_pages"] - kept["kept_pages"],
        "promised pages": kept["promised_pages"],
        "sessions": sessions["submitted"] - sum(sessions["finished"].values()),
        "waiting": status["waiting"],
    }


def growth_words(memory: Mapping[str, Sample]) -> str:
    """Memory in words."""
    parts = [
        f"{name} {sample.bytes >> 20} MiB (and {sample.kept >> 20} of conversations)"
        for name, sample in memory.items()
        if sample.bytes is not None
    ]
    uses = memory["end"].uses if "end" in memory else {}
    if uses:
        parts.append("the engine at the end: " + ", ".join(f"{use} {nbytes >> 20}" for use, nbytes in uses.items()))
    return ", ".join(parts) or "not known"


def steps_words(histogram: Mapping[int, int] | None, most: int = 24) -> str:
    """A histogram in words, the commonest values only."""
    if histogram is None:
        return "not told by the server"
    shown: Sequence[tuple[int, int]] = sorted(sorted(histogram.items(), key=lambda item: -item[1])[:most])
    return ", ".join(f"{value}: {count}" for value, count in shown)
