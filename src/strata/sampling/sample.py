"""One row of logits to one token.

In order, float32 with one rounding for each step:
1. repeat penalty on every token of prompt or answer, presence and frequency penalty on the answer's, then the bias;
   tokens that a mask does not allow become minus infinity;
2. temperature 0 (or one that float32 cannot hold): the largest logit, the lower id on ties, and nothing below applies;
3. top-k, top-p, min-p and the draw by `Choose` (kernels/choose/naive.py is its specification), with
   u = uniform(seed, position).

Reported log-probabilities are of the untouched logits in float64, as OpenAI's interface defines them.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from strata.core.errors import EngineError, RequestError
from strata.sampling.history import TokenCounts
from strata.sampling.params import SamplingParams
from strata.sampling.philox import uniform

Row = NDArray[np.float32]


class Choose(Protocol):
    """A token of logits [V] at a temperature above 0, for `uniform` in [0, 1); the operation `choose` of kernels."""

    def __call__(
        self, logits: Row, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
    ) -> int: ...


@dataclass(frozen=True, slots=True)
class Draw:
    """A drawn token; `logprob` and `top` are empty unless asked for."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


def sample(
    logits: Row,
    params: SamplingParams,
    position: int,
    history: TokenCounts,
    choose: Choose,
    mask: NDArray[np.bool_] | None = None,
) -> Draw:
    """The token at absolute `position` of the sequence, among those that `mask` [V] allows; logits [V] do not change.

    EngineError when a logit is NaN or +inf, or none is finite; RequestError when a biased token is not in [0, V).
    """
    values = adjusted(logits, params, history)
    if mask is not None:
        values = np.where(mask, values, np.float32(-np.inf))
    largest = int(np.argmax(values))  # the first NaN, if there is one
    if not math.isfinite(values[largest]):
        raise no_choice(logits, position)
    if np.float32(params.temperature) == 0:
        token = largest
    else:
        mark = uniform(params.seed, position)
        token = choose(values, params.temperature, params.top_k, params.top_p, params.min_p, mark)
    return Draw(token) if params.logprobs < 0 else reported(logits, token, params.logprobs)


def reported(logits: Row, token: int, count: int) -> Draw:
    """The draw with its log-probability and those of the `count` likeliest tokens."""
    raw = logits.astype(np.float64)
    peak = float(raw.max())
    total = peak + math.log(float(np.exp(raw - peak).sum()))
    top = tuple((int(i), float(raw[i]) - total) for i in likeliest(raw, count))
    return Draw(token, float(raw[token]) - total, top)


def no_choice(logits: Row, position: int) -> EngineError:
    """Says which logit leaves no choice."""
    count = logits.shape[0]
    bad = np.flatnonzero(~(logits < math.inf))
    if len(bad):
        return EngineError(f"logits at position {position}: token {bad[0]} of {count} has {logits[bad[0]]}")
    return EngineError(f"logits at position {position}: all {count} are -inf, no token can be drawn")


def adjusted(logits: Row, params: SamplingParams, history: TokenCounts) -> Row:
    """The logits after penalties and bias; the same array when there are none."""
    if params.neutral:
        return logits
    values = logits.copy()
    if params.repeat_penalty != 1.0:
        ids = history.seen()
        seen, by = values[ids], np.float32(params.repeat_penalty)
        values[ids] = np.where(seen > 0, seen / by, seen * by)
    if params.presence_penalty or params.frequency_penalty:
        ids, counts = history.answered()
        values[ids] -= (params.presence_penalty + params.frequency_penalty * counts).astype(np.float32)
    for token, bias in params.logit_bias:
        if not 0 <= token < values.shape[0]:
            raise RequestError(f"logit_bias: token {token} is not in 0 to {values.shape[0] - 1}", param="logit_bias")
        values[token] += np.float32(bias)
    return values


def likeliest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Ids of the `count` largest values, largest first, lower ids first among equals."""
    size = values.shape[0]
    if count == 0:
        return np.empty(0, dtype=np.int64)
    border = np.partition(values, size - min(count, size))[size - min(count, size)]
    ids = np.flatnonzero(values >= border)
    return ids[np.lexsort((ids, -values[ids]))][:count]
