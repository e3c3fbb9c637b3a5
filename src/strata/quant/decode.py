"""From bytes to integers and scales, and to float32: the specification that every kernel must equal.

A block's value is scale * w_int - min_scale, with w_int the integers of the canonical product (docs/numerics.md):
grid values with signs, unsigned codes where there are minima, IQ1 times 8, FP4 times 2. decode_legacy, decode_k and
decode_iq hold one function per format, whose docstring is the layout and the written order of the scale.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.core.errors import UnsupportedError
from strata.quant import decode_iq, decode_k, decode_legacy
from strata.quant.blocks import Bytes, Decoded, Floats, Ints
from strata.quant.format import QuantFormat

_DECODERS: dict[str, Callable[[Bytes], Decoded]] = {
    "Q4_0": decode_legacy.q4_0,
    "Q4_1": decode_legacy.q4_1,
    "Q5_0": decode_legacy.q5_0,
    "Q5_1": decode_legacy.q5_1,
    "Q8_0": decode_legacy.q8_0,
    "Q2_0": decode_legacy.q2_0,
    "IQ4_NL": decode_legacy.iq4_nl,
    "IQ4_XS": decode_legacy.iq4_xs,
    "MXFP4": decode_legacy.mxfp4,
    "NVFP4": decode_legacy.nvfp4,
    "TQ1_0": decode_legacy.tq1_0,
    "TQ2_0": decode_legacy.tq2_0,
    "Q2_K": decode_k.q2_k,
    "Q3_K": decode_k.q3_k,
    "Q4_K": decode_k.q4_k,
    "Q5_K": decode_k.q5_k,
    "Q6_K": decode_k.q6_k,
    "IQ1_S": decode_iq.iq1_s,
    "IQ1_M": decode_iq.iq1_m,
    "IQ2_XXS": decode_iq.iq2_xxs,
    "IQ2_XS": decode_iq.iq2_xs,
    "IQ2_S": decode_iq.iq2_s,
    "IQ3_XXS": decode_iq.iq3_xxs,
    "IQ3_S": decode_iq.iq3_s,
}


def _e4m3() -> Floats:
    """float8_e4m3fn by byte: bias 7, subnormals, no infinities, 0x7F and 0xFF are NaN."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    value[code & 127 == 127] = np.nan
    return np.where(code < 128, value, -value).astype(np.float32)


E4M3 = _e4m3()
"""float32 value of each float8_e4m3fn byte."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Rows as integers and scales: value = scale * w_int - min_scale over runs of n / scale.shape[1] values.

    w_int int32 [rows, n]; scale float32 [rows, n / sub]; min_scale the same or None.
    """

    w_int: Ints
    scale: Floats
    min_scale: Floats | None


def codes(
    fmt: QuantFormat,
    raw: Bytes,
    scales: npt.NDArray[np.uint8] | Floats | None = None,
    rows: npt.NDArray[np.int64] | None = None,
) -> Codes:
    """Integers and scales of raw [rows, row_bytes].

    `scales` is the matrix's `planes[1]` where the format has one (NVFP4_PAIRS: uint8 [out, n / 16] of E4M3 bytes), and
    `rows` says which rows of the matrix `raw` holds (all of them, from 0, when left out). UnsupportedError for plain
    floats and data, ValueError when the row is no whole number of blocks.
    """
    count, n = len(raw), fmt.row_values(raw.shape[1])
    blocks = np.ascontiguousarray(raw).reshape(-1, fmt.block_bytes)
    if fmt.name == "NVFP4_PAIRS":
        chosen = _plane(fmt, scales, rows, count, n)
        decoded = decode_legacy.nvfp4_pairs(blocks, E4M3[chosen].reshape(len(blocks), -1))
    elif fmt.name in _DECODERS:
        with np.errstate(invalid="ignore"):
            decoded = _DECODERS[fmt.name](blocks)
    else:
        raise UnsupportedError(f"{fmt.name} has no integer codes: it holds {fmt.kind}")
    shape = (count, n // fmt.sub)
    minima = None if decoded.min_scale is None else decoded.min_scale.reshape(shape)
    return Codes(decoded.w_int.reshape(count, n), decoded.scale.reshape(shape), minima)


def dequantise(
    fmt: QuantFormat,
    raw: Bytes,
    scales: npt.NDArray[np.uint8] | Floats | None = None,
    rows: npt.NDArray[np.int64] | None = None,
) -> Floats:
    """float32 [rows, n] of raw [rows, row_bytes]; `scales` and `rows` as in `codes`.

    Codes: float32(w_int) * scale, rounded, then minus min_scale, rounded. Plain floats: exact. FP8_BLOCK: the exact
    value times the block's float32 scale, one rounding (scales float32 [out / 128, n / 128], rounded up).
    """
    if fmt.kind == "codes":
        parts = codes(fmt, raw, scales, rows)
        runs = parts.w_int.reshape(len(raw), parts.scale.shape[1], fmt.sub).astype(np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            values = runs * parts.scale[:, :, None]
            if parts.min_scale is not None:
                values = values - parts.min_scale[:, :, None]
        return values.reshape(len(raw), -1)
    values = plain(fmt, raw)
    if fmt.scale_block is not None:
        block = _plane(fmt, scales, rows, len(raw), values.shape[1])
        with np.errstate(invalid="ignore", over="ignore"):
            values = values * np.repeat(block, fmt.scale_block[1], axis=1)[:, : values.shape[1]].astype(np.float32)
    return values


def plain(fmt: QuantFormat, raw: Bytes) -> Floats:
    """Plain floats as float32, exactly, without any scale: raw [rows, row_bytes] -> [rows, n]."""
    raw = np.ascontiguousarray(raw)
    fmt.row_values(raw.shape[1])
    if fmt.name == "F32":
        return raw.view("<f4").astype(np.float32)
    if fmt.name == "F16":
        return raw.view("<f2").astype(np.float32)
    if fmt.name == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if fmt.name in ("FP8", "FP8_BLOCK"):
        return E4M3[raw]
    raise UnsupportedError(f"{fmt.name} is not a format of weights")


def _plane(
    fmt: QuantFormat,
    scales: npt.NDArray[np.uint8] | Floats | None,
    rows: npt.NDArray[np.int64] | None,
    count: int,
    n: int,
) -> npt.NDArray[np.uint8] | Floats:
    """The rows of the scale plane that belong to the given rows of the matrix, [count, ceil(n / values per scale)]."""
    if scales is None or fmt.scale_block is None:
        raise ValueError(f"{fmt.name} needs its scales (planes[1])")
    high, wide = fmt.scale_block
    expected = -(-n // wide)
    if scales.ndim != 2 or scales.shape[1] != expected:
        raise ValueError(f"{fmt.name} rows of {n} values need {expected} scales a row, found shape {scales.shape}")
    which = np.arange(count) if rows is None else rows
    needed = int(which.max(initial=-1)) // high + 1
    if len(scales) < needed:
        raise ValueError(f"{fmt.name} needs {needed} rows of scales, found {len(scales)}")
    return scales[which // high]
