"""Damaged GGUF files and files that are none: one clear error, and no memory for what is not there."""

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint.files import (
    DATA,
    PLAIN,
    Raw,
    full_gguf,
    gguf,
    key,
    key_array,
    key_text,
    key_u32,
    refused,
    small_gguf,
    text,
)
from strata.checkpoint.gguf import open_gguf
from strata.core.errors import CheckpointError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


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


def test_folder_pipe_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="expected a file, found a folder"):
        open_gguf(tmp_path)
    with pytest.raises(CheckpointError, match=r"none\.gguf: cannot be opened"):
        open_gguf(tmp_path / "none.gguf")
