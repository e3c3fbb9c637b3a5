"""The literal table of formats: GGML's tensor types by id, and the forms of safetensors files.

Sizes and ids are those of ggml (ggml.h, ggml-common.h). Q2_0 is mainline ggml's type 42 with groups of 64; another
project used the same name for groups of 128, which the tensor's byte size tells apart.
"""

from strata.core.errors import UnsupportedError
from strata.quant.format import QuantFormat

_TABLE = (
    # name, type id, values per block, bytes per block, values per scale
    QuantFormat("F32", 0, 1, 4, 0, "float"),
    QuantFormat("F16", 1, 1, 2, 0, "float"),
    QuantFormat("BF16", 30, 1, 2, 0, "float"),
    QuantFormat("F64", 28, 1, 8, 0, "data"),
    QuantFormat("I8", 24, 1, 1, 0, "data"),
    QuantFormat("I16", 25, 1, 2, 0, "data"),
    QuantFormat("I32", 26, 1, 4, 0, "data"),
    QuantFormat("I64", 27, 1, 8, 0, "data"),
    QuantFormat("Q4_0", 2, 32, 18, 32),
    QuantFormat("Q4_1", 3, 32, 20, 32, minima=True),
    QuantFormat("Q5_0", 6, 32, 22, 32),
    QuantFormat("Q5_1", 7, 32, 24, 32, minima=True),
    QuantFormat("Q8_0", 8, 32, 34, 32),
    QuantFormat("Q2_K", 10, 256, 84, 16, minima=True),
    QuantFormat("Q3_K", 11, 256, 110, 16),
    QuantFormat("Q4_K", 12, 256, 144, 32, minima=True),
    QuantFormat("Q5_K", 13, 256, 176, 32, minima=True),
    QuantFormat("Q6_K", 14, 256, 210, 16),
    QuantFormat("IQ2_XXS", 16, 256, 66, 32),
    QuantFormat("IQ2_XS", 17, 256, 74, 16),
    QuantFormat("IQ3_XXS", 18, 256, 98, 32),
    QuantFormat("IQ1_S", 19, 256, 50, 32),
    QuantFormat("IQ4_NL", 20, 32, 18, 32),
    QuantFormat("IQ3_S", 21, 256, 110, 32),
    QuantFormat("IQ2_S", 22, 256, 82, 16),
    QuantFormat("IQ4_XS", 23, 256, 136, 32),
    QuantFormat("IQ1_M", 29, 256, 56, 16),
    QuantFormat("TQ1_0", 34, 256, 54, 32),
    QuantFormat("TQ2_0", 35, 256, 66, 32),
    QuantFormat("MXFP4", 39, 32, 17, 32),
    QuantFormat("NVFP4", 40, 64, 36, 16),
    QuantFormat("Q2_0", 42, 64, 18, 32),
    # float8_e4m3fn bytes; any scale of the whole matrix is the weight's own
    QuantFormat("FP8", -1, 1, 1, 0, "float"),
    # float8_e4m3fn bytes with a float32 scale per 128 x 128 values (the last ones may be cut) in planes[1]
    QuantFormat("FP8_BLOCK", -2, 1, 1, 0, "float", scale_block=(128, 128)),
    # pairs of E2M1 values (2i in the low nibble) with a float8_e4m3fn scale per 16 in planes[1]; a block is one
    # quantised activation block, so that rows of other lengths are refused early
    QuantFormat("NVFP4_PAIRS", -3, 32, 16, 16, scale_block=(1, 16)),
)

FORMATS: dict[str, QuantFormat] = {fmt.name: fmt for fmt in _TABLE}
"""Every format by name."""

_BY_TYPE_ID = {fmt.type_id: fmt for fmt in _TABLE if fmt.type_id >= 0}


def by_type_id(type_id: int) -> QuantFormat:
    """The format with GGML's `type_id`; UnsupportedError for one that is not in the table."""
    if type_id not in _BY_TYPE_ID:
        known = ", ".join(f"{i} {_BY_TYPE_ID[i].name}" for i in sorted(_BY_TYPE_ID))
        raise UnsupportedError(f"GGML tensor type {type_id} is not supported; known types: {known}")
    return _BY_TYPE_ID[type_id]
