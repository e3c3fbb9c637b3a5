"""Drafts are drawn as the model's own tokens are."""

import numpy as np
import pytest
import torch

from strata.kernels.naive_ops import NaiveOps
from strata.sampling.history import TokenCounts
from strata.sampling.params import SamplingParams
from strata.sampling.sample import sample
from strata.speculate.drawn import drafted

SETTINGS = (
    SamplingParams(),
    SamplingParams(temperature=1.3, seed=4, top_k=9),
    SamplingParams(temperature=0.8, seed=5, repeat_penalty=1.4, presence_penalty=0.5),
    SamplingParams(seed=6, logit_bias=((3, 5.0),), logprobs=2),
)
SIZE = 40


def choose(logits, *rest):
    return NaiveOps().choose(torch.from_numpy(logits), *rest)


@pytest.mark.parametrize("params", SETTINGS)
def test_with_the_models_logits_a_draft_is_the_models_token(params):
    """Whatever is left out of the vocabulary: the draw among the rest is that of a model that gives those no chance."""
    history = TokenCounts([1, 2, 3])
    history.append(7)
    some = np.array([0, 2, 3, 7, 11, 12, 30, 31])
    for seed in range(20):
        logits = np.random.default_rng(seed).normal(size=SIZE).astype(np.float32) * 3
        expected = sample(logits, params, 9 + seed, history, choose).token
        token, share = drafted(logits, params, 9 + seed, history, choose, None, SIZE)
        assert token == expected
        weights = np.exp(logits.astype(np.float64))
        assert share == pytest.approx(weights[token] / weights.sum(), rel=1e-4)
        without = np.full(SIZE, -np.inf, np.float32)
        without[some] = logits[some]
        token, share = drafted(logits[some], params, 9 + seed, history, choose, some, SIZE)
        assert token == sample(without, params, 9 + seed, history, choose).token
        assert share == pytest.approx(weights[token] / weights[some].sum(), rel=1e-4)
