"""Perplexity against transformers' logits, by the published definition."""

import math

import numpy as np
import pytest
import torch

from chat.tiny_tokenizer import tiny
from models.made import oracle, path_of, runner_of
from strata.checks.perplexity import encode_text, loss, perplexities
from strata.core.errors import UsageError

CONTEXT = 16


@pytest.fixture(scope="module")
def runner():
    return runner_of(path_of("llama", "gguf"))


def expected(tokens, chunks, bos):
    """From one pass of transformers per chunk."""
    losses = []
    for c in range(chunks):
        part = list(tokens[c * CONTEXT : (c + 1) * CONTEXT])
        if bos is not None:
            part[0] = bos
        p = torch.log_softmax(oracle("llama").logits(part).double(), 1)
        losses += [-float(p[i, part[i + 1]]) for i in range(CONTEXT // 2, CONTEXT - 1)]
    mean = sum(losses) / len(losses)
    spread = sum(x * x for x in losses) / len(losses) - mean * mean
    return math.exp(mean), math.exp(mean) * math.sqrt(spread / (len(losses) - 1)), len(losses)


@pytest.mark.parametrize("bos", [None, 4])
def test_the_second_half_of_each_chunk_is_scored(runner, bos):
    tokens = [(7 * i * i + 3 * i) % 199 for i in range(3 * CONTEXT + 5)]
    found = list(perplexities(runner, tokens, CONTEXT, None, bos))
    assert [f.chunks for f in found] == [1, 2, 3]
    for f in found:
        value, uncertainty, scored = expected(tokens, f.chunks, bos)
        assert f.scored == scored == f.chunks * 7
        assert f.value == pytest.approx(value, rel=1e-4)
        assert f.uncertainty == pytest.approx(uncertainty, rel=1e-3)
    assert list(perplexities(runner, tokens, CONTEXT, 2, bos)) == found[:2]
    # Negative control: the begin token, and each token, count.
    assert list(perplexities(runner, tokens, CONTEXT, None, 9)) != found
    assert list(perplexities(runner, [*tokens[:40], 5, *tokens[41:]], CONTEXT, None, bos))[:2] == found[:2]
    assert list(perplexities(runner, [*tokens[:40], 5, *tokens[41:]], CONTEXT, None, bos))[2] != found[2]


def test_chunks_longer_than_a_step_are_read_in_several(runner):
    tokens = [(5 * i * i + i) % 199 for i in range(300)]
    (_, found) = perplexities(runner, tokens, 150, None, None)
    assert runner.limits.step_tokens == 64
    assert found.scored == 2 * 74


def test_too_short_a_text_is_refused(runner):
    with pytest.raises(UsageError, match=r"expected at least 32 tokens \(two chunks of 16\), found 31"):
        next(perplexities(runner, [1] * 31, CONTEXT, None, None))


def test_loss_is_exact_for_large_logits():
    assert loss(np.array([1000.0, 1000.0], np.float32), 1) == pytest.approx(math.log(2))


def test_one_line_end_is_dropped_and_the_begin_token_is_the_models():
    assert encode_text(tiny(), "one two\n\n") == tiny().encode("one two\n")
    begun = tiny(add_bos_token=True, bos_token_id=0)
    assert encode_text(begun, "one") == [0, *tiny().encode("one")]
