"""Operations that choose: whole numbers, compared exactly but for near-ties."""

import numpy as np
import numpy.typing as npt

from strata.parity.figures import FLOAT_TOLERANCE, Figure, broken, difference
from strata.parity.reference import Routed, Selection
from strata.parity.weights import Array, Indices

TIE = 1e-6
"""Scores this close, relative to the largest, may stand in either order."""

Mask = np.ndarray[tuple[int, int], np.dtype[np.bool_]]


def compare_rows(op: str, part: str, got: npt.NDArray[np.generic], wanted: Indices) -> list[Figure]:
    """Rows of whole numbers that differ."""
    if got.shape != wanted.shape:
        return [broken(op, part, f"expected shape {list(wanted.shape)}, found {list(got.shape)}")]
    differ = np.flatnonzero((got != wanted).reshape(len(wanted), -1).any(axis=1))
    return [Figure(op, part, float(len(differ)), 0.0, f"first at row {differ[0]}" if len(differ) else "")]


def compare_routing(
    op: str, ids: npt.NDArray[np.generic], weights: Array, wanted: Routed, renormalise: bool
) -> list[Figure]:
    """Chosen experts by rank, and their weights for the choice that production made."""
    if ids.shape != wanted.ids.shape:
        return [broken(op, "ids", f"expected shape {list(wanted.ids.shape)}, found {list(ids.shape)}")]
    chosen = ids.astype(np.int64)
    if chosen.min() < 0 or chosen.max() >= wanted.probabilities.shape[1]:
        return [broken(op, "ids", f"expert {chosen.max()} of {wanted.probabilities.shape[1]}")]
    have = np.take_along_axis(wanted.probabilities, chosen, axis=1)
    best = np.take_along_axis(wanted.probabilities, wanted.ids, axis=1)
    twice = np.array([len(set(row)) < len(row) for row in chosen.tolist()])
    differ = np.flatnonzero(twice | (np.abs(have - best) > TIE).any(axis=1))
    note = f"first at row {differ[0]}" if len(differ) else ""
    expected = have / have.sum(axis=1, keepdims=True) if renormalise else have
    return [
        Figure(op, "ids", float(len(differ)), 0.0, note),
        *difference(op, "weights", weights, expected, FLOAT_TOLERANCE),
    ]


def kept_of(positions: npt.NDArray[np.generic], total: int) -> Mask | None:
    """positions [T, M] (-1 where unused) as a mask [T, T]; None when one is outside or in the future."""
    listed = positions.astype(np.int64)
    if len(listed) != total or listed.max() >= total or (listed > np.arange(total)[:, None]).any():
        return None
    kept = np.zeros((total, total + 1), dtype=np.bool_)
    np.put_along_axis(kept, listed, True, axis=1)
    visible: Mask = kept[:, :total]
    return visible if visible.any(axis=1).all() else None


def compare_selection(
    op: str, positions: npt.NDArray[np.generic], count: npt.NDArray[np.generic], wanted: Selection, ratio: int
) -> list[Figure]:
    """The set of positions of every query; blocks whose scores are nearly equal may change places."""
    total = len(wanted.kept)
    got = kept_of(positions, total)
    if got is None:
        return [broken(op, "positions", "a position lies outside the sequence, or a query has none")]
    listed = (positions.astype(np.int64) >= 0).sum(axis=1)
    differ = [
        t
        for t in range(total)
        if listed[t] != count[t] or got[t].sum() != count[t] or not same_choice(got[t], t, wanted, ratio)
    ]
    return [Figure(op, "positions", float(len(differ)), 0.0, f"first at row {differ[0]}" if differ else "")]


def same_choice(got: npt.NDArray[np.bool_], t: int, wanted: Selection, ratio: int) -> bool:
    """Whether query t's positions are the reference's, or differ only by whole blocks with nearly equal scores."""
    kept = wanted.kept[t]
    if (got == kept).all():
        return True
    complete = (t + 1) // ratio
    ours, theirs = (m[: complete * ratio].reshape(complete, ratio) for m in (got, kept))
    if (got[complete * ratio :] != kept[complete * ratio :]).any() or (ours.any(axis=1) != ours.all(axis=1)).any():
        return False
    scores = wanted.scores[t, :complete]
    added, dropped = (np.sort(scores[a.all(axis=1) & ~b.all(axis=1)]) for a, b in ((ours, theirs), (theirs, ours)))
    return len(added) == len(dropped) and bool((np.abs(added - dropped) <= TIE * max(1.0, scores.max())).all())
