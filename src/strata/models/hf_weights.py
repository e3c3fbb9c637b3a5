"""Matrices of a safetensors folder, together with the scales that quantised folders keep beside them.

The forms (transformers' finegrained_fp8, ModelOpt's export), for a matrix X.weight or a stack of experts X:

    X.weight float8_e4m3fn, X.weight_scale_inv [out/128, in/128]     w = fp8 * scale of the 128 x 128 block
    X.weight float8_e4m3fn, X.weight_scale (one value)               w = fp8 * scale
    X.weight uint8 [out, in/2], X.weight_scale fp8 [out, in/16],
             X.weight_scale_2 (one value)                            w = e2m1 * scale of the 16 * scale_2

A stack [experts, out, in] has scales X_scale_inv, or X_weight_scale and X_weight_scale_2, with experts in front.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.tensor import TensorRef
from strata.core.errors import CheckpointError, UnsupportedError
from strata.kernels.views import Weight
from strata.models.source import PRODUCT_FLOATS, as_tensor, expect_shape, floats
from strata.quant.format import QuantFormat
from strata.quant.formats import FORMATS

BLOCK = 128
GROUP = 16
UNREAD = (".input_scale", ".k_scale", ".v_scale", "_input_scale")
"""Ends of names that only concern quantised activations and caches."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a tensor and its scales hold: one matrix, or one per expert."""

    ref: TensorRef
    weights: tuple[Weight, ...]
    used: tuple[str, ...]
    """Names of the tensors that were read."""


def stored_weights(checkpoint: Checkpoint, name: str) -> Stored:
    """The matrix (2-D) or matrices (3-D) under `name`; errors name file, tensor, expected and found."""
    ref = checkpoint.tensors.get(name)
    if ref is None:
        raise CheckpointError(f"{checkpoint.path}: tensor {name} is missing")
    if len(ref.shape) not in (1, 2, 3):
        raise CheckpointError(f"{ref.file}: tensor {name}: expected a matrix or a stack, found {list(ref.shape)}")
    names = _sides(checkpoint, name)
    sides = {role: checkpoint.tensors[n] for role, n in names.items()}
    if "inv" in sides and sides["inv"].count > 1:
        weights = _blocks(checkpoint, ref, sides["inv"])
    elif "second" in sides:
        weights = _pairs(checkpoint, ref, sides)
    else:
        one = sides.get("inv", sides.get("scale"))
        if one is not None:
            _expect_format(ref, FORMATS["FP8"])
        elif ref.format.name not in PRODUCT_FLOATS:
            raise UnsupportedError(
                f"{ref.file}: tensor {name}: {ref.format.name} without scales that are known cannot be multiplied with"
            )
        weights = _plain(checkpoint, ref, one)
    return Stored(ref, tuple(weights), (name, *names.values()))


def _sides(checkpoint: Checkpoint, name: str) -> dict[str, str]:
    """Names of the scales beside `name` by their role."""
    base = name.removesuffix(".weight")
    if base == name:
        names = {"inv": f"{name}_scale_inv", "scale": f"{name}_weight_scale", "second": f"{name}_weight_scale_2"}
    else:
        names = {"inv": f"{name}_scale_inv", "scale": f"{name}_scale", "second": f"{name}_scale_2"}
    return {role: n for role, n in names.items() if n in checkpoint.tensors}


def _shape(ref: TensorRef) -> tuple[int, int, int]:
    """(matrices, rows, columns)"""
    count, rows, cols = (1,) * (3 - len(ref.shape)) + ref.shape
    return count, rows, cols


def _expect_format(ref: TensorRef, fmt: QuantFormat, shown: str = "float8_e4m3fn") -> None:
    if ref.format.name != fmt.name:
        raise CheckpointError(f"{ref.file}: tensor {ref.name}: expected {shown}, found {ref.format.name}")


def _planes(checkpoint: Checkpoint, ref: TensorRef, count: int, rows: int) -> torch.Tensor:
    """uint8 [count, rows, row_bytes], zero-copy."""
    return as_tensor(checkpoint.bytes_of(ref).reshape(count, rows, -1))


def _ones(checkpoint: Checkpoint, ref: TensorRef, count: int) -> list[float]:
    """One value per matrix, or one for all."""
    if ref.count not in (1, count):
        wanted = "one value" if count == 1 else f"one value or {count}"
        raise UnsupportedError(f"{ref.file}: tensor {ref.name}: expected {wanted}, found shape {list(ref.shape)}")
    values: list[float] = floats(checkpoint, ref).tolist()
    return values if len(values) == count else values * count


def _plain(checkpoint: Checkpoint, ref: TensorRef, one: TensorRef | None) -> Iterator[Weight]:
    count, rows, cols = _shape(ref)
    data = _planes(checkpoint, ref, count, rows)
    scales = [1.0] * count if one is None else _ones(checkpoint, one, count)
    for e in range(count):
        yield Weight(ref.format, rows, cols, (data[e],), scales[e])


def _blocks(checkpoint: Checkpoint, ref: TensorRef, inv: TensorRef) -> Iterator[Weight]:
    key, (count, rows, cols) = "quantization_config.weight_block_size", _shape(ref)
    meta = checkpoint.metadata
    if key in meta and meta.integers(key, 2) != (BLOCK, BLOCK):
        raise UnsupportedError(f"{meta.file}: key {key}: expected [128, 128], found {list(meta.integers(key, 2))}")
    _expect_format(ref, FORMATS["FP8"])
    high, wide = -(-rows // BLOCK), -(-cols // BLOCK)
    expect_shape(inv, (count, high, wide))
    scales = floats(checkpoint, inv).view(count, high, wide)
    data = _planes(checkpoint, ref, count, rows)
    for e in range(count):
        yield Weight(FORMATS["FP8_BLOCK"], rows, cols, (data[e], scales[e]))


def _pairs(checkpoint: Checkpoint, ref: TensorRef, sides: dict[str, TensorRef]) -> Iterator[Weight]:
    count, rows, half = _shape(ref)
    fmt, cols = FORMATS["NVFP4_PAIRS"], 2 * half
    if ref.format.name != "U8":
        raise CheckpointError(f"{ref.file}: tensor {ref.name}: expected uint8 pairs, found {ref.format.name}")
    if cols % fmt.block:
        raise UnsupportedError(f"{ref.file}: tensor {ref.name}: rows of {cols} values are no multiple of {fmt.block}")
    if "scale" not in sides:
        raise CheckpointError(f"{ref.file}: tensor {ref.name}: expected a weight_scale beside weight_scale_2")
    first = sides["scale"]
    _expect_format(first, FORMATS["FP8"])
    expect_shape(first, (count, rows, cols // GROUP))
    data, scales = _planes(checkpoint, ref, count, rows), _planes(checkpoint, first, count, rows)
    second = _ones(checkpoint, sides["second"], count)
    for e in range(count):
        yield Weight(fmt, rows, cols, (data[e], scales[e]), second[e])
