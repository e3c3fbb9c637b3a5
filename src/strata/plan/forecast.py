"""How fast a model will run, from its bytes and this machine's rates. Pure.

A decode step reads the dense weights and the distinct experts of its rows once, and each sequence's state; what it
computes counts only where the multiply units are slower than the memory. With n rows of top_k of E experts each, drawn
alike, E (1 - (1 - top_k / E)^n) experts of a layer are distinct; trained models repeat themselves and touch fewer.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """What a model asks of a machine."""

    dense: Mapping[str, int]
    """Bytes that every step reads, by format."""
    expert: Mapping[str, int]
    """Bytes of one expert, by format, in the mean over layers."""
    values: Mapping[str, float]
    """Weights per byte, by format."""
    layers: int
    """Layers with routed experts."""
    experts: int
    """Of each of them."""
    top_k: int
    token_bytes: int
    sequence_bytes: int
    calls: int = 0
    """Products that a step starts: of dense matrices, and of each layer's experts."""

    @property
    def expert_bytes(self) -> int:
        """Of one expert."""
        return sum(self.expert.values())

    def distinct(self, rows: int) -> float:
        """Experts of all layers that a step of so many independent rows reads."""
        if not self.experts:
            return 0.0
        return float(self.layers * self.experts * (1.0 - (1.0 - self.top_k / self.experts) ** rows))


@dataclass(frozen=True, slots=True)
class Rates:
    """What this machine does."""

    read_gbs: float
    """A plain read of memory, GB/s."""
    product_gbs: Mapping[str, float]
    """Bytes of weights per second of a product with one row, by format, GB/s."""
    product_gmacs: Mapping[str, float]
    """Multiply-adds per second of a product with many rows, by format, 10^9 per second."""
    call_us: float = 0.0
    """What starting a product takes, however small it is, microseconds; what lies between products goes with it."""


def step_seconds(work: Work, rates: Rates, slots: int, context: int) -> float:
    """One decode step of `slots` conversations that have read `context` tokens each."""
    distinct = work.distinct(slots)
    seconds = work.calls * rates.call_us / 1e6
    seconds += slots * (context * work.token_bytes + 2 * work.sequence_bytes) / (rates.read_gbs * 1e9)
    for name, nbytes in work.dense.items():
        seconds += _product(work, rates, name, nbytes, slots)
    for name, nbytes in work.expert.items():
        rows = slots * work.top_k * work.layers / distinct if distinct else 0.0
        seconds += _product(work, rates, name, nbytes * distinct, rows)
    return seconds


def _product(work: Work, rates: Rates, name: str, nbytes: float, rows: float) -> float:
    """Reading the weights, or multiplying, whichever takes longer."""
    reading = nbytes / (rates.product_gbs[name] * 1e9)
    return max(reading, rows * nbytes * work.values[name] / (rates.product_gmacs[name] * 1e9))


def prompt_seconds(work: Work, rates: Rates, tokens: int, chunk: int) -> float:
    """The products of a prompt; attention, which grows with its length, is not counted."""
    macs = 0.0
    for name, nbytes in work.dense.items():
        macs += nbytes * work.values[name] / rates.product_gmacs[name]
    for name, nbytes in work.expert.items():
        macs += work.layers * work.top_k * nbytes * work.values[name] / rates.product_gmacs[name]
    reading = sum(work.dense.values()) + work.distinct(min(chunk, tokens)) * work.expert_bytes
    chunks = -(-tokens // chunk)
    return max(tokens * macs / 1e9, chunks * (reading / (rates.read_gbs * 1e9) + work.calls * rates.call_us / 1e6))
