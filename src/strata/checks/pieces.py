"""The ratio of two sides from many short pieces of the same work: it tells 1% where whole rounds tell 10%. Pure.

Piece k of a round is the same text on both sides, within some milliseconds of each other. So their ratio knows nothing
of the machine's clock, and the median of a piece over all rounds little of what else disturbs one. Pieces differ (a
prompt, a passage that can be copied), hence they are weighed by their time.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]

DRAWS = 1000
"""Samples of rounds that say where the ratio lies."""


def pieces(trace: Sequence[tuple[int, float]], whole: int, size: int) -> list[float]:
    """Seconds of each `size` tokens of `whole`, from a trace of (tokens said, seconds) that increases.

    A step may say several tokens: its time is shared out among them. What comes after the last token is the last
    piece's; a rest that makes no piece of its own joins it.
    """
    said, seconds = np.array(trace, np.float64).T
    ends = [*range(size, whole - size + 1, size), whole] if whole >= size else [whole]
    at = np.interp(ends, said, seconds)
    at[-1] = seconds[-1]
    found: list[float] = np.diff(at, prepend=seconds[0]).tolist()
    return found


def ratio(a: Times, b: Times) -> float:
    """B's rate by A's, from their seconds [rounds, pieces]."""
    return float(ratios(a, b))


def ratio_range(a: Times, b: Times, chance: float = 0.05) -> tuple[float, float]:
    """Where it lies except with this probability: by drawing rounds anew, the same ones for every piece."""
    drawn = np.random.default_rng(0).integers(0, len(a), (DRAWS, len(a)))
    low, high = np.quantile(ratios(a[drawn], b[drawn]), [chance / 2, 1 - chance / 2]).tolist()
    return low, high


def ratios(a: Times, b: Times) -> Times:
    """[..., rounds, pieces] -> [...]"""
    weights = np.median(a, axis=-2)
    found: Times = weights.sum(-1) / (weights * np.median(b / a, axis=-2)).sum(-1)
    return found
