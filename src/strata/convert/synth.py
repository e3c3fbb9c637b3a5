"""Random models of published shapes, for benchmarks and tests: right sizes and formats, meaningless text."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from strata.checkpoint.typed import u32
from strata.checkpoint.writer import TensorSource, write_gguf
from strata.convert.shapes import Shape
from strata.convert.synth_keys import synth_keys
from strata.convert.synth_tensors import tensor_shapes
from strata.convert.tensors import Bytes, Floats, Item
from strata.convert.types import Choice, Types, choose_all
from strata.convert.write import Counter, Progress, file_type
from strata.quant.encode import encode, needs_importance

POOL_ROWS = 2048
"""A matrix of more rows is drawn from this many encoded ones: i-quants encode only about a million values a second."""


def plan_synth(shape: Shape, types: Types) -> list[Choice]:
    """Every tensor of the model with its format."""
    return choose_all([item for item, _ in tensor_shapes(shape)], types)


def synth(target: Path, shape: Shape, types: Types, seed: int, skew: float, progress: Progress) -> list[Choice]:
    """Write a random model; returns its tensors. With `skew` some experts are hot (see `Randomness.router`)."""
    choices = plan_synth(shape, types)
    kinds = {item.name: kind for item, kind in tensor_shapes(shape)}
    random = Randomness(np.random.default_rng(seed), skew)
    counter = Counter(progress, sum(c.item.count for c in choices))

    def source(choice: Choice) -> TensorSource:
        def make() -> Iterator[Bytes]:
            yield from drawn(choice, random.values(choice.item, kinds[choice.item.name]), random)
            counter.add(choice.item.name, choice.item.count)

        return TensorSource(choice.item.name, choice.item.shape, choice.format, make)

    keys = synth_keys(shape) | {"general.file_type": u32(file_type(choices))}
    write_gguf(target, keys, [source(c) for c in choices])
    return choices


def drawn(choice: Choice, values: Floats, random: "Randomness") -> Iterator[Bytes]:
    """The encoded rows of `values`; where the tensor has more rows, random ones of them over and over."""
    item = choice.item
    weights = np.ones(item.columns, np.float32) if needs_importance(choice.format) else None
    data = encode(choice.format, values, weights)
    rows = item.count // item.columns
    if len(data) == rows:
        yield data
        return
    for start in range(0, rows, POOL_ROWS * 16):
        yield data[random.generator.integers(0, len(data), min(POOL_ROWS * 16, rows - start))]


@dataclass(frozen=True, slots=True)
class Randomness:
    """Sizes of numbers that keep activations alive through many layers."""

    generator: np.random.Generator
    skew: float

    def values(self, item: Item, kind: str) -> Floats:
        """float32 [rows, cols], at most POOL_ROWS rows of a matrix."""
        if kind in _VECTORS:
            noise = self.generator.standard_normal(item.count, dtype=np.float32)
            return _VECTORS[kind](noise).reshape(-1, item.columns)
        rows = min(item.count // item.columns, POOL_ROWS)
        x = self.generator.standard_normal((rows, item.columns), dtype=np.float32)
        if kind == "embedding":
            return x * np.float32(0.5)
        x *= np.float32(gain(item.name) / np.sqrt(item.columns))
        return self.router(x) if kind == "router" else x

    def router(self, x: Floats) -> Floats:
        """Rows of unequal length, exp(skew * N(0, 1)): long ones win more often than others."""
        if not self.skew:
            return x
        lengths: Floats = np.exp(np.float32(self.skew) * self.generator.standard_normal((len(x), 1), dtype=np.float32))
        return x * lengths


def gain(name: str) -> float:
    """Experts a little louder than other matrices; logits of the vocabulary and of routers spread."""
    if name.startswith("output.") or "ffn_gate_inp." in name:
        return 3.0
    return 1.5 if "_exps" in name else 1.0


_VECTORS: dict[str, Callable[[Floats], Floats]] = {
    "norm": lambda z: 1 + np.float32(0.1) * z,
    "decay": lambda z: -np.exp(z),
    "dt": lambda z: z - 2,
    "conv": lambda z: np.float32(0.5) * z,
    "gate": lambda z: np.float32(0.05) * z,
}
"""Norms near 1, decay rates negative, time steps small."""
