"""What a conversion wrote, or would write: formats, sizes, and why a tensor did not get what was asked for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from strata.convert.types import Choice

_LAYER = re.compile(r"\bblk\.\d+\.")


@dataclass(frozen=True, slots=True)
class FormatTotal:
    """All tensors of one format."""

    name: str
    tensors: int
    values: int
    nbytes: int

    @property
    def bits(self) -> float:
        """Bits per value, scales included."""
        return 8 * self.nbytes / self.values


@dataclass(frozen=True, slots=True)
class Deviation:
    """Tensors that got another format than asked for, or got it in another way, for one reason."""

    format: str
    tensors: int
    asked: str
    reason: str
    names: tuple[str, ...]
    """Each once, layers written as `blk.*`."""


def totals(choices: Sequence[Choice]) -> list[FormatTotal]:
    """One row per format, the one with the most bytes first."""
    groups: dict[str, list[Choice]] = {}
    for c in choices:
        groups.setdefault(c.format.name, []).append(c)
    rows = [
        FormatTotal(name, len(cs), sum(c.item.count for c in cs), sum(c.nbytes for c in cs))
        for name, cs in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.nbytes, row.name))


def whole(choices: Sequence[Choice]) -> FormatTotal:
    """Everything together."""
    rows = totals(choices)
    return FormatTotal("all", sum(r.tensors for r in rows), sum(r.values for r in rows), sum(r.nbytes for r in rows))


def deviations(choices: Sequence[Choice]) -> list[Deviation]:
    """Every choice with a reason, those with the same one together, in the file's order."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for c in choices:
        if c.reason:
            name = _LAYER.sub("blk.*.", c.item.name.removesuffix(".weight"))
            groups.setdefault((c.format.name, c.asked, c.reason), []).append(name)
    return [
        Deviation(fmt, len(names), asked, reason, tuple(dict.fromkeys(names)))
        for (fmt, asked, reason), names in groups.items()
    ]
