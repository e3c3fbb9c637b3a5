"""What the host reads of a step: tokens that a device chose, and the logits of rows that need a look."""

import math

import numpy as np
import numpy.typing as npt
import torch

from strata.runtime.pack import Wish
from strata.runtime.steps import Scored
from strata.sampling.params import SamplingParams
from strata.sampling.philox import uniform
from strata.state.memory import Memory

ANY = Wish(0.0, 0, 1.0, 0.0, 0.0)
"""For rows whose token the host chooses."""


class Outcome:
    """The scored rows of one step, numbered through its windows. Making one waits for the step to end."""

    def __init__(self, scored: Scored, memory: Memory) -> None:
        self.logits = scored.logits
        self.rows = scored.rows
        self.routed = scored.routed
        memory.wait()
        self.tokens: list[int] | None = None if scored.tokens is None else scored.tokens.tolist()
        self.host = scored.host
        self.largest: list[int] | None = None
        """Of each row, once one was asked for."""

    def row(self, number: int) -> npt.NDArray[np.float32]:
        """The logits of one row."""
        return self.all()[number] if self.host is not None else on_host(self.logits[number])

    def all(self) -> npt.NDArray[np.float32]:
        """The logits of all rows."""
        if self.host is None:
            self.host = on_host(self.logits)
        return self.host

    def chosen(self, first: int, count: int, params: SamplingParams) -> list[int] | None:
        """The tokens of `count` rows from `first` on, where they were chosen as `params` say or are the largest.

        None where the host has to draw one of them, or to say why it cannot. `params` ask for nothing but the logits.
        """
        if self.tokens is None:
            return None if params.temperature else self.greedy(first, count)
        found = self.tokens[first : first + count]
        return None if min(found) < 0 else found

    def greedy(self, first: int, count: int) -> list[int] | None:
        """The largest logits of these rows, looked for in all rows at once; None when one is no number."""
        rows = self.all()
        if self.largest is None:
            self.largest = rows.argmax(axis=1).tolist()
        found = self.largest[first : first + count]
        return found if all(math.isfinite(rows[first + i, token]) for i, token in enumerate(found)) else None


def on_host(tensor: torch.Tensor) -> npt.NDArray[np.float32]:
    """A copy in the host's memory."""
    return tensor.cpu().numpy()


def needs_logits(params: SamplingParams) -> bool:
    """Whether the host looks at the logits: for penalties, biases, masks and reported probabilities."""
    return not params.neutral or params.logprobs >= 0


def wish_of(params: SamplingParams, position: int) -> Wish:
    """How a device chooses the token at `position`."""
    if needs_logits(params):
        return ANY
    mark = uniform(params.seed, position) if params.temperature else 0.0
    return Wish(params.temperature, params.top_k, params.top_p, params.min_p, mark)
