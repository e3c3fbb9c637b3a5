"""A GGUF file of a published shape for benchmarks beside other engines, written as fast as the disk takes it.

    PYTHONPATH=src python benchmarks/device/drawn_file.py OUT.gguf [--arch qwen3moe] [--type Q4_K] [--down-type Q6_K]
        [--expert-type T] [--layers N] [--skew 0.5]

`strata synth` encodes thousands of rows for every tensor, which takes minutes at published sizes. Here every matrix
takes its rows from a pool of 256 per format, row length and size of values; every tensor still has bytes of its own.
Routers are drawn one by one, so that layers choose different experts.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from strata.checkpoint.typed import u32
from strata.checkpoint.writer import TensorSource, write_gguf
from strata.convert.shapes import Shape, shape_of
from strata.convert.synth import Randomness, gain, plan_synth
from strata.convert.synth_keys import synth_keys
from strata.convert.synth_tensors import tensor_shapes
from strata.convert.tensors import Bytes, Floats, Item
from strata.convert.types import Choice, Types
from strata.convert.write import file_type
from strata.quant.encode import encode, needs_importance

POOL_ROWS = 256
PIECE_ROWS = 16_384
"""Rows of a tensor in memory at once."""


class Pools:
    """Encoded rows that tensors of a kind share, made when the first of them is written."""

    def __init__(self, random: Randomness) -> None:
        self.random = random
        self.made: dict[tuple[str, int, str, float], Bytes] = {}

    def rows(self, choice: Choice, kind: str) -> Bytes:
        """uint8 [at most POOL_ROWS, row_bytes] of the tensor's format and of values of its size."""
        item = choice.item
        key = (choice.format.name, item.columns, kind, gain(item.name))
        if key not in self.made:
            few = Item(item.name, (POOL_ROWS, item.columns), item.pieces, item.stored)
            self.made[key] = encoded(choice, self.random.values(few, kind))
        return self.made[key]


def encoded(choice: Choice, values: Floats) -> Bytes:
    """uint8 [rows, row_bytes] of `values` float32 [rows, cols] in the tensor's format."""
    weights = np.ones(choice.item.columns, np.float32) if needs_importance(choice.format) else None
    return encode(choice.format, values, weights)


def pieces(choice: Choice, kind: str, pools: Pools) -> Iterator[Bytes]:
    """The tensor's rows, some thousands at a time."""
    rows = choice.item.count // choice.item.columns
    if kind not in ("matrix", "embedding"):
        yield encoded(choice, pools.random.values(choice.item, kind))
        return
    pool = pools.rows(choice, kind)
    for start in range(0, rows, PIECE_ROWS):
        yield pool[pools.random.generator.integers(0, len(pool), min(PIECE_ROWS, rows - start))]


def write(path: Path, shape: Shape, types: Types, seed: int = 1, skew: float = 0.0) -> None:
    """Write the model; the same seed gives the same file. With `skew` above 0 some experts are hot."""
    choices = plan_synth(shape, types)
    kinds = {item.name: kind for item, kind in tensor_shapes(shape)}
    pools = Pools(Randomness(np.random.default_rng(seed), skew))

    def source(choice: Choice) -> TensorSource:
        item = choice.item
        return TensorSource(item.name, item.shape, choice.format, lambda: pieces(choice, kinds[item.name], pools))

    keys = synth_keys(shape) | {"general.file_type": u32(file_type(choices))}
    write_gguf(path, keys, [source(choice) for choice in choices])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", default="qwen3moe")
    parser.add_argument("--scale", default="real")
    parser.add_argument("--type", default="Q4_K")
    parser.add_argument("--expert-type")
    parser.add_argument("--down-type", default="Q6_K")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--skew", type=float, default=0.0)
    asked = parser.parse_args()
    began = time.perf_counter()
    shape = shape_of(asked.arch, asked.scale, asked.layers, None)
    write(asked.out, shape, Types(asked.type, asked.expert_type, asked.down_type), skew=asked.skew)
    seconds, size = time.perf_counter() - began, asked.out.stat().st_size
    sys.stdout.write(f"{asked.out}: {size / 1e9:.1f} GB in {seconds:.0f} s\n")


if __name__ == "__main__":
    main()
