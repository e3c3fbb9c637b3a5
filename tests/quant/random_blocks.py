"""Random blocks with sane scales, for every format."""

import numpy as np
import numpy.typing as npt

from strata.quant.format import QuantFormat

SCALES_AT = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q6_K": (208,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
}
SCALES_AT |= {"IQ1_M": (), "MXFP4": (), "NVFP4": (), "NVFP4_PAIRS": (), "TQ1_0": (52,), "TQ2_0": (64,)}


def random_blocks(
    fmt: QuantFormat, rows: int, values: int, rng: np.random.Generator, size: float = 2.0, zero: float = 0.1
) -> npt.NDArray[np.uint8]:
    """uint8 [rows, row_bytes]: random codes; fp16 scales in +-size, `zero` of them 0."""
    if fmt.kind == "float":
        return random_floats(fmt, rows, values, rng)
    count = rows * values // fmt.block
    raw = rng.integers(0, 256, (count, fmt.block_bytes), dtype=np.uint8)
    for at in SCALES_AT.get(fmt.name, (0,)):
        d = rng.uniform(-size, size, count).astype(np.float16)
        d[rng.random(count) < zero] = 0
        raw[:, at : at + 2] = d.view(np.uint8).reshape(-1, 2)
    if fmt.name == "IQ1_M":
        raw[:, 55] = raw[:, 55] & 0x8F | 0x30
    if fmt.name == "MXFP4":
        raw[:, 0] = rng.integers(110, 135, count)
    if fmt.name == "NVFP4":
        raw[:, :4] &= 0x7F
    return raw.reshape(rows, fmt.row_bytes(values))


def random_floats(fmt: QuantFormat, rows: int, values: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Plain floats around 1 in `fmt`'s bytes."""
    x = rng.standard_normal((rows, values)).astype(np.float32)
    if fmt.name == "F32":
        return x.view(np.uint8)
    if fmt.name == "F16":
        return x.astype(np.float16).view(np.uint8)
    if fmt.name == "BF16":
        return np.ascontiguousarray((x.view(np.uint32) >> 16).astype(np.uint16)).view(np.uint8)
    raw = rng.integers(0, 256, (rows, values), dtype=np.uint8)
    return np.where(raw & 127 == 127, np.uint8(5), raw)
