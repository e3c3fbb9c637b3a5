"""The GGUF reader: valid files exactly."""

import gc
import struct
from pathlib import Path

import gguf as other
import numpy as np
import pytest

from checkpoint.files import DATA, PLAIN, Raw, full_gguf, gguf, key_array, key_u32, open_files, small_gguf
from strata.checkpoint.gguf import open_gguf
from strata.checkpoint.typed import ValueType
from strata.core.errors import CheckpointError
from strata.quant.formats import FORMATS


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


def test_alignment_places_the_data(path: Path) -> None:
    payload = np.arange(16, dtype="<f4").tobytes()
    path.write_bytes(gguf([key_u32("general.alignment", 64)], [Raw("t", (16,), 0, 0)], payload, alignment=64))
    with open_gguf(path) as checkpoint:
        assert checkpoint.tensors["t"].offset % 64 == 0
        assert bytes(checkpoint.bytes_of(checkpoint.tensors["t"])) == payload


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
