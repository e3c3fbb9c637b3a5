"""One row of logits to one token. This is the specification that a device-side sampler has to equal.

In order, all in float64:
1. repeat penalty on every token of prompt or answer, presence and frequency penalty on the answer's, then the bias;
2. temperature 0: the largest logit, the lower id on ties, and nothing below applies;
3. division by the temperature;
4. top-k: the k largest, lower ids first among equals;
5. top-p: of what is left, renormalised, the shortest run of likeliest tokens (equals: lower id first) whose
   probabilities reach top_p, at least one;
6. min-p: of what is left, those with at least min_p times the largest probability;
7. the draw: with u = uniform(seed, position), the first token **in increasing id** whose cumulated weight exceeds
   u times the whole weight. The id order needs no sort, so a device can do it with a prefix sum.

Reported log-probabilities are of the untouched logits, as OpenAI's interface defines them.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.core.errors import EngineError, RequestError
from strata.sampling.history import TokenCounts
from strata.sampling.params import SamplingParams
from strata.sampling.philox import uniform

_HEAD = 1024
"""Largest weights that top-p sorts first; eight times as many until they reach top_p."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A drawn token; `logprob` and `top` are empty unless asked for."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


def sample(logits: NDArray[np.float32], params: SamplingParams, position: int, history: TokenCounts) -> Draw:
    """The token at absolute `position` of the sequence; logits [V] are not changed.

    EngineError when a logit is NaN or +inf, or none is finite; RequestError when a biased token is not in [0, V).
    """
    if params.greedy_as_is:
        token = int(np.argmax(logits))  # the first NaN, if there is one
        if math.isfinite(logits[token]):
            return Draw(token)
    _check(logits, position)
    values = _adjusted(logits, params, history)
    token = int(np.argmax(values)) if params.temperature == 0 else _drawn(values, params, position)
    if params.logprobs < 0:
        return Draw(token)
    raw = logits.astype(np.float64)
    peak = float(raw.max())
    total = peak + math.log(float(np.exp(raw - peak).sum()))
    top = tuple((int(i), float(raw[i]) - total) for i in _largest(raw, params.logprobs))
    return Draw(token, float(raw[token]) - total, top)


def kept(
    logits: NDArray[np.float32], params: SamplingParams, history: TokenCounts
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(ids in increasing order, their probabilities): what a draw at this temperature chooses from."""
    ids, weights = _truncated(_adjusted(logits, params, history), params)
    return ids, weights / weights.sum()


def _check(logits: NDArray[np.float32], position: int) -> None:
    peak = float(logits.max(initial=-math.inf))  # NaN anywhere makes it NaN
    if math.isfinite(peak):
        return
    count = logits.shape[0]
    if math.isnan(peak) or peak > 0:
        first = int(np.flatnonzero(~(logits < math.inf))[0])
        raise EngineError(f"logits at position {position}: token {first} of {count} has {logits[first]}")
    raise EngineError(f"logits at position {position}: all {count} are -inf, no token can be drawn")


def _adjusted(logits: NDArray[np.float32], params: SamplingParams, history: TokenCounts) -> NDArray[np.float64]:
    """The logits after penalties and bias, in float64."""
    values = logits.astype(np.float64)
    if params.repeat_penalty != 1.0:
        ids = history.seen()
        seen = values[ids]
        values[ids] = np.where(seen > 0, seen / params.repeat_penalty, seen * params.repeat_penalty)
    if params.presence_penalty or params.frequency_penalty:
        ids, counts = history.answered()
        values[ids] -= params.presence_penalty + params.frequency_penalty * counts
    for token, bias in params.logit_bias:
        if not 0 <= token < values.shape[0]:
            raise RequestError(f"logit_bias: token {token} is not in 0 to {values.shape[0] - 1}", param="logit_bias")
        values[token] += bias
    return values


def _largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Ids of the `count` largest values, largest first, lower ids first among equals."""
    ids = _top_k(values, count)
    return ids[np.argsort(-values[ids], kind="stable")]


def _top_k(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Ids of the `count` largest values in increasing order, lower ids first among equals."""
    size = values.shape[0]
    if count >= size:
        return np.arange(size, dtype=np.int64)
    if count == 0:
        return np.empty(0, dtype=np.int64)
    return _from_border(values, np.partition(values, size - count)[size - count], count)


def _from_border(values: NDArray[np.float64], border: np.float64, count: int) -> NDArray[np.int64]:
    """The same, where `border` is known to be the count-th largest value."""
    above = np.flatnonzero(values > border)
    equal = np.flatnonzero(values == border)[: count - above.shape[0]]
    return np.sort(np.concatenate([above, equal]))


def _top_p(weights: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Indices, increasing, of the shortest run of largest weights whose sum reaches top_p of the whole."""
    size, wanted = weights.shape[0], top_p * float(weights.sum())
    head = min(_HEAD, size)
    while True:
        largest = np.sort(np.partition(weights, size - head)[size - head :])[::-1]
        reached = int(np.searchsorted(np.cumsum(largest), wanted, side="left"))
        if reached < head:
            return _from_border(weights, largest[reached], reached + 1)
        if head == size:  # the sum in this order came out a rounding below the whole
            return np.arange(size, dtype=np.int64)
        head = min(8 * head, size)


def _truncated(values: NDArray[np.float64], params: SamplingParams) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(ids in increasing order, weights exp(value - largest)) after temperature, top-k, top-p and min-p."""
    peak = values.max()
    # The largest becomes 0 first: a very small temperature sends the others to -inf, never the largest to +inf.
    with np.errstate(over="ignore"):
        scaled = (values - peak) / params.temperature
    ids = _top_k(scaled, params.top_k or scaled.shape[0])
    weights = np.exp(scaled[ids])
    if params.top_p < 1.0:
        chosen = _top_p(weights, params.top_p)
        ids, weights = ids[chosen], weights[chosen]
    if params.min_p > 0.0:
        likely = weights >= params.min_p
        ids, weights = ids[likely], weights[likely]
    return ids, weights


def _drawn(values: NDArray[np.float64], params: SamplingParams, position: int) -> int:
    ids, weights = _truncated(values, params)
    cumulated = np.cumsum(weights)
    mark = uniform(params.seed, position) * cumulated[-1]
    index = int(np.searchsorted(cumulated, mark, side="right"))
    if index == ids.shape[0]:  # u so near 1 that the product rounded up to the whole weight
        index = int(np.flatnonzero(weights)[-1])
    return int(ids[index])
