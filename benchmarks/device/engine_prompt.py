"""Reading a prompt on a drawn model."""

import time
from typing import Any

import numpy as np
from engine_decode import Drawn

from strata.core.window import Window
from strata.sampling.params import SamplingParams


def prompt(drawn: Drawn, chunk: int, limit_s: float) -> dict[str, Any]:
    """Read a prompt in chunks, as far as `limit_s` goes; a chunk that is read before warms up and does not count."""
    tokens = drawn.scale.prompt
    chunk = min(chunk, tokens)
    runner = drawn.runner(1, tokens + 64)
    rng = np.random.default_rng(3)
    for warm in (min(64, chunk), chunk):
        runner.seat(0, ids := rng.integers(0, drawn.shape.vocabulary - 10, warm).tolist(), SamplingParams())
        runner.step([Window(0, 0, tuple(ids), 1)])
    ids = rng.integers(0, drawn.shape.vocabulary - 10, tokens).tolist()
    runner.seat(0, ids, SamplingParams())
    took: list[float] = []
    assert drawn.experts is not None
    ahead = drawn.experts.ahead.moved_bytes
    began = time.perf_counter()
    for start in range(0, tokens, chunk):
        part = tuple(ids[start : start + chunk])
        before = time.perf_counter()
        runner.step([Window(0, start, part, int(start + chunk >= tokens))])
        took.append(time.perf_counter() - before)
        if time.perf_counter() - began > limit_s:
            break
    return {
        "chunk": chunk,
        "tokens read": min(tokens, len(took) * chunk),
        "of": tokens,
        "tokens per second": min(tokens, len(took) * chunk) / sum(took),
        "copied ahead GB": (drawn.experts.ahead.moved_bytes - ahead) / 1e9,
        "first chunk s": took[0],
        "last chunk s": took[-1],
    }
