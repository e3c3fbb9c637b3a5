"""Perplexity of a text, by the definition of llama.cpp's llama-perplexity, so that figures can be compared.

The text's tokens are cut into chunks of `context`; what is left over is not used. Each chunk is read from an empty
state, its first token replaced by the begin token when the model wants one. Scored is the prediction of every token
after the chunk's middle one: of a chunk of n, tokens n/2 + 1 to n - 1. With p_i the probability of a scored token,
perplexity = exp(mean of -ln p_i); its uncertainty is that times the standard error of the mean.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.chat.tokenizer import Tokenizer
from strata.core.errors import UsageError
from strata.core.window import Window
from strata.runtime.runner import DeviceRunner


@dataclass(frozen=True, slots=True)
class Perplexity:
    """The figure after `chunks` chunks."""

    chunks: int
    scored: int
    """Tokens whose probability counts."""
    value: float
    uncertainty: float


def encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """The text's tokens, the begin token first when the model wants one; one line end at the end is dropped."""
    return tokenizer.encode(text.removesuffix("\n"))


def perplexities(
    runner: DeviceRunner, tokens: Sequence[int], context: int, chunks: int | None, bos: int | None
) -> Iterator[Perplexity]:
    """The figure after each chunk; UsageError when the text has fewer than two chunks of tokens."""
    found = len(tokens) // context
    if found < 2:
        raise UsageError(
            f"--text: expected at least {2 * context} tokens (two chunks of {context}), found {len(tokens)}"
        )
    total, squares, scored = 0.0, 0.0, 0
    for chunk in range(found if chunks is None else min(found, chunks)):
        part = list(tokens[chunk * context : (chunk + 1) * context])
        losses = chunk_losses(runner, part if bos is None else [bos, *part[1:]], context // 2)
        total += float(losses.sum())
        squares += float((losses**2).sum())
        scored += len(losses)
        mean = total / scored
        spread = max(0.0, squares / scored - mean * mean)
        value = math.exp(mean)
        error = math.sqrt(spread / (scored - 1)) if scored > 1 else 0.0
        yield Perplexity(chunk + 1, scored, value, error * value)


def chunk_losses(runner: DeviceRunner, tokens: Sequence[int], first: int) -> npt.NDArray[np.float64]:
    """-ln p of tokens first + 1 .. end, each given all before it."""
    runner.states.clear(0)
    losses = []
    size = runner.limits.step_tokens
    for start in range(0, len(tokens), size):
        stop = min(start + size, len(tokens))
        score = max(0, stop - max(start, first))
        logits = runner.forward([Window(0, start, tuple(tokens[start:stop]), score)])
        runner.states.commit(0, stop - start, runner.ops)
        for row, position in zip(logits, range(stop - score, stop), strict=True):
            if position + 1 < len(tokens):
                losses.append(loss(row, tokens[position + 1]))
    return np.array(losses)


def loss(logits: npt.NDArray[np.float32], token: int) -> float:
    """-ln softmax(logits)[token], in float64."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return math.log(float(np.exp(shifted).sum())) - float(shifted[token])
