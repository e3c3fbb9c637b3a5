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
from strata.quant.repack import LAYOUTS, layout_of, repack

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
    """The values that each place of some rows can take: level * scale - minimum; column by column, [n, rows]."""

    levels: Floats
    borders: Floats
    """Half way between neighbouring levels."""
    scale: Floats
    inverse: Floats
    """1 / scale, 0 where that is 0."""
    minimum: Floats

    def nearest(self, x: Floats, j: int) -> Floats:
        """The levels whose values are nearest to x [rows] in column j."""
        wanted = (x + self.minimum[j]) * self.inverse[j]
        return np.asarray(self.levels[np.searchsorted(self.borders, wanted)], np.float32)

    def value(self, level: Floats, j: int) -> Floats:
        """What levels [rows] of column j decode to."""
        return np.asarray(level * self.scale[j] - self.minimum[j], np.float32)


def rounded(fmt: QuantFormat, raw: Bytes, x: Floats, by: Factors, passes: int = PASSES) -> Bytes:
    """`raw` (x encoded, [rows, row_bytes]) with codes chosen for the Hessian behind `by`; x float32 [rows, n].

    No row's error is larger than that of `raw`. UnsupportedError for formats without a code per value.
    """
    grid, before = _grid(fmt, raw, by.order)
    x = np.ascontiguousarray(x[:, by.order].T, np.float32)
    chosen = _fed(grid, x, by.upper)
    old, new = (held * grid.scale - grid.minimum for held in (before, chosen))
    worse = weighted((x - new).T, by.hessian) > weighted((x - old).T, by.hessian)
    chosen[:, worse] = before[:, worse]
    for _ in range(passes):
        if not _settle(grid, x, chosen, by.hessian):
            break
    places = np.empty(chosen.shape, np.uint8)
    places[by.order] = np.searchsorted(grid.levels, chosen)
    return repack(fmt, raw, np.ascontiguousarray(places.T))


def weighted(error: Floats, hessian: Square) -> Floats:
    """e H e^T of every row."""
    return np.asarray(((error @ hessian) * error).sum(axis=1), np.float32)


def _grid(fmt: QuantFormat, raw: Bytes, order: npt.NDArray[np.int64]) -> tuple[Grid, Floats]:
    """The values on offer, and the levels that `raw` holds [n, rows], columns in `order`."""
    levels = layout_of(fmt).levels
    held = codes(fmt, raw)
    scale = _by_column(held.scale, fmt.sub, order)
    minimum = np.zeros_like(scale) if held.min_scale is None else _by_column(held.min_scale, fmt.sub, order)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    borders = np.asarray((levels[1:] + levels[:-1]) / 2, np.float32)
    now = np.ascontiguousarray(np.clip(held.w_int[:, order].T, levels[0], levels[-1]), np.float32)
    return Grid(levels, borders, scale, inverse, minimum), now


def _by_column(per_run: Floats, sub: int, order: npt.NDArray[np.int64]) -> Floats:
    """[rows, n / sub] -> [n, rows], columns in `order`."""
    return np.ascontiguousarray(np.repeat(per_run.T, sub, axis=0)[order])


def _fed(grid: Grid, x: Floats, upper: Square) -> Floats:
    """Levels [n, rows] for x [n, rows], column after column, errors moved on."""
    left, chosen = x.copy(), np.empty_like(x)
    n = len(x)
    for start in range(0, n, RUN):
        stop = min(start + RUN, n)
        errors = np.empty((stop - start, x.shape[1]), np.float32)
        for j in range(start, stop):
            chosen[j] = grid.nearest(left[j], j)
            error = errors[j - start]
            np.subtract(left[j], grid.value(chosen[j], j), out=error)
            error /= upper[j, j]
            left[j + 1 : stop] -= np.outer(upper[j, j + 1 : stop], error)
        left[stop:] -= upper[start:stop, stop:].T @ errors
    return chosen


def _settle(grid: Grid, x: Floats, chosen: Floats, hessian: Square) -> bool:
    """Choose every column's levels again, all others as they are, in place; whether anything changed."""
    values = chosen * grid.scale - grid.minimum
    pull = hessian @ (x - values)
    changed = False
    n = len(x)
    for start in range(0, n, RUN):
        stop = min(start + RUN, n)
        steps = np.zeros((stop - start, x.shape[1]), np.float32)
        for j in range(start, stop):
            best = grid.nearest(values[j] + pull[j] / hessian[j, j], j)
            if np.array_equal(best, chosen[j]):
                continue
            changed = True
            chosen[j] = best
            np.subtract(grid.value(best, j), values[j], out=steps[j - start])
            pull[j + 1 : stop] -= np.outer(hessian[j, j + 1 : stop], steps[j - start])
        pull[stop:] -= hessian[start:stop, stop:].T @ steps
    return changed
