"""The GGUF reader: valid files exactly, damaged ones with one clear error."""

import gc
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf as other
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint.files import (
    Raw,
    full_gguf,
    gguf,
    key,
    key_array,
    key_text,
    key_u32,
    open_files,
    small_gguf,
    split_keys,
    text,
    write_split,
)
from strata.checkpoint.gguf import open_gguf, shard_of
from strata.checkpoint.typed import ValueType
from strata.core.errors import CheckpointError
from strata.quant.formats import FORMATS

PLAIN = [Raw("t", (8,), 0, 0)]
DATA = bytes(32)


def refused(path: Path, data: bytes) -> str:
    """The message with which `data` is refused."""
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        open_gguf(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 1
    return caught.value.message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


@pytest.mark.parametrize("version", [2, 3])
def test_reads_every_value_type(path: Path, version: int) -> None:
    data = small_gguf()
    path.write_bytes(data[:4] + struct.pack("<I", version) + data[8:])
    with open_gguf(path) as checkpoint:
        assert dict(checkpoint.metadata.values) == {
            "general.architecture": "tiny",
            "a.u8": 255,
            "a.i8": -1,
            "a.u16": 65535,
            "a.i16": -3,
            "a.u32": 4_000_000_000,
            "a.i32": -5,
            "a.f32": 0.5,
            "a.bool": True,
            "a.u64": 2**64 - 1,
            "a.i64": -(2**63),
            "a.f64": 1e300,
            "a.tokens": ("a", "", "日本"),
            "a.u64s": (23703573157769, 2**64 - 1),
            "a.bools": (False, True),
            "a.none": (),
        }
        assert checkpoint.types["a.u64s"].type is ValueType.UINT64
        assert checkpoint.types["a.bool"].value is True


def test_tensors_are_views_in_torch_order(path: Path) -> None:
    path.write_bytes(small_gguf())
    with open_gguf(path) as checkpoint:
        ref = checkpoint.tensors["first"]
        assert (ref.shape, ref.format, ref.nbytes, ref.count) == ((2, 3), FORMATS["F32"], 24, 6)
        view = checkpoint.bytes_of(ref)
        assert not view.flags.writeable and not view.flags.owndata
        np.testing.assert_array_equal(view.view("<f4"), np.arange(6, dtype=np.float32))
        assert bytes(checkpoint.bytes_of(checkpoint.tensors["second.weight"])) == bytes(range(68))
        assert checkpoint.notes == ()


def test_agrees_with_the_gguf_package(path: Path) -> None:
    rng = np.random.default_rng(5)
    writer = other.GGUFWriter(path, "qwen3moe")
    writer.add_block_count(3)
    writer.add_rope_freq_base(1e6)
    writer.add_token_list([f"tok{i}é" for i in range(300)])
    writer.add_array("qwen3moe.some", [1, -2, 3])
    writer.add_array("qwen3moe.floats", [0.5, 2.0])
    writer.add_custom_alignment(64)
    values = rng.standard_normal((3, 5, 64), dtype=np.float32)
    writer.add_tensor("plain", values)
    writer.add_tensor("half", values.astype(np.float16))
    writer.add_tensor("odd", values[0, 0, :7].copy())
    for kind in (other.GGMLQuantizationType.Q8_0, other.GGMLQuantizationType.Q4_0, other.GGMLQuantizationType.BF16):
        writer.add_tensor(kind.name, other.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reader = other.GGUFReader(path)
    with open_gguf(path) as checkpoint:
        theirs = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
        ours = {k: list(v) if isinstance(v, tuple) else v for k, v in checkpoint.metadata.values.items()}
        assert ours == theirs
        assert list(checkpoint.tensors) == [tensor.name for tensor in reader.tensors]
        for tensor in reader.tensors:
            ref = checkpoint.tensors[tensor.name]
            assert ref.shape == tuple(int(d) for d in reversed(tensor.shape))
            assert (ref.format.name, ref.offset) == (tensor.tensor_type.name, tensor.data_offset)
            assert bytes(checkpoint.bytes_of(ref)) == tensor.data.tobytes()


@pytest.mark.parametrize("make", [full_gguf, small_gguf])
def test_every_cut_is_refused(path: Path, make: Callable[[], bytes]) -> None:
    data = make()
    # small_gguf ends with padding; without any of it the file still has every tensor byte
    complete = len(data) - (28 if make is small_gguf else 0)
    for length in range(len(data)):
        if length == complete:
            continue
        refused(path, data[:length])
    for length in (complete, len(data)):
        path.write_bytes(data[:length])
        open_gguf(path).close()


def test_bytes_after_the_end_are_noted(path: Path) -> None:
    path.write_bytes(full_gguf() + b"x" * 40)
    with open_gguf(path) as checkpoint:
        assert checkpoint.notes == ("m.gguf: 40 bytes follow the last tensor",)


def test_cut_after_opening_is_an_error_not_a_signal(path: Path) -> None:
    path.write_bytes(full_gguf())
    with open_gguf(path) as checkpoint:
        ref = checkpoint.tensors["two"]
        checkpoint.bytes_of(ref)
        with path.open("r+b") as file:
            file.truncate(10)
        with pytest.raises(CheckpointError, match=r"tensor two: the file had .* when it was opened and has 10 now"):
            checkpoint.bytes_of(ref)


@pytest.mark.parametrize("count", [2**31, 2**40, 2**60, 2**63, 2**64 - 1])
@pytest.mark.parametrize("what", ["tensors", "keys", "string", "name", "array of numbers", "array of texts"])
def test_hostile_counts_allocate_nothing(path: Path, count: int, what: str) -> None:
    if what == "tensors":
        data = gguf([], PLAIN, DATA, num_tensors=count)
    elif what == "keys":
        data = gguf([], PLAIN, DATA, num_keys=count)
    elif what == "string":
        data = gguf([key("k", 8, struct.pack("<Q", count))], PLAIN, DATA)
    elif what == "name":
        data = gguf([struct.pack("<Q", count)], PLAIN, DATA, num_keys=1)
    else:
        data = gguf([key_array("k", 8 if "texts" in what else 5, count, b"")], PLAIN, DATA)
    tracemalloc.start()
    message = refused(path, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert str(count) in message


def test_many_tensors_after_large_keys_are_bounded_again(path: Path) -> None:
    # the count fits in what follows the counts, but not in what follows the keys
    keys = [key_text("k", "x" * 4000)]
    message = refused(path, gguf(keys, PLAIN, DATA, num_tensors=100))
    assert "expected at most" in message and "found 100" in message


@pytest.mark.parametrize("depth", [1, 2, 10_000])
def test_arrays_of_arrays_are_refused(path: Path, depth: int) -> None:
    nested = struct.pack("<IQ", 9, 1) * depth + struct.pack("<IQ", 4, 1) + struct.pack("<I", 7)
    assert "key k: expected an array of scalars, found an array of arrays" in refused(
        path, gguf([key("k", 9, nested)], PLAIN, DATA)
    )


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


def test_alignment_places_the_data(path: Path) -> None:
    payload = np.arange(16, dtype="<f4").tobytes()
    path.write_bytes(gguf([key_u32("general.alignment", 64)], [Raw("t", (16,), 0, 0)], payload, alignment=64))
    with open_gguf(path) as checkpoint:
        assert checkpoint.tensors["t"].offset % 64 == 0
        assert bytes(checkpoint.bytes_of(checkpoint.tensors["t"])) == payload


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


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"<!DOCTYPE html><html></html>", "HTML page"),
        (b"\n  <html><head>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"PK\x03\x04" + bytes(60), "ZIP archive"),
        (struct.pack("<Q", 20) + b'{"a": 1}' + bytes(20), "safetensors"),
        (bytes(64), "zeros"),
        (b"FUGG" + bytes(60), "swapped"),
        (b"ggml" + bytes(60), "begins with b'ggml'"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "found version 1"),
        (b"GGUF" + struct.pack("<IQQ", 99, 0, 0), "found version 99"),
        (b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "found version 0"),
        (b"", "empty"),
    ],
)
def test_other_files_are_recognised(path: Path, data: bytes, says: str) -> None:
    assert says in refused(path, data)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ([key_u32("k", 1), key_u32("k", 2)], "key k: expected once, found twice"),
        ([key_u32("", 1)], "found an empty one"),
        ([key_u32("a\nb", 1)], "found 'a\\nb'"),
        ([key("k", 13, bytes(8))], "key k: expected a GGUF value type from 0 to 12, found 13"),
        ([key_array("k", 77, 1, bytes(8))], "key k's elements: expected a GGUF value type"),
        ([key("k", 7, b"\2")], "key k: expected 0 or 1"),
        ([key_array("k", 7, 3, b"\0\1\7")], "key k: expected only 0 and 1"),
        ([key("k", 8, struct.pack("<Q", 2) + b"\xff\xfe")], "key k: expected UTF-8 text"),
        ([key_array("k", 8, 2, text("ok") + struct.pack("<Q", 1) + b"\xff")], "key k[1]: expected UTF-8 text"),
        ([key_array("k", 8, 2, text("ok") + struct.pack("<Q", 2**62))], "key k[1]: expected at most"),
    ],
)
def test_damaged_keys(path: Path, keys: list[bytes], says: str) -> None:
    assert says in refused(path, gguf(keys, PLAIN, DATA))


@pytest.mark.parametrize("as_array", [False, True])
def test_text_that_ends_one_byte_behind_the_file(path: Path, as_array: bool) -> None:
    payload = struct.pack("<Q", 5) + b"abcd"
    last = key_array("k", 8, 1, payload) if as_array else key("k", 8, payload)
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    assert "needs 5 bytes" in refused(path, head + last)
    path.write_bytes(head + last + b"e")
    with open_gguf(path) as checkpoint:
        assert checkpoint.metadata.values["k"] == (("abcde",) if as_array else "abcde")


def test_doubled_tensor(path: Path) -> None:
    assert "tensor t: expected once, found twice" in refused(path, gguf([], [*PLAIN, Raw("t", (8,), 0, 32)], bytes(64)))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(small_gguf()) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bytes_never_do_worse_than_an_error(path: Path, flips: list[tuple[int, int]]) -> None:
    data = bytearray(small_gguf())
    for position, mask in flips:
        data[position] ^= mask
    path.write_bytes(data)
    try:
        checkpoint = open_gguf(path)
    except CheckpointError as error:
        assert str(path) in error.message
        return
    with checkpoint:
        for ref in checkpoint.tensors.values():
            assert ref.offset >= 0 and ref.offset + ref.nbytes <= len(data)
            assert len(checkpoint.bytes_of(ref)) == ref.nbytes
        assert sum(len(v) for v in checkpoint.metadata.values.values() if isinstance(v, str | tuple)) <= len(data)


def test_closing_gives_files_back(path: Path) -> None:
    good, bad = full_gguf(), full_gguf()[:-1]
    kept = []  # errors with their tracebacks, which keep the frames that read the file
    gc.collect()
    before = open_files()
    for data in (good, bad, gguf([key_array("k", 7, 1, b"\7")], PLAIN, DATA)) * 5:
        path.write_bytes(data)
        try:
            open_gguf(path).close()
        except CheckpointError as error:
            kept.append(error)
    assert len(kept) == 10
    assert open_files() == before
    path.write_bytes(good)
    checkpoint = open_gguf(path)
    assert open_files() > before  # the count sees an open checkpoint
    view = checkpoint.bytes_of(checkpoint.tensors["two"])
    checkpoint.close()
    assert view.view("<f4")[15] == 15.0
    del view
    gc.collect()
    assert open_files() == before
    with pytest.raises(CheckpointError, match="tensor two: the checkpoint is closed"):
        checkpoint.bytes_of(checkpoint.tensors["two"])


def test_folder_pipe_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="expected a file, found a folder"):
        open_gguf(tmp_path)
    with pytest.raises(CheckpointError, match=r"none\.gguf: cannot be opened"):
        open_gguf(tmp_path / "none.gguf")


# ------------------------------------------------------------------------------------------------------------ splits


def test_shard_names() -> None:
    shard = shard_of("a-b-00002-of-00010.gguf")
    assert shard is not None and (shard.stem, shard.number, shard.total) == ("a-b", 2, 10)
    assert shard.name(10) == "a-b-00010-of-00010.gguf"
    for name in (
        "a.gguf",
        "a-2-of-3.gguf",
        "a-00004-of-00003.gguf",
        "a-00000-of-00003.gguf",
        "a-00001-of-00003.gguf.part",
    ):
        assert shard_of(name) is None


def test_any_file_opens_the_split(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    for path in paths:
        with open_gguf(path) as checkpoint:
            assert checkpoint.path == paths[0]
            assert checkpoint.files == tuple(paths)
            assert checkpoint.metadata.string("general.architecture") == "tiny"
            for number in range(3):
                view = checkpoint.bytes_of(checkpoint.tensors[f"t{number}"])
                assert set(view.view("<f4")) == {float(number)}


def test_a_link_opens_the_split(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    paths = write_split(tmp_path / "real")
    link = tmp_path / paths[0].name
    link.symlink_to(paths[0])
    with open_gguf(link) as checkpoint:
        assert sorted(checkpoint.tensors) == ["t0", "t1", "t2"]


def test_missing_files_are_named(tmp_path: Path) -> None:
    paths = write_split(tmp_path, total=4)
    paths[2].rename(paths[2].with_suffix(".gguf.part"))
    paths[3].unlink()
    with pytest.raises(CheckpointError, match=r"found 2; missing: m-00003-of-00004\.gguf, m-00004-of-00004\.gguf"):
        open_gguf(paths[0])


def test_empty_file_of_a_split(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    paths[2].write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"m-00003-of-00003\.gguf: the file is empty"):
        open_gguf(paths[0])


def test_renamed_file_of_a_split(tmp_path: Path) -> None:
    renamed = write_split(tmp_path)[0].rename(tmp_path / "model.gguf")
    with pytest.raises(CheckpointError, match=r"key split\.count: .* one of 3.* found model\.gguf"):
        open_gguf(renamed)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (split_keys(1, 4, 3), r"key split\.count: expected 3, .* found 4"),
        (split_keys(2, 3, 3), r"key split\.no: expected 1, .* found 2"),
        (split_keys(1, 3, 5), r"key split\.tensors\.count: expected 3, .* found 5"),
        ([], r"key split\.count: expected .* found nothing"),
        ([*split_keys(1, 3, 3), key_text("general.architecture", "other")], r"belongs to another model"),
    ],
)
def test_foreign_file_in_a_split(tmp_path: Path, keys: list[bytes], says: str) -> None:
    paths = write_split(tmp_path)
    paths[1].write_bytes(gguf(keys, [Raw("t1", (8,), 0, 0)], DATA))
    with pytest.raises(CheckpointError, match=says) as caught:
        open_gguf(paths[0])
    assert paths[1].name in caught.value.message


def test_tensor_in_two_files(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    paths[1].write_bytes(gguf(split_keys(1, 3, 3), [Raw("t0", (8,), 0, 0)], DATA))
    with pytest.raises(CheckpointError, match="tensor t0: expected in one file"):
        open_gguf(paths[0])


def test_every_cut_of_a_split_is_refused(tmp_path: Path) -> None:
    paths = write_split(tmp_path, total=2)
    for path in paths:
        data = path.read_bytes()
        for length in range(len(data)):
            path.write_bytes(data[:length])
            with pytest.raises(CheckpointError, match=path.name):
                open_gguf(paths[0])
        path.write_bytes(data)
    open_gguf(paths[0]).close()
