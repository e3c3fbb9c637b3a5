"""Specification of choose: float32 logits, integer weights, exact sums (docs/decisions/0011).

In order, for finite and -inf float32 values v with a finite largest one:
1. top-k: the k likeliest; likelier means the larger v, then the lower id;
2. weights: z = (v - largest) / float32(temperature), one rounding each; w = floor(2^44 exp(z)) with the shared exp;
3. top-p: of what is left, the shortest run of likeliest tokens, at least one, whose weights add up to
   ceil(top_p * float64(their sum)) or more;
4. min-p: of what is left, those with w >= min_p * 2^44 in float64;
5. the draw: the first token in increasing id whose running sum exceeds floor(uniform * float64(sum)), which is taken as
   sum - 1 where the product rounds up to the sum.
"""

import math

import numpy as np
import numpy.typing as npt
import torch

from strata.kernels.activate.naive import activate
from strata.kernels.exact import Array32

Ids = npt.NDArray[np.int64]

WEIGHT_OF_LARGEST = 1 << 44
MOST_VALUES = (1 << 19) - 1
"""Values whose weights still add up within 63 bits."""


def choose(logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float) -> int:
    """See Ops.choose."""
    ids, weights = kept(logits, temperature, top_k, top_p, min_p)
    running = np.cumsum(weights)
    whole = int(running[-1])
    mark = min(int(uniform * float(whole)), whole - 1)
    return int(ids[np.searchsorted(running, mark, side="right")])


def kept(logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> tuple[Ids, Ids]:
    """(ids in increasing order, their weights): what a draw chooses from."""
    values: Array32 = logits.numpy()
    check_choice(values, temperature)
    ids = np.arange(len(values), dtype=np.int64)
    if 0 < top_k < len(values):
        ids = np.sort(likeliest_first(values, ids)[:top_k])
    weights = weigh(values[ids], values.max(), temperature)
    if top_p < 1.0:
        order = likeliest_first(values[ids], np.arange(len(ids)))
        wanted = math.ceil(top_p * float(weights.sum()))
        reached = int(np.searchsorted(np.cumsum(weights[order]), wanted, side="left"))
        chosen = np.sort(order[: reached + 1])
        ids, weights = ids[chosen], weights[chosen]
    likely = weights.astype(np.float64) >= min_p * WEIGHT_OF_LARGEST
    return ids[likely], weights[likely]


def check_choice(values: Array32, temperature: float) -> None:
    """ValueError when there is no choice to make."""
    if not (0 < len(values) <= MOST_VALUES and np.float32(temperature) > 0 and math.isfinite(values.max())):
        raise ValueError(f"choose: {len(values)} values, the largest {values.max(initial=-math.inf)}, at {temperature}")


def likeliest_first(values: Array32, ids: Ids) -> Ids:
    """`ids` by decreasing value, lower ids first among equals."""
    return ids[np.lexsort((ids, -values[ids]))]


def weigh(values: Array32, largest: np.float32, temperature: float) -> Ids:
    """The integer weights of float32 values."""
    with np.errstate(over="ignore", under="ignore"):
        z = (values - largest) / np.float32(temperature)
    e = activate("exp", torch.from_numpy(z)).numpy().astype(np.float64)
    return (e * WEIGHT_OF_LARGEST).astype(np.int64)
