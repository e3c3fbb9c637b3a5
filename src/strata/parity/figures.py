"""What a comparison yields: one figure per tensor of an operation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.parity.weights import Array

FLOAT_TOLERANCE = 3e-4
"""max|difference| / max|reference| where production and reference see the same numbers: float32 against float64."""
FLIPPED_TOLERANCE = 1e-2
"""The same where a quantised matrix follows inside: a last bit may move an activation to the next code."""
LOGITS_TOLERANCE = 0.5
"""End to end with quantised matrices, worst row: a moved code can change an expert or a selected block further on."""
LOGITS_MEDIAN_TOLERANCE = 5e-2
"""The same for the median row."""
INPUT_TOLERANCE = 1e-5
"""An operation's input against what went before it: the same float32 numbers, or one sum of them."""


@dataclass(frozen=True, slots=True)
class Figure:
    """How far one tensor of one operation is from what it should be."""

    op: str
    part: str
    worst: float
    """Largest relative difference; for whole numbers, rows that differ; infinite when nothing can be compared."""
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        """Within tolerance; not-a-number is not."""
        return self.worst <= self.tolerance

    @property
    def kind(self) -> str:
        """The operation without its layer."""
        return self.op.split(".", 2)[2] if self.op.startswith("blk.") else self.op

    def __str__(self) -> str:
        place = f"{self.op} ({self.part})" if self.part else self.op
        text = self.note if math.isinf(self.worst) else f"{self.worst:.3g} beyond {self.tolerance:.3g}"
        return f"{place}: {text}" + (f"; {self.note}" if self.note and not math.isinf(self.worst) else "")


def broken(op: str, part: str, note: str) -> Figure:
    """Nothing to compare, and that is the finding."""
    return Figure(op, part, math.inf, 0.0, note)


def difference(
    op: str,
    part: str,
    got: npt.NDArray[np.generic],
    wanted: Array,
    tolerance: float,
    median_tolerance: float = FLOAT_TOLERANCE,
) -> list[Figure]:
    """max|got - wanted| / max|wanted|.

    With a tolerance above FLOAT_TOLERANCE the median row is held to `median_tolerance` as well: a moved code spoils a
    few rows, a fault spoils most.
    """
    if got.shape != wanted.shape:
        return [broken(op, part, f"expected shape {list(wanted.shape)}, found {list(got.shape)}")]
    apart = np.abs(got.astype(np.float64) - wanted)
    top = float(np.abs(wanted).max(initial=0.0))
    if top == 0.0:
        top = 1.0
    figures = [Figure(op, part, float(apart.max(initial=0.0)) / top, tolerance)]
    if tolerance > FLOAT_TOLERANCE:
        rows = apart.reshape(len(apart), -1).max(axis=1) / top
        name = f"{part}, median row".removeprefix(", ")
        figures.append(Figure(op, name, float(np.median(rows)), median_tolerance))
    return figures


@dataclass(frozen=True, slots=True)
class Report:
    """Every figure of one comparison, in the order of the operations; structural findings come first."""

    figures: Sequence[Figure]
    quantised: bool
    tokens: int

    @property
    def first(self) -> Figure | None:
        """The first figure beyond its tolerance."""
        return next((f for f in self.figures if not f.passed), None)

    def rows(self) -> list[tuple[str, int, Figure]]:
        """(operation and tensor, how many layers, its worst figure) in order of first occurrence."""
        groups: dict[tuple[str, str], list[Figure]] = {}
        for figure in self.figures:
            groups.setdefault((figure.kind, figure.part), []).append(figure)
        found = []
        for (kind, part), members in groups.items():
            # what failed wins over what is merely large, and not-a-number over everything
            worst = max(members, key=lambda f: (not f.passed, math.isnan(f.worst), f.worst / (f.tolerance or 1.0)))
            found.append((f"{kind} ({part})" if part else kind, len({f.op for f in members}), worst))
        return found
