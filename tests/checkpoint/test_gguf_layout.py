"""What a GGUF file says of its tensors: shapes, places, types; impossible ones get one clear error."""

import struct
from pathlib import Path

import pytest

from checkpoint.files import DATA, PLAIN, Raw, gguf, key, key_text, refused
from strata.checkpoint.gguf import open_gguf
from strata.quant.formats import FORMATS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


@pytest.mark.parametrize(
    ("dims", "num_dims", "says"),
    [
        ((0,), None, "dimensions of at least 1, found [0]"),
        ((8, 0, 2), None, "dimensions of at least 1, found [2, 0, 8]"),
        ((), 0, "1 to 4 dimensions, found 0"),
        ((1,) * 5, None, "1 to 4 dimensions, found 5"),
        ((1,), 2**32 - 1, "1 to 4 dimensions, found 4294967295"),
        ((2**63 - 1, 2), None, "but the file ends at"),
        ((2**32, 2**32), None, "but the file ends at"),
        ((2**63, 2, 2**63, 2**63), None, "but the file ends at"),
        ((2**42 + 1, 1152), None, "but the file ends at"),
        ((2**64 - 8,), None, "but the file ends at"),
    ],
)
def test_impossible_dimensions(path: Path, dims: tuple[int, ...], num_dims: int | None, says: str) -> None:
    message = refused(path, gguf([], [Raw("bad.weight", dims, 0, 0, num_dims)], DATA))
    assert "tensor bad.weight" in message and says in message


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (struct.pack("<I", 0), "found 0"),
        (struct.pack("<I", 1), "found 1"),
        (struct.pack("<I", 3), "from 8 to 1073741824, found 3"),
        (struct.pack("<I", 48), "a power of two, found 48"),
        (struct.pack("<I", 2**31), "found 2147483648"),
    ],
)
def test_bogus_alignment(path: Path, payload: bytes, says: str) -> None:
    message = refused(path, gguf([key("general.alignment", 4, payload)], PLAIN, DATA))
    assert "key general.alignment" in message and says in message


def test_alignment_of_another_type(path: Path) -> None:
    assert "found '32'" in refused(path, gguf([key_text("general.alignment", "32")], PLAIN, DATA))
    assert "found 9223372036854775808" in refused(
        path, gguf([key("general.alignment", 10, struct.pack("<Q", 2**63))], PLAIN, DATA)
    )


@pytest.mark.parametrize(
    ("offsets", "says"),
    [
        ((0, 8), "tensor b: expected an offset that is a multiple of 32, found 8"),
        ((0, 0), "tensors a and b: expected separate bytes"),
        ((32, 0), None),
        ((0, 64), "but the file ends at"),
        ((0, 2**64 - 32), "but the file ends at"),
        ((2**63, 0), "but the file ends at"),
    ],
)
def test_offsets(path: Path, offsets: tuple[int, int], says: str | None) -> None:
    data = gguf([], [Raw("a", (8,), 0, offsets[0]), Raw("b", (8,), 0, offsets[1])], bytes(64))
    if says is None:
        path.write_bytes(data)
        open_gguf(path).close()
    else:
        assert says in refused(path, data)


def test_overlap_by_a_long_tensor(path: Path) -> None:
    tensors = [Raw("long", (24,), 0, 0), Raw("inside", (8,), 0, 32)]
    assert "tensors long and inside: expected separate bytes" in refused(path, gguf([], tensors, bytes(96)))
    tensors = [Raw("long", (9,), 0, 0), Raw("next", (8,), 0, 32)]
    assert "tensors long and next: expected separate bytes" in refused(path, gguf([], tensors, bytes(64)))


def test_every_type_id_is_read_or_named(path: Path) -> None:
    ids = {fmt.type_id: fmt for fmt in FORMATS.values()}
    for type_id in (*range(61), 142, 2**32 - 1):
        fmt = ids.get(type_id)
        nbytes = 256 // fmt.block * fmt.block_bytes if fmt else 32
        data = gguf([], [Raw("odd.weight", (256,), type_id, 0)], bytes(-(-nbytes // 32) * 32))
        if fmt is None:
            message = refused(path, data)
            assert "tensor odd.weight" in message and f"type {type_id} " in message and "39 MXFP4" in message
        else:
            path.write_bytes(data)
            with open_gguf(path) as checkpoint:
                assert checkpoint.tensors["odd.weight"].nbytes == nbytes


def test_row_must_fill_blocks(path: Path) -> None:
    message = refused(path, gguf([], [Raw("w", (48, 2), 8, 0)], bytes(128)))
    assert "tensor w: expected rows of a multiple of 32 values for Q8_0, found 48" in message


@pytest.mark.parametrize("others", ["first", "last", "alone", "larger", "larger alone"])
def test_type_42_of_another_program(path: Path, others: str) -> None:
    values = 64 * 128
    # 34 bytes per 128 values, where ggml's Q2_0 has 18 per 64; "larger": some format with more bytes
    nbytes = values if "larger" in others else values // 128 * 34
    odd, plain = Raw("odd", (values,), 42, 0), Raw("plain", (8,), 0, -(-nbytes // 32) * 32)
    if others == "last":
        odd, plain = Raw("odd", (values,), 42, 32), Raw("plain", (8,), 0, 0)
    tensors = [odd] if "alone" in others else [odd, plain]
    message = refused(path, gguf([], tensors, bytes(-(-nbytes // 32) * 32 + 32 * len(tensors[1:]))))
    assert "tensor odd" in message and "Q2_0" in message


def test_type_42_as_ggml_has_it(path: Path) -> None:
    nbytes = 64 * 128 // 64 * 18
    path.write_bytes(gguf([], [Raw("w", (64 * 128,), 42, 0), Raw("p", (8,), 0, nbytes)], bytes(nbytes + 32)))
    with open_gguf(path) as checkpoint:
        assert checkpoint.tensors["w"].format is FORMATS["Q2_0"]
