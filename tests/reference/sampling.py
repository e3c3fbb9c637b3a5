"""The sampling rules again, written for reading: plain Python over a full sort."""

import math
from collections.abc import Sequence

from strata.sampling.params import SamplingParams


def adjusted(
    logits: Sequence[float], params: SamplingParams, prompt: Sequence[int], answer: Sequence[int]
) -> list[float]:
    """Logits after penalties and bias."""
    values = list(logits)
    for token in {*prompt, *answer}:
        value = values[token]
        values[token] = value / params.repeat_penalty if value > 0 else value * params.repeat_penalty
    for token in set(answer):
        values[token] -= params.presence_penalty + params.frequency_penalty * answer.count(token)
    for token, bias in params.logit_bias:
        values[token] += bias
    return values


def distribution(values: Sequence[float], params: SamplingParams) -> dict[int, float]:
    """Probability of each token that may be drawn at temperature > 0."""
    peak = max(values)
    weights = {token: math.exp((value - peak) / params.temperature) for token, value in enumerate(values)}
    ranked = sorted(weights, key=lambda token: (-weights[token], token))
    if params.top_k:
        ranked = ranked[: params.top_k]
    if params.top_p < 1.0:
        whole, run, chosen = math.fsum(weights[token] for token in ranked), 0.0, []
        for token in ranked:
            chosen.append(token)
            run += weights[token]
            if run >= params.top_p * whole:
                break
        ranked = chosen
    if params.min_p > 0.0:
        ranked = [token for token in ranked if weights[token] >= params.min_p]
    whole = math.fsum(weights[token] for token in ranked)
    return {token: weights[token] / whole for token in sorted(ranked)}
