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
        self.tokens: list[int] | None = None if scored.tokens is None else scored.tokens.tolist()
        self.host = scored.host
        self.largest: list[int] | None = None
        """Of each row, once one was asked for."""
        if self.tokens is None:
            memory.wait()

    def row(self, number: int) -> npt.NDArray[np.float32]:
        """The logits of one row."""
        return self.all()[number] if self.host is not None else on_host(self.logits[number])

    def all(self) -> npt.NDArray[np.float32]:
        """The logits of all rows."""
        if self.host is None:
            self.host = on_host(self.logits)
        return self.host

    def token(self, number: int, params: SamplingParams) -> int | None:
        """The row's token, where it was chosen as `params` say or is the largest.

        None where the host has to draw it, or to say why it cannot.
        """
        if needs_logits(params):
            return None
        if self.tokens is None:
            return None if params.temperature else self.greedy(number)
        return None if self.tokens[number] < 0 else self.tokens[number]

    def greedy(self, number: int) -> int | None:
        """The row's largest logit, looked for in all rows at once; None when it is no number."""
        rows = self.all()
        if self.largest is None:
            self.largest = rows.argmax(axis=1).tolist()
        token = self.largest[number]
        return token if math.isfinite(rows[number, token]) else None


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
