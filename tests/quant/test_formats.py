import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from strata.core.errors import UnsupportedError
from strata.quant.formats import FORMATS, by_type_id


def test_ids_and_sizes_equal_ggufs() -> None:
    compared = 0
    for fmt in FORMATS.values():
        if fmt.type_id < 0 or fmt.name == "Q2_0":
            continue
        kind = GGMLQuantizationType[fmt.name]
        assert fmt.type_id == int(kind)
        assert (fmt.block, fmt.block_bytes) == GGML_QUANT_SIZES[kind]
        compared += 1
    assert compared == 31


def test_every_format_is_consistent() -> None:
    for name, fmt in FORMATS.items():
        assert name == fmt.name
        assert (fmt.sub in (16, 32)) == (fmt.kind == "codes")
        assert fmt.kind != "codes" or (fmt.block % 32 == 0 and fmt.block % fmt.sub == 0)
        assert fmt.row_values(fmt.row_bytes(fmt.block * 3)) == fmt.block * 3
        assert fmt.type_id < 0 or by_type_id(fmt.type_id) is fmt
    assert len({fmt.type_id for fmt in FORMATS.values()}) == len(FORMATS)


def test_sizes_of_published_experts() -> None:
    sizes = {"IQ3_S": (1280 * 1100, 2560), "IQ4_NL": (2560 * 360, 640), "Q2_0": (2560 * 180, 640)}
    for name, (total, values) in sizes.items():
        rows = 1280 if values == 2560 else 2560
        assert rows * FORMATS[name].row_bytes(values) == total


def test_refusals() -> None:
    with pytest.raises(UnsupportedError, match="type 142 is not supported"):
        by_type_id(142)
    with pytest.raises(UnsupportedError, match="type -1"):
        by_type_id(-1)
    with pytest.raises(ValueError, match="640 values are no multiple of Q4_K's block of 256"):
        FORMATS["Q4_K"].row_bytes(640)
    with pytest.raises(ValueError, match="35 bytes are no multiple of Q8_0"):
        FORMATS["Q8_0"].row_values(35)
