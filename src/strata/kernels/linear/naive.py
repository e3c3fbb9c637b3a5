"""The canonical product and its float twin: the specification (docs/numerics.md, sections 1 and 2)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from strata.kernels.exact import BLOCK, LANES, Array32, QuantisedRows, fma, lane_dot, lane_tree, multiply, quantise_rows
from strata.kernels.views import Weight
from strata.quant.decode import Codes, codes, dequantise

_CELLS = 1 << 19
"""Largest number of (row, output, lane) cells worked on at once, to stay within the processor's cache."""


def linear(x: torch.Tensor, weights: Sequence[Weight]) -> tuple[torch.Tensor, ...]:
    """y_i = x W_i^T: x float32 [T, K] -> [T, rows_i] each; x is quantised once for all matrices that hold codes.

    ValueError when K is not a weight's number of columns, or no multiple of 32 while the weight holds codes.
    """
    values = x.numpy()
    for weight in weights:
        if values.shape[1] != weight.cols:
            raise ValueError(f"rows of {values.shape[1]} values for a weight of {weight.cols} columns")
    coded = any(weight.format.kind == "codes" for weight in weights)
    quantised = quantise_rows(values) if coded else None
    return tuple(torch.from_numpy(_one(values, quantised, weight)) for weight in weights)


def _one(x: Array32, quantised: QuantisedRows | None, weight: Weight) -> Array32:
    """The product with one matrix, a band of its rows at a time."""
    raw, scales = weight_planes(weight)
    band = max(1, _CELLS // (LANES * max(1, len(x))))
    y = np.empty((len(x), weight.rows), np.float32)
    for start in range(0, weight.rows, band):
        rows = np.arange(start, min(start + band, weight.rows))
        if weight.format.kind == "codes" and quantised is not None:
            part = codes_product(quantised, codes(weight.format, raw[rows], scales, rows))
        else:
            part = lane_dot(x[:, None, :], dequantise(weight.format, raw[rows], scales, rows)[None, :, :])
        y[:, rows] = part
    return y if weight.scale == 1.0 else multiply(y, np.float32(weight.scale))


def codes_product(x: QuantisedRows, w: Codes) -> Array32:
    """Section 1, rules 2 to 5: T quantised rows with R rows of codes -> [T, R]."""
    count = w.scale.shape[1]
    sub = w.w_int.shape[1] // count
    dots, sums = _integer_dots(x, w, count, sub)
    d = np.repeat(x.d, BLOCK // sub, axis=1)[:, None, :]
    acc = np.zeros((len(x.q), len(w.w_int), LANES), np.float32)
    for start in range(0, count, LANES):
        step = slice(start, min(start + LANES, count))
        lanes = slice(0, step.stop - start)
        u = multiply(w.scale[None, :, step], d[:, :, step])
        acc[:, :, lanes] = fma(dots[:, :, step], u, acc[:, :, lanes])
        if w.min_scale is not None:
            v = multiply(w.min_scale[None, :, step], d[:, :, step])
            acc[:, :, lanes] = fma(-sums[:, None, step], v, acc[:, :, lanes])
    return lane_tree(acc)


def _integer_dots(x: QuantisedRows, w: Codes, count: int, sub: int) -> tuple[Array32, Array32]:
    """i_b [T, R, count] and m_b [T, count] as float32.

    A float64 matrix product of integers below 2^53 is exact whatever its order, and |i_b| < 2^24, so the conversion to
    float32 is exact as well.
    """
    q = x.q.reshape(-1, count, sub)
    left = q.transpose(1, 0, 2).astype(np.float64)
    right = w.w_int.reshape(-1, count, sub).transpose(1, 2, 0).astype(np.float64)
    dots = np.matmul(left, right).transpose(1, 2, 0).astype(np.float32)
    return dots, q.sum(axis=2, dtype=np.int32).astype(np.float32)


def weight_planes(weight: Weight) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8] | Array32 | None]:
    """planes[0] and, where there is one, planes[1] as numpy (float8 as its bytes); ValueError on a wrong shape."""
    fmt, expected = weight.format, (weight.rows, weight.format.row_bytes(weight.cols))
    raw = weight.planes[0].numpy()
    if raw.shape != expected or raw.dtype != np.uint8:
        size = f"{weight.rows} x {weight.cols}"
        raise ValueError(f"{fmt.name} weight of {size} needs uint8 {expected}, found {raw.dtype} {raw.shape}")
    if fmt.scale_block is None:
        return raw, None
    if len(weight.planes) < 2:
        raise ValueError(f"{fmt.name} weight of {weight.rows} x {weight.cols} has no plane of scales")
    scales = weight.planes[1]
    if scales.dtype == torch.float8_e4m3fn:
        scales = scales.view(torch.uint8)
    return raw, scales.numpy()
