"""What a request asks of the sampler. Pure: no torch, no numpy."""

import math
from dataclasses import dataclass, field

from strata.core.errors import RequestError
from strata.sampling.constraint import Constraint


def _within(name: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise RequestError(f"{name} must be from {low:g} to {high:g}, found {value!r}", param=name)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling settings with llama.cpp's and OpenAI's meanings; the defaults are greedy and neutral.

    Order: penalties and bias on the logits, then what the constraint does not allow is left out, then temperature,
    top-k, top-p, min-p, then the draw of Philox(seed, position). temperature 0 takes the largest logit (ties: the lower
    id).
    """

    temperature: float = 0.0
    top_k: int = 0
    """0 = off."""
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    """Divides positive and multiplies negative logits of every token seen in prompt or answer."""
    presence_penalty: float = 0.0
    """Subtracted once from tokens of the answer so far."""
    frequency_penalty: float = 0.0
    """Subtracted per occurrence in the answer so far."""
    logit_bias: tuple[tuple[int, float], ...] = field(default=())
    seed: int = 0
    logprobs: int = -1
    """Alternatives to report per token; -1 = none at all, 0 = only the chosen token's."""
    constraint: Constraint | None = None
    """What the answer must look like."""

    @property
    def neutral(self) -> bool:
        """Whether neither a penalty nor a bias changes the logits, and every token is allowed."""
        free = self.constraint is None and not self.logit_bias
        return free and self.repeat_penalty == 1.0 and not (self.presence_penalty or self.frequency_penalty)

    def __post_init__(self) -> None:
        _within("temperature", self.temperature, 0.0, 100.0)
        _within("top_p", self.top_p, 0.0, 1.0)
        _within("min_p", self.min_p, 0.0, 1.0)
        _within("repeat_penalty", self.repeat_penalty, 0.01, 100.0)
        _within("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _within("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        if not 0 <= self.top_k < 1 << 31:
            raise RequestError(f"top_k must be 0 (off) or more, found {self.top_k}", param="top_k")
        if not 0 <= self.seed < 1 << 64:
            raise RequestError(f"seed must fit 64 bits, found {self.seed}", param="seed")
        if not -1 <= self.logprobs <= 20:
            raise RequestError(f"logprobs must be from -1 to 20, found {self.logprobs}", param="logprobs")
        for token, bias in self.logit_bias:
            _within(f"logit_bias[{token}]", bias, -1000.0, 1000.0)
