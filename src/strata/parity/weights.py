"""Weights as the reference reads them: matrices stay in file bytes until they are used."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.checkpoint.checkpoint import Checkpoint
from strata.core.errors import CheckpointError
from strata.quant.decode import dequantise
from strata.quant.format import QuantFormat
from strata.quant.formats import FORMATS

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

CHUNK_VALUES = 1 << 24
"""Values decoded at a time: 128 MiB of float64."""


def round_activation(x: Array) -> Array:
    """`x` after docs/numerics.md rule 1: blocks of 32 as int8 times a float32 step; what a quantised matrix sees."""
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, 32)
    step = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
    codes = np.clip(np.rint(blocks / np.where(step == 0, np.float32(1), step)), -127, 127)
    rounded: Array = (codes.astype(np.float64) * step.astype(np.float64)).reshape(x.shape)
    return rounded


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of a matrix [rows, cols] in file bytes; y = x W^T."""

    name: str
    format: QuantFormat
    raw: npt.NDArray[np.uint8]
    """[rows, bytes of a row]."""
    cols: int
    scale: float = 1.0
    """Multiplies every value."""
    scales: npt.NDArray[np.float32] | npt.NDArray[np.uint8] | None = None
    """The scale plane of the whole matrix, for formats that keep it apart."""
    numbers: Indices | None = None
    """Row numbers in the file, once rows were taken."""

    @property
    def rows(self) -> int:
        """Output width."""
        return int(self.raw.shape[0])

    def take(self, rows: Indices | Sequence[int]) -> "Matrix":
        """The matrix of the listed rows, in that order."""
        at = np.asarray(rows, dtype=np.int64)
        numbers = at if self.numbers is None else self.numbers[at]
        return Matrix(self.name, self.format, self.raw[at], self.cols, self.scale, self.scales, numbers)

    def values(self) -> Array:
        """All values, decoded [rows, cols]."""
        return dequantise(self.format, self.raw, self.scales, self.numbers).astype(np.float64) * self.scale

    def apply(self, x: Array) -> Array:
        """x [..., cols] -> [..., rows]; x is rounded first when the matrix is quantised."""
        if x.shape[-1] != self.cols:
            raise CheckpointError(f"tensor {self.name}: expected {x.shape[-1]} columns, found {self.cols}")
        seen = round_activation(x) if self.format.sub else x
        step = max(1, CHUNK_VALUES // self.cols)
        parts = [seen @ self.take(range(a, min(a + step, self.rows))).values().T for a in range(0, self.rows, step)]
        return np.concatenate(parts, axis=-1)


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Softmax attention; the index part only where positions are selected."""

    query: Matrix
    key: Matrix
    value: Matrix
    output: Matrix
    query_norm: Array | None = None
    key_norm: Array | None = None
    index_query: Matrix | None = None
    index_key: Matrix | None = None
    index_query_norm: Array | None = None
    index_key_norm: Array | None = None


@dataclass(frozen=True, slots=True)
class DeltaWeights:
    """Gated DeltaNet, value heads in file order."""

    qkv: Matrix
    gate: Matrix
    beta: Matrix
    alpha: Matrix
    conv: Array
    """[channels, kernel], the last tap is the current token."""
    rate: Array
    """-exp(A_log) [value heads]."""
    bias: Array
    norm: Array
    output: Matrix


@dataclass(frozen=True, slots=True)
class Gated:
    """down(silu(gate x) * up x)."""

    gate: Matrix
    up: Matrix
    down: Matrix


@dataclass(frozen=True, slots=True)
class MoeWeights:
    """Router, routed experts and, in most families, one shared expert with its own gate row [1, hidden]."""

    router: Matrix
    experts: tuple[Gated, ...]
    shared: Gated | None = None
    shared_gate: Matrix | None = None


@dataclass(frozen=True, slots=True)
class HyperWeights:
    """A hyper-connection read; the final one has no `inject`."""

    norm: Array
    down: Matrix
    up: Matrix
    inject: Matrix | None


@dataclass(frozen=True, slots=True)
class NgramWeights:
    """The n-gram embedding of one layer."""

    table: Matrix
    key: Matrix
    value: Matrix
    key_norm: Array
    query_norm: Array
    conv_norm: Array
    conv: Array


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; what a family does not have is None."""

    mixer: AttentionWeights | DeltaWeights
    feed: MoeWeights | Gated
    mixer_norm: Array | None = None
    feed_norm: Array | None = None
    hyper_mixer: HyperWeights | None = None
    hyper_feed: HyperWeights | None = None
    ngram: NgramWeights | None = None


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """A whole model."""

    embedding: Matrix
    layers: tuple[LayerWeights, ...]
    head: Matrix
    norm: Array | None = None
    hyper: HyperWeights | None = None


class Source:
    """Tensors of a checkpoint by name, as float64 vectors or as matrices."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def __contains__(self, name: str) -> bool:
        return name in self.checkpoint.tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape; CheckpointError when it is missing."""
        if name not in self.checkpoint.tensors:
            raise CheckpointError(f"{self.checkpoint.path}: tensor {name}: expected by the reference, not found")
        return self.checkpoint.tensors[name].shape

    def array(self, name: str) -> Array:
        """A small tensor in full, in its own shape."""
        shape = self.shape(name)
        ref = self.checkpoint.tensors[name]
        raw = self.checkpoint.bytes_of(ref).reshape(-1, ref.format.row_bytes(shape[-1] if shape else 1))
        return dequantise(ref.format, raw).astype(np.float64).reshape(shape)

    def matrix(self, name: str) -> Matrix:
        """A tensor [rows, cols], or a stack of them laid out as one (leading axes joined)."""
        shape = self.shape(name)
        ref = self.checkpoint.tensors[name]
        stem, cols = name.removesuffix(".weight"), shape[-1]
        raw = self.checkpoint.bytes_of(ref).reshape(-1, ref.format.row_bytes(cols))
        if f"{stem}.weight_scale_inv" in self:
            scales = self.array(f"{stem}.weight_scale_inv").astype(np.float32)
            return Matrix(name, FORMATS["FP8_BLOCK"], raw, cols, scales=scales)
        if f"{stem}.weight_scale_2" in self:
            plane = self.checkpoint.bytes_of(self.checkpoint.tensors[f"{stem}.weight_scale"]).reshape(len(raw), -1)
            scale = float(self.array(f"{stem}.weight_scale_2").reshape(()))
            return Matrix(name, FORMATS["NVFP4_PAIRS"], raw, 2 * cols, scale, plane)
        for side in (f"{stem}.weight_scale", f"{stem}.scale"):
            if side in self and self.array(side).size == 1:
                return Matrix(name, ref.format, raw, cols, float(self.array(side).reshape(())))
        return Matrix(name, ref.format, raw, cols)

    def stack(self, name: str, first: int = 0, count: int | None = None) -> list[Matrix]:
        """The matrices of a tensor [experts, rows, cols], each cut to rows first .. first + count."""
        experts, rows, _ = self.shape(name)
        whole = self.matrix(name)
        wanted = rows - first if count is None else count
        starts = [e * rows + first for e in range(experts)]
        parts = [
            Matrix(f"{name}[{e}]", whole.format, whole.raw[a : a + wanted], whole.cols, whole.scale)
            for e, a in enumerate(starts)
        ]
        scales = name.removesuffix(".weight") + ".scale"
        if scales in self and self.array(scales).size == experts:
            factors = self.array(scales).reshape(-1)
            parts = [Matrix(m.name, m.format, m.raw, m.cols, float(f)) for m, f in zip(parts, factors, strict=True)]
        return parts


def join(parts: Sequence[Matrix]) -> Matrix:
    """Matrices of one format and width, one below the other."""
    first = parts[0]
    if any(p.format != first.format or p.cols != first.cols for p in parts):
        raise CheckpointError(f"tensor {first.name}: its shards differ in format or width")
    return Matrix(first.name, first.format, np.concatenate([p.raw for p in parts]), first.cols, first.scale)
