"""How a token is drawn from a drafter's logits."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from strata.sampling.history import TokenCounts
from strata.sampling.params import SamplingParams
from strata.sampling.sample import Choose, sample

Logits = npt.NDArray[np.float32]


def drafted(  # noqa: PLR0913 - what a draw needs, and what the drafter knows
    logits: Logits,
    params: SamplingParams,
    position: int,
    history: TokenCounts,
    choose: Choose,
    tokens: npt.NDArray[np.int64] | None,
    vocabulary: int,
    mask: npt.NDArray[np.bool_] | None = None,
) -> tuple[int, float]:
    """The token that a request draws at `position` from a drafter's logits, and its probability by them.

    `tokens` are those that the logits are of (int64, increasing), None for all of the `vocabulary`. The draw is the
    model's own (same seed and position, among what `mask` allows): where the two agree on what is likely, they mostly
    draw the same. A drafter that knows no token which is allowed draws without the mask, with probability 0.
    """
    if params.neutral and params.temperature == 0:
        place = int(np.argmax(logits))
        token = place if tokens is None else int(tokens[place])
    else:
        full = spread(logits, tokens, vocabulary)
        if mask is not None and not np.isfinite(full[mask]).any():
            return int(np.argmax(full)), 0.0
        token = sample(full, replace(params, logprobs=-1), position, history, choose, mask).token
        place = token if tokens is None else int(np.searchsorted(tokens, token))
    shares = np.exp(logits - logits.max())
    return token, float(shares[place] / shares.sum())


def spread(logits: Logits, tokens: npt.NDArray[np.int64] | None, vocabulary: int) -> Logits:
    """Logits of all tokens; those that the drafter does not know have none."""
    if tokens is None:
        return logits
    full = np.full(vocabulary, -np.inf, np.float32)
    full[tokens] = logits
    return full
