"""Safetensors folders: valid ones exactly, damaged ones with one clear error."""

import gc
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from checkpoint.files import entry, open_files, small_safetensors, write_folder
from checkpoint.files import safetensors as file_of
from strata.checkpoint.safetensors import DTYPES, INDEX, open_folder
from strata.core.errors import CheckpointError
from strata.quant.formats import FORMATS


def refused(folder: Path, data: bytes) -> str:
    """The message with which a folder around `data` is refused."""
    write_folder(folder, data)
    with pytest.raises(CheckpointError) as caught:
        open_folder(folder)
    assert str(folder / "model.safetensors") in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value.message


def one(entry_: object, data: bytes = bytes(8)) -> bytes:
    return file_of({"t": entry_}, data)


def test_tensors_are_views(tmp_path: Path) -> None:
    with open_folder(write_folder(tmp_path)) as checkpoint:
        ref = checkpoint.tensors["a.weight"]
        assert (ref.shape, ref.format, ref.nbytes) == ((2, 3), FORMATS["F32"], 24)
        view = checkpoint.bytes_of(ref)
        assert not view.flags.writeable and not view.flags.owndata
        np.testing.assert_array_equal(view.view("<f4"), np.arange(6, dtype=np.float32))
        assert checkpoint.tensors["b"].format is FORMATS["BF16"]
        assert checkpoint.metadata.string("model_type") == "tiny"
        assert checkpoint.files == (tmp_path / "model.safetensors",)
        assert checkpoint.notes == ()


def test_agrees_with_the_safetensors_package(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    kinds = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]
    arrays = {f"t.{i}": rng.integers(0, 2, (i + 1, 3)).astype(kind) for i, kind in enumerate(kinds)}
    arrays["scalar"] = np.array(3.5, np.float32)
    write_folder(tmp_path)
    save_file(arrays, tmp_path / "model.safetensors", metadata={"format": "np"})
    with open_folder(tmp_path) as checkpoint:
        assert checkpoint.tensors.keys() == arrays.keys()
        for name, values in arrays.items():
            assert checkpoint.tensors[name].shape == values.shape
            assert bytes(checkpoint.bytes_of(checkpoint.tensors[name])) == values.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_its_size(tmp_path: Path, dtype: str) -> None:
    nbytes = 3 * DTYPES[dtype].block_bytes
    path = write_folder(tmp_path, one(entry(dtype, [3], 0, nbytes), bytes(nbytes))) / "model.safetensors"
    with open_folder(tmp_path) as checkpoint:
        assert checkpoint.tensors["t"].nbytes == nbytes
    with safetensors.safe_open(path, "np") as theirs:
        assert theirs.get_slice("t").get_dtype() == dtype


def test_every_cut_is_refused(tmp_path: Path) -> None:
    data = small_safetensors()
    for length in range(len(data)):
        refused(tmp_path, data[:length])
    open_folder(write_folder(tmp_path, data)).close()


def test_cut_after_opening_is_an_error_not_a_signal(tmp_path: Path) -> None:
    with open_folder(write_folder(tmp_path)) as checkpoint:
        with (tmp_path / "model.safetensors").open("r+b") as file:
            file.truncate(20)
        with pytest.raises(CheckpointError, match=r"tensor b: the file had .* and has 20 now"):
            checkpoint.bytes_of(checkpoint.tensors["b"])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html>", "begins with b'<!DOCTYPE html>'"),
        (file_of({}, b"", length=2**63), "found a length of 9223372036854775808"),
        (file_of({}, b"", length=2**64 - 1), "found a length of 18446744073709551615"),
        (file_of({}, b"", length=0), "found a length of 0"),
        (file_of(b"[1, 2]", b""), "expected a JSON object, found list"),
        (file_of(b"{}}", b""), "expected JSON"),
        (file_of(b'{"t": ' + b"[" * 5000 + b"]" * 5000 + b"}", b""), "within 64 levels"),
        (file_of(b'{"t": 1, "t": 2}', b""), "key 't': expected once, found twice"),
        (file_of(b'{"t": NaN}', b""), "found NaN"),
        (file_of(b'\xff{"t": 1}', b""), "expected JSON"),
        (one(3), "tensor t: expected dtype, shape and data_offsets"),
        (one({"dtype": "F32", "shape": [2]}), "tensor t: expected dtype, shape and data_offsets"),
        (one({**entry("F32", [2], 0, 8), "more": 1}), "tensor t: expected dtype, shape and data_offsets"),
        (one(entry("F3", [2], 0, 8)), "expected a dtype of F64"),
        (one(entry("F32", [2, -1], 0, 8)), "dimensions of at least 1"),
        (one(entry("F32", [0], 0, 0), b""), "dimensions of at least 1"),
        (one({"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}), "dimensions of at least 1"),
        (one({"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}), "dimensions of at least 1"),
        (one({"dtype": "F32", "shape": "2", "data_offsets": [0, 8]}), "dimensions of at least 1"),
        (one({"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]}), "two data_offsets"),
        (one(entry("F32", [2], -8, 0)), "two data_offsets"),
        (one(entry("F32", [2], 8, 0)), "expected 8 bytes for F32 [2]"),
        (one(entry("F32", [3], 0, 8)), "expected 12 bytes for F32 [3]"),
        (one(entry("F32", [2**62, 2**62], 0, 8)), "bytes for F32"),
        (one(entry("F32", [2**61], 0, 2**63)), "but the file ends at byte"),
        (one(entry("F32", [2], 0, 8), bytes(7)), "but the file ends at byte"),
        (one(entry("F32", [2], 0, 8), bytes(9)), "expected"),
        (one(entry("F32", [2], 8, 16), bytes(16)), "tensor t: expected to begin at byte"),
        (
            file_of({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, bytes(12)),
            "tensor b: expected to begin",
        ),
        (file_of({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 0, 8)}, bytes(8)), "expected to begin at"),
        (file_of({"a\x1b[31m": entry("F32", [2], 0, 8)}, bytes(8)), "expected a printable name"),
    ],
)
def test_damaged_files(tmp_path: Path, data: bytes, says: str) -> None:
    assert says in refused(tmp_path, data)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(small_safetensors()) - 1), st.integers(1, 255)), min_size=1, max_size=3))
def test_flipped_bytes_never_do_worse_than_an_error(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    data = bytearray(small_safetensors())
    for position, mask in flips:
        data[position] ^= mask
    write_folder(tmp_path, bytes(data))
    try:
        checkpoint = open_folder(tmp_path)
    except CheckpointError as error:
        assert str(tmp_path) in error.message
        return
    with checkpoint:
        for ref in checkpoint.tensors.values():
            assert ref.offset >= 0 and ref.offset + ref.nbytes <= len(data)
            assert len(checkpoint.bytes_of(ref)) == ref.nbytes


def test_names_of_the_language_model(tmp_path: Path) -> None:
    stored = [
        "model.language_model.layers.0.a",
        "language_model.model.layers.1.a",
        "language_model.lm_head.weight",
        "model.layers.2.a",
        "mtp.norm.weight",
        "model.visual.patch",
        "visual.patch",
    ]
    header = {name: entry("F32", [1], 4 * i, 4 * i + 4) for i, name in enumerate(stored)}
    with open_folder(write_folder(tmp_path, file_of(header, bytes(28)))) as checkpoint:
        assert {name: ref.name for name, ref in checkpoint.tensors.items()} == {
            "model.layers.0.a": stored[0],
            "model.layers.1.a": stored[1],
            "lm_head.weight": stored[2],
            "model.layers.2.a": stored[3],
            "mtp.norm.weight": stored[4],
        }


def test_two_names_become_one(tmp_path: Path) -> None:
    header = {"model.a": entry("F32", [1], 0, 4), "model.language_model.a": entry("F32", [1], 4, 8)}
    message = refused(tmp_path, file_of(header, bytes(8)))
    assert "tensor model.language_model.a: expected a name of its own, but model.a is also model.a" in message


# ------------------------------------------------------------------------------------------------- folders with index


def write_index(folder: Path, places: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A folder of two files with one tensor each, "a" and "b"."""
    for number, name in enumerate("ab"):
        data = file_of({name: entry("F32", [2], 0, 8)}, struct.pack("<2f", number, number))
        (tmp_path / f"model-0000{number + 1}-of-00002.safetensors").write_bytes(data)
    (tmp_path / "config.json").write_text("{}")
    write_index(tmp_path, {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})
    return tmp_path


def test_index_joins_files(sharded: Path) -> None:
    (sharded / "extra.safetensors").write_bytes(b"not even a model")
    with open_folder(sharded) as checkpoint:
        for number, name in enumerate("ab"):
            assert set(checkpoint.bytes_of(checkpoint.tensors[name]).view("<f4")) == {float(number)}
        assert len(checkpoint.files) == 2
        assert checkpoint.notes == ("extra.safetensors is not used: the model does not name it",)


def test_missing_file_of_an_index(sharded: Path) -> None:
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"expected 2 files, found 1; missing: model-00002-of-00002\.safetensors"):
        open_folder(sharded)


def test_every_cut_of_an_indexed_file_is_refused(sharded: Path) -> None:
    for path in sorted(sharded.glob("*.safetensors")):
        data = path.read_bytes()
        for length in range(len(data)):
            path.write_bytes(data[:length])
            with pytest.raises(CheckpointError, match=path.name):
                open_folder(sharded)
        path.write_bytes(data)
    index = (sharded / INDEX).read_bytes()
    for length in range(len(index)):
        (sharded / INDEX).write_bytes(index[:length])
        with pytest.raises(CheckpointError, match=INDEX):
            open_folder(sharded)
    (sharded / INDEX).write_bytes(index)
    open_folder(sharded).close()


@pytest.mark.parametrize(
    "file",
    ["../model.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\b.safetensors", "C:x.safetensors",
     "..", "", ".hidden.safetensors", "a\0.safetensors", "config.json", 3, None, ["a.safetensors"]],
)  # fmt: skip
def test_index_stays_in_its_folder(sharded: Path, file: object) -> None:
    write_folder(sharded.parent / "outer")
    write_index(sharded, {"a": "model-00001-of-00002.safetensors", "b": file})
    with pytest.raises(CheckpointError, match=r"tensor b: expected the name of a \.safetensors file in this folder"):
        open_folder(sharded)


@pytest.mark.parametrize("places", [None, {}, [], "a"])
def test_index_without_places(sharded: Path, places: object) -> None:
    write_index(sharded, places)
    with pytest.raises(CheckpointError, match="key weight_map: expected an object of tensor names"):
        open_folder(sharded)


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ({"a": 2, "b": 2}, "tensor b: expected in no file|tensor a: expected"),
        ({"a": 1, "b": 1}, "tensor b: expected by"),
        ({"a": 1, "b": 2, "c": 2}, "tensor c: expected by"),
        ({"a": 1, "c": 2}, "tensor b: expected in no file"),
    ],
)
def test_index_and_files_must_agree(sharded: Path, places: dict[str, int], says: str) -> None:
    write_index(sharded, {name: f"model-0000{number}-of-00002.safetensors" for name, number in places.items()})
    with pytest.raises(CheckpointError, match=says):
        open_folder(sharded)


def test_single_file_goes_before_an_index(sharded: Path) -> None:
    (sharded / "model.safetensors").write_bytes(small_safetensors())
    with open_folder(sharded) as checkpoint:
        assert checkpoint.tensors.keys() == {"a.weight", "b"}
        assert checkpoint.notes[0] == f"{INDEX} is not used: model.safetensors holds the whole model"


def test_closing_gives_files_back(sharded: Path) -> None:
    gc.collect()
    before = open_files()
    for _ in range(5):
        open_folder(sharded).close()
    (sharded / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json: expected a file, found nothing"):
        open_folder(sharded)
    assert open_files() == before
    (sharded / "config.json").write_text("{}")
    with open_folder(sharded):
        assert open_files() > before  # the count sees an open checkpoint
    assert open_files() == before
