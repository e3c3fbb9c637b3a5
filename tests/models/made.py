"""Files of the tiny oracles, made once per process, and changed copies of them."""

import atexit
import functools
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGUFValueType as V
from safetensors.torch import load_file, save_file

from oracles.build import GGUF_NAMES, Oracle, build
from oracles.gguf_writer import Transformer, arrays, sizes
from strata.checkpoint.locate import open_checkpoint
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.native import Native
from strata.kernels.ops import Ops
from strata.kernels.views import KvType
from strata.models.base import Model
from strata.models.registry import build_model
from strata.runtime.runner import DeviceRunner

CHUNKS = (20, 5, 1, 19)
counter = itertools.count()


@functools.cache
def folder() -> Path:
    """A directory that goes when the process does."""
    path = Path(tempfile.mkdtemp(prefix="strata-oracles-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.cache
def oracle(name: str) -> Oracle:
    torch.set_num_threads(1)
    return build(name)


@functools.cache
def path_of(name: str, form: str) -> Path:
    """The oracle as a safetensors folder ("saved") or a GGUF file ("gguf")."""
    if form == "gguf":
        return Gguf(name).write()
    path = folder() / name
    oracle(name).model.save_pretrained(path)
    return path


@dataclass
class Gguf:
    """A GGUF file of an oracle, to be changed before it is written."""

    name: str
    keys: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, tuple[list[Any], V]] = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    architecture: str = ""

    def __post_init__(self) -> None:
        self.architecture = GGUF_NAMES[self.name]
        self.keys = dict(sizes(oracle(self.name).model.config, self.architecture))
        self.arrays = dict(arrays(oracle(self.name), self.architecture))
        self.tensors = dict(Transformer(oracle(self.name)).all())

    def write(self) -> Path:
        path = folder() / f"{self.name}-{next(counter)}.gguf"
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.keys.items():
            kind = V.STRING if isinstance(value, str) else V.FLOAT32 if isinstance(value, float) else V.UINT32
            writer.add_key_value(f"{self.architecture}.{key}", value, kind)
        for key, (values, item) in self.arrays.items():
            writer.add_key_value(f"{self.architecture}.{key}", values, V.ARRAY, item)
        for name, tensor in self.tensors.items():
            writer.add_tensor(name, np.ascontiguousarray(tensor, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


@dataclass
class Folder:
    """A safetensors folder of an oracle, to be changed before it is written."""

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        base = path_of(self.name, "saved")
        self.config = json.loads((base / "config.json").read_text())
        self.tensors = load_file(base / "model.safetensors")

    def write(self) -> Path:
        path = folder() / f"{self.name}-{next(counter)}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(self.config))
        save_file({k: v.contiguous() for k, v in self.tensors.items()}, path / "model.safetensors")
        return path


def changed(made: Gguf | Folder, change: Callable[[Any], object]) -> Path:
    """The file after `change`."""
    change(made)
    return made.write()


@functools.cache
def ops_of(threads: int = 1, isa: str = "auto") -> CpuOps:
    return CpuOps(Native(threads, isa))


atexit.register(ops_of.cache_clear)
"""Threads end while the interpreter still stands."""


def load(path: Path, ops: Ops | None = None) -> Model:
    """The model of a file; the file stays mapped for as long as the model lives."""
    return build_model(open_checkpoint(path), ops or ops_of())


def runner_of(
    path: Path, ops: Ops | None = None, slots: int = 1, context: int = 256, kv_type: KvType = "f32"
) -> DeviceRunner:
    used = ops or ops_of()
    return DeviceRunner(load(path, used), used, Limits(slots, context, 64), kv_type=kv_type)


def logits_of(path: Path, ids: list[int], ops: Ops | None = None, chunks: tuple[int, ...] = CHUNKS) -> np.ndarray:
    """float32 [T, vocabulary]: one slot, every position scored, read in chunks."""
    runner, found, start = runner_of(path, ops), [], 0
    for size in itertools.cycle(chunks):
        part = tuple(ids[start : start + size])
        if not part:
            return np.concatenate(found)
        found.append(runner.forward([Window(0, start, part, len(part))]).copy())
        runner.states.commit(0, len(part), runner.ops)
        start += len(part)
    raise AssertionError


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def off(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference relative to the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())
