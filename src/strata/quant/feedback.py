"""Rounding with error feedback: codes chosen for what a matrix does to its inputs, not value by value.

The error that counts is (w - v) H (w - v)^T for every row w and its decoded form v, with H the sum of x x^T over the
inputs x. GPTQ (Frantar et al., arXiv 2210.17323) takes the columns one after the other and moves each one's rounding
error into the columns still to come, as the Cholesky factor of H^-1 says. Afterwards every column is chosen again with
all others fixed, a few times over (coordinate descent), which can only lower the error. Scales and minima stay as the
encoder chose them.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.quant.blocks import Bytes, Floats
from strata.quant.decode import codes
from strata.quant.format import QuantFormat
from strata.quant.repack import LAYOUTS, Places, layout_of, repack

Square = npt.NDArray[np.float32]

DAMPING = 0.01
"""Part of H's mean diagonal that is added to it: inputs differ from text to text."""

RUN = 32
"""Columns whose feedback reaches the columns after them in one product."""

PASSES = 3
"""Times that every column is chosen again."""


def supported(fmt: QuantFormat) -> bool:
    """Whether the format's values have codes of their own."""
    return fmt.name in LAYOUTS


@dataclass(frozen=True, slots=True)
class Factors:
    """What rounding needs of a Hessian, columns in the order in which they are chosen (the loudest first)."""

    order: npt.NDArray[np.int64]
    upper: Square
    """U with U^T U = H^-1."""
    hessian: Square
    """H itself, damped, its mean diagonal 1."""


def factors(hessian: npt.NDArray[np.floating], damping: float = DAMPING) -> Factors:
    """H [n, n] symmetric, positive semidefinite -> its factors. ValueError when it is not finite or all zero."""
    h = np.asarray(hessian, np.float64)
    mean = float(np.trace(h)) / len(h)
    if not (np.isfinite(h).all() and mean > 0):
        raise ValueError("a Hessian must be finite and not zero")
    h = h / mean
    h[np.diag_indices(len(h))] += damping
    order = np.argsort(-np.diag(h), kind="stable")
    h = h[np.ix_(order, order)]
    upper = np.linalg.cholesky(np.linalg.inv(h)).T
    return Factors(order, np.ascontiguousarray(upper, np.float32), h.astype(np.float32))


@dataclass(frozen=True, slots=True)
class Grid:
    """The values that each place of some rows can take: levels * scale - minimum, all [rows, n]."""

    levels: Floats
    scale: Floats
    minimum: Floats

    def nearest(self, x: Floats, j: int) -> tuple[Places, Floats]:
        """(level's index, its value) nearest to x [rows] in column j."""
        scale, minimum = self.scale[:, j], self.minimum[:, j]
        wanted = np.divide(x + minimum, scale, out=np.zeros_like(x), where=scale != 0)
        places = np.searchsorted((self.levels[1:] + self.levels[:-1]) / 2, wanted).astype(np.uint8)
        return places, self.levels[places] * scale - minimum


def rounded(fmt: QuantFormat, raw: Bytes, x: Floats, by: Factors, passes: int = PASSES) -> Bytes:
    """`raw` (x encoded, [rows, row_bytes]) with codes chosen for the Hessian behind `by`; x float32 [rows, n].

    No row's error is larger than that of `raw`. UnsupportedError for formats without a code per value.
    """
    grid, before = _grid(fmt, raw, by.order)
    x = np.ascontiguousarray(x[:, by.order], np.float32)
    places, values = _fed(grid, x, by.upper)
    old = grid.levels[before] * grid.scale - grid.minimum
    worse = weighted(x - values, by.hessian) > weighted(x - old, by.hessian)
    places[worse], values[worse] = before[worse], old[worse]
    for _ in range(passes):
        if not _settle(grid, x, values, places, by.hessian):
            break
    out = np.empty_like(places)
    out[:, by.order] = places
    return repack(fmt, raw, out)


def weighted(error: Floats, hessian: Square) -> Floats:
    """e H e^T of every row."""
    return np.asarray(((error @ hessian) * error).sum(axis=1), np.float32)


def _grid(fmt: QuantFormat, raw: Bytes, order: npt.NDArray[np.int64]) -> tuple[Grid, Places]:
    """The values on offer, and which ones `raw` holds, columns in `order`."""
    levels = layout_of(fmt).levels
    held = codes(fmt, raw)
    scale = np.repeat(held.scale, fmt.sub, axis=1)[:, order]
    minimum = np.zeros_like(scale) if held.min_scale is None else np.repeat(held.min_scale, fmt.sub, axis=1)[:, order]
    places = np.searchsorted(levels, np.clip(held.w_int[:, order], levels[0], levels[-1]).astype(np.float32))
    return Grid(levels, scale, minimum), places.astype(np.uint8)


def _fed(grid: Grid, x: Floats, upper: Square) -> tuple[Places, Floats]:
    """Column after column, errors moved on."""
    left = x.copy()
    places, values = np.empty(x.shape, np.uint8), np.empty_like(x)
    n = x.shape[1]
    for start in range(0, n, RUN):
        stop = min(start + RUN, n)
        errors = np.empty((len(x), stop - start), np.float32)
        for j in range(start, stop):
            places[:, j], values[:, j] = grid.nearest(left[:, j], j)
            error = (left[:, j] - values[:, j]) / upper[j, j]
            left[:, j + 1 : stop] -= error[:, None] * upper[j, j + 1 : stop]
            errors[:, j - start] = error
        left[:, stop:] -= errors @ upper[start:stop, stop:]
    return places, values


def _settle(grid: Grid, x: Floats, values: Floats, places: Places, hessian: Square) -> bool:
    """Choose every column again, all others as they are, in place; whether anything changed."""
    pull = (x - values) @ hessian
    changed = False
    for j in range(x.shape[1]):
        own = hessian[j, j]
        best, value = grid.nearest(values[:, j] + pull[:, j] / own, j)
        step = value - values[:, j]
        moved = np.flatnonzero(step)
        if len(moved):
            changed = True
            pull[moved] -= step[moved, None] * hessian[j]
            places[:, j], values[:, j] = best, value
    return changed
