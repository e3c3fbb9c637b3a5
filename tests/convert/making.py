"""Converting in one call, oracles' folders, and the logits of files by the naive operations."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from kernels.natives import native
from oracles.build import Oracle, build
from strata.checkpoint.locate import open_checkpoint
from strata.convert.types import Choice, Types, choose_all
from strata.convert.write import Importance, keep, read_items, weighed, write_model
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.ops import Ops
from strata.parity.production import engine
from strata.quant.decode import dequantise

IDS = [5, 9, 100, 41, 198, 7, 66, 12, 150, 33, 3, 88, 17, 4, 120, 61, 19, 54]
"""Long enough that block selection drops blocks; an end-of-text token inside."""


@functools.cache
def oracle(name: str, wide: bool = False) -> Oracle:
    """Made once; nobody changes it."""
    torch.set_num_threads(1)
    return build(name, wide)


def logits(path: Path, ids: Sequence[int] = IDS, ops: Ops | None = None) -> npt.NDArray[np.float32]:
    """[T, vocabulary] of a checkpoint, read in two steps; by the naive operations when `ops` is None."""
    cut = len(ids) // 2
    _, found = engine(ops if ops is not None else NaiveOps())(path, ids, [cut, len(ids) - cut])
    return np.asarray(found, np.float32)


@functools.cache
def fast() -> Ops:
    """The same operations in C++, bit for bit, for models that the naive ones are slow for."""
    return CpuOps(native("auto", 1))


def convert(
    source: Path,
    target: Path,
    types: Types | None = None,
    drafting: bool = True,
    importance: Importance | None = None,
    threads: int = 1,
) -> list[Choice]:
    """What `strata convert` and `strata quantize` do, without words."""
    with open_checkpoint(source) as checkpoint:
        items, keys = read_items(checkpoint, drafting)
        choices = [keep(i) for i in items] if types is None else choose_all(items, types)
        choices = weighed(choices, importance)
        write_model(target, choices, keys, lambda *_: None, importance, threads)
    return choices


def values(path: Path, name: str) -> npt.NDArray[np.float32]:
    """A tensor of a GGUF file in its shape, decoded; a second scale beside it is applied."""
    with open_checkpoint(path) as checkpoint:
        ref = checkpoint.tensors[name]
        flat = np.ascontiguousarray(checkpoint.bytes_of(ref)).reshape(-1, ref.format.row_bytes(ref.shape[-1]))
        found = dequantise(ref.format, flat).reshape(ref.shape)
        side = name.removesuffix(".weight") + ".scale"
        if name.endswith(".weight") and side in checkpoint.tensors:
            scales = np.ascontiguousarray(checkpoint.bytes_of(checkpoint.tensors[side])).view(np.float32)
            found = found * scales.reshape(-1, *(1,) * (found.ndim - 1) if found.ndim == 3 else (1,))
        return found
