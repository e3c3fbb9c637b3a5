"""From float32 to bytes: libgguf (ggml's own quantisers) for ggml's formats, our own search for Q2_0."""

import libgguf  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from strata.core.errors import UnsupportedError
from strata.quant.blocks import Bytes, Floats
from strata.quant.format import QuantFormat

_Q2_0_CHUNK = 4096
"""Groups of 64 searched at once."""

_Q2_0_FIRST_SCALES = np.linspace(0.3, 1.1, 17).astype(np.float32)
"""Scales that the search starts from, as parts of the group's largest magnitude."""


def needs_importance(fmt: QuantFormat) -> bool:
    """Whether `encode` refuses `fmt` without an importance vector: where ggml does, and for IQ1_M.

    ggml writes IQ1_M without one, but worse than with equal weights (relative RMSE on Gaussian rows 0.59, not 0.46).
    """
    if fmt.type_id < 0 or fmt.kind != "codes" or fmt.name == "Q2_0":
        return False
    return fmt.name == "IQ1_M" or bool(libgguf.quantize_requires_imatrix(fmt.type_id))


def encode(fmt: QuantFormat, x: Floats, importance: Floats | None = None) -> Bytes:
    """x float32 [rows, n] -> uint8 [rows, row_bytes].

    `importance` float32 [n] weighs the squared error of each column (llama.cpp's importance matrix); formats that round
    each value or block alone (floats, Q8_0, the FP4 and TQ forms) have nothing to weigh and do not use it. F16 and BF16
    round to nearest even. ValueError for a row length that does not fill blocks, values that are not finite (codes) or
    too large (F16), or a missing or misshapen importance; UnsupportedError for formats that cannot be written.
    """
    x = np.ascontiguousarray(x, np.float32)
    row_bytes = fmt.row_bytes(x.shape[1])
    if importance is not None and importance.shape != (x.shape[1],):
        raise ValueError(f"importance of shape {importance.shape} for rows of {x.shape[1]} values")
    if fmt.kind == "float" and fmt.type_id >= 0:
        return _encode_float(fmt, x)
    if fmt.kind != "codes" or fmt.type_id < 0:
        raise UnsupportedError(f"writing {fmt.name} is not supported")
    _require_finite(fmt, x)
    if fmt.name == "Q2_0":
        return _encode_q2_0(x, importance)
    if importance is None and needs_importance(fmt):
        raise ValueError(f"{fmt.name} can be written only with an importance vector")
    rows = np.asarray(libgguf.quantize_rows(x, fmt.type_id, importance), np.uint8)
    return rows.reshape(len(x), row_bytes)


def _require_finite(fmt: QuantFormat, x: Floats) -> None:
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        raise ValueError(f"{fmt.name} cannot hold {x[row, column]} (row {row}, column {column})")


def _encode_float(fmt: QuantFormat, x: Floats) -> Bytes:
    """F32 as it is; F16 and BF16 rounded to nearest even, NaN staying NaN."""
    if fmt.name == "F32":
        return x.view(np.uint8)
    if fmt.name == "F16":
        with np.errstate(over="ignore"):
            halves = x.astype("<f2")
        lost = np.argwhere(np.isinf(halves) & np.isfinite(x))
        if len(lost):
            row, column = (int(i) for i in lost[0])
            raise ValueError(f"F16 cannot hold {x[row, column]} (row {row}, column {column}); its largest is 65504")
        return halves.view(np.uint8)
    pattern = x.view(np.uint32)
    rounded = pattern + (0x7FFF + (pattern >> 16 & 1)).astype(np.uint32)
    kept = np.where(np.isnan(x), pattern | 0x400000, rounded)
    return np.ascontiguousarray((kept >> 16).astype("<u2")).view(np.uint8)


def _encode_q2_0(x: Floats, importance: Floats | None) -> Bytes:
    """Blocks of 64: the fp16 scale of either sign, and codes -1, 0, 1, 2, with the least (weighted) squared error."""
    groups = x.reshape(-1, 64)
    weights = np.ones(x.shape[1], np.float32) if importance is None else np.asarray(importance, np.float32)
    per_row = weights.reshape(-1, 64)
    out = np.empty((len(groups), 18), np.uint8)
    for start in range(0, len(groups), _Q2_0_CHUNK):
        part = slice(start, min(start + _Q2_0_CHUNK, len(groups)))
        which = np.arange(part.start, part.stop) % len(per_row)
        d = _q2_0_scales(groups[part], per_row[which])
        codes = (_q2_0_codes(groups[part], d) + 1).astype(np.uint8).reshape(-1, 16, 4)
        out[part, :2] = d.astype("<f2").view(np.uint8).reshape(-1, 2)
        out[part, 2:] = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2, dtype=np.uint8)
    return out.reshape(len(x), -1)


def _q2_0_codes(x: Floats, d: Floats) -> Floats:
    """Nearest of -1, 0, 1, 2 to x / d; 0 where d is 0. x [G, 64], d [G, 1]."""
    ratio = np.divide(x, d, out=np.zeros_like(x), where=d != 0)
    return np.clip(np.rint(ratio), -1, 2)


def _q2_0_scales(x: Floats, weights: npt.NDArray[np.float32]) -> Floats:
    """Best scale per group, float32 [G, 1] holding fp16 values: candidates of both signs, each refined once.

    Refining solves the weighted least squares for the codes that the candidate gives: d = sum(w x q) / sum(w q^2).
    """
    largest = np.abs(x).max(axis=1, keepdims=True)
    best: Floats = np.zeros_like(largest)
    least = (weights * x * x).sum(axis=1, keepdims=True)
    for part in np.concatenate([_Q2_0_FIRST_SCALES, -_Q2_0_FIRST_SCALES]):
        codes = _q2_0_codes(x, largest * part)
        energy = (weights * codes * codes).sum(axis=1, keepdims=True)
        solved = np.divide(
            (weights * x * codes).sum(axis=1, keepdims=True), energy, out=np.zeros_like(energy), where=energy > 0
        )
        d = _half(solved)
        error = (weights * (_q2_0_codes(x, d) * d - x) ** 2).sum(axis=1, keepdims=True)
        better = error < least
        best, least = np.where(better, d, best), np.where(better, error, least)
    return best


def _half(d: Floats) -> Floats:
    """d rounded to fp16, kept inside its finite range."""
    return np.asarray(np.clip(d, -65504, 65504).astype(np.float16), np.float32)
