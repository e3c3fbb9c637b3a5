"""The GGUF writer: what it writes is read back alike, by us and by the gguf package, and never by halves."""

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import gguf as other
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint.files import small_gguf
from strata.checkpoint.gguf import open_gguf
from strata.checkpoint.typed import FLOATS, Typed, ValueType, array, encode, f32, flag, string, u32
from strata.checkpoint.writer import Data, TensorSource, write_gguf
from strata.core.errors import CheckpointError
from strata.quant.formats import FORMATS

KEYS = {"general.architecture": string("tiny")}
RANGES = {
    ValueType.UINT8: (0, 2**8 - 1),
    ValueType.INT8: (-(2**7), 2**7 - 1),
    ValueType.UINT16: (0, 2**16 - 1),
    ValueType.INT16: (-(2**15), 2**15 - 1),
    ValueType.UINT32: (0, 2**32 - 1),
    ValueType.INT32: (-(2**31), 2**31 - 1),
    ValueType.UINT64: (0, 2**64 - 1),
    ValueType.INT64: (-(2**63), 2**63 - 1),
}


def tensor(name: str, data: Data, values: int = 8) -> TensorSource:
    return TensorSource(name, (values,), FORMATS["F32"], data)


def typed_values() -> st.SearchStrategy[Typed]:
    """Scalars and arrays of every type (floats finite: NaN is not equal to itself)."""
    options: list[st.SearchStrategy[Typed]] = []
    for kind in ValueType:
        items: st.SearchStrategy[int] | st.SearchStrategy[float] | st.SearchStrategy[str]
        if kind is ValueType.ARRAY:
            continue
        if kind in RANGES:
            items = st.integers(*RANGES[kind])
        elif kind in FLOATS:
            items = st.floats(allow_nan=False, width=32 if kind is ValueType.FLOAT32 else 64)
        elif kind is ValueType.BOOL:
            items = st.booleans()
        else:
            items = st.text(st.characters(codec="utf-8"), max_size=12)
        options.append(st.builds(Typed, st.just(kind), items))
        options.append(st.builds(array, st.just(kind), st.lists(items, max_size=5)))
    return st.one_of(options)


sources = st.builds(
    lambda fmt, lead, blocks, seed: (fmt, (*lead, blocks * fmt.block), seed),
    st.sampled_from([fmt for fmt in FORMATS.values() if fmt.type_id >= 0]),
    st.lists(st.integers(1, 3), max_size=3),
    st.integers(1, 2),
    st.integers(0, 255),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.text("abc._日", min_size=1, max_size=8), typed_values(), max_size=6),
    st.lists(sources, max_size=4),
    st.sampled_from([8, 32, 64, 4096]),
)
def test_what_is_written_is_read(
    tmp_path: Path, keys: dict[str, Typed], shapes: list[tuple[object, tuple[int, ...], int]], alignment: int
) -> None:
    path, again = tmp_path / "w.gguf", tmp_path / "again.gguf"
    made = []
    for index, (fmt, shape, seed) in enumerate(shapes):
        source = TensorSource(f"t{index}", shape, fmt, b"")  # type: ignore[arg-type]
        data = np.random.default_rng(seed).integers(0, 256, source.nbytes, dtype=np.uint8)
        made.append(TensorSource(source.name, shape, source.format, data))
    write_gguf(path, KEYS | keys, made, alignment)
    with open_gguf(path) as checkpoint:
        read = {k: v for k, v in checkpoint.types.items() if k != "general.alignment"}
        assert read == KEYS | keys
        assert list(read) == list(KEYS | keys)
        for source in made:
            ref = checkpoint.tensors[source.name]
            assert (ref.shape, ref.format, ref.offset % alignment) == (source.shape, source.format, 0)
            np.testing.assert_array_equal(checkpoint.bytes_of(ref), source.data)
        copies = [TensorSource(r.name, r.shape, r.format, checkpoint.bytes_of(r)) for r in checkpoint.tensors.values()]
        write_gguf(again, checkpoint.types, copies, alignment)
    assert again.read_bytes() == path.read_bytes()


def test_a_foreign_file_survives_byte_for_byte(tmp_path: Path) -> None:
    path, again = tmp_path / "a.gguf", tmp_path / "b.gguf"
    path.write_bytes(small_gguf())
    with open_gguf(path) as checkpoint:
        copies = [TensorSource(r.name, r.shape, r.format, checkpoint.bytes_of(r)) for r in checkpoint.tensors.values()]
        write_gguf(again, checkpoint.types, copies)
    assert again.read_bytes() == path.read_bytes()


def test_the_gguf_package_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "w.gguf"
    rng = np.random.default_rng(3)
    values = rng.standard_normal((4, 3, 64), dtype=np.float32)
    keys = {
        "general.architecture": string("qwen3moe"),
        "qwen3moe.block_count": u32(4),
        "qwen3moe.rope.freq_base": f32(1e7),
        "qwen3moe.multipliers": array(ValueType.UINT64, [23703573157769, 2**64 - 1]),
        "tokenizer.ggml.tokens": array(ValueType.STRING, ["a", "é"]),
        "tokenizer.ggml.add_bos_token": flag(False),
    }
    q8 = other.quants.quantize(values, other.GGMLQuantizationType.Q8_0)
    tensors = [
        TensorSource("plain", (4, 3, 64), FORMATS["F32"], values),
        TensorSource("q8", (4, 3, 64), FORMATS["Q8_0"], lambda: iter(q8)),
    ]
    write_gguf(path, keys, tensors, alignment=64)
    reader = other.GGUFReader(path)
    for name, value in keys.items():
        field = reader.get_field(name)
        assert field is not None
        contents = field.contents()
        assert (tuple(contents) if isinstance(contents, list) else contents) == value.value
    assert [t.name for t in reader.tensors] == ["plain", "q8"]
    np.testing.assert_array_equal(reader.tensors[0].data, values)
    np.testing.assert_array_equal(reader.tensors[1].data, q8)


def test_one_tensor_in_memory_at_a_time(tmp_path: Path) -> None:
    size = 1 << 20

    def make() -> Iterator[bytes]:
        for _ in range(4):
            yield bytes(size // 4)

    def peak(tensors: list[TensorSource]) -> int:
        tracemalloc.start()
        write_gguf(tmp_path / "w.gguf", KEYS, tensors)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak([tensor(f"t{i}", make, size // 4) for i in range(12)]) < size
    assert peak([tensor(f"t{i}", lambda: bytes(size), size // 4) for i in range(12)]) < 3 * size
    kept: list[bytes] = []

    def keep() -> bytes:
        kept.append(bytes(size))
        return kept[-1]

    # the measurement sees tensors that stay in memory
    assert peak([tensor(f"t{i}", keep, size // 4) for i in range(12)]) >= 12 * size


@pytest.mark.parametrize("existing", [b"old file", None])
def test_a_failure_leaves_nothing_half_written(tmp_path: Path, existing: bytes | None) -> None:
    path = tmp_path / "w.gguf"
    if existing is not None:
        path.write_bytes(existing)

    def broken() -> Iterator[bytes]:
        yield bytes(16)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_gguf(path, KEYS, [tensor("a", bytes(32)), tensor("b", broken)])
    with pytest.raises(ValueError, match="tensor a: expected 32 bytes, got 31"):
        write_gguf(path, KEYS, [tensor("a", bytes(31))])
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == ([("w.gguf", existing)] if existing else [])
    write_gguf(path, KEYS, [tensor("a", bytes(32))])
    assert [p.name for p in tmp_path.iterdir()] == ["w.gguf"]
    open_gguf(path).close()


def test_disk_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none/w\.gguf: cannot be written"):
        write_gguf(tmp_path / "none" / "w.gguf", KEYS, [])


@pytest.mark.parametrize(
    "value",
    [
        Typed(ValueType.UINT32, -1),
        Typed(ValueType.UINT32, 2**32),
        Typed(ValueType.UINT8, 1.0),
        Typed(ValueType.UINT8, True),
        Typed(ValueType.BOOL, 1),
        Typed(ValueType.FLOAT32, 1),
        Typed(ValueType.FLOAT32, 1e300),
        Typed(ValueType.STRING, 3),
        Typed(ValueType.STRING, "\ud800"),
        Typed(ValueType.INT64, (1, 2**63)),
        Typed(ValueType.INT64, (1, "a")),
        Typed(ValueType.ARRAY, (1,)),
    ],
)
def test_values_that_are_not_of_their_type(tmp_path: Path, value: Typed) -> None:
    with pytest.raises(ValueError, match="key k: "):
        write_gguf(tmp_path / "w.gguf", KEYS | {"k": value}, [])
    assert not list(tmp_path.iterdir())


def test_f32_is_the_value_that_is_stored() -> None:
    assert f32(0.1).value == struct.unpack("<f", struct.pack("<f", 0.1))[0] != 0.1
    assert encode(f32(0.1)) == struct.pack("<If", 6, 0.1)


@pytest.mark.parametrize(
    ("tensors", "alignment", "says"),
    [
        ([tensor("a", bytes(32)), tensor("a", bytes(32))], 32, "tensor a is given twice"),
        ([tensor("", bytes(32))], 32, "no printable name"),
        ([TensorSource("a", (1,) * 5, FORMATS["F32"], bytes(4))], 32, "1 to 4 dimensions"),
        ([TensorSource("a", (0,), FORMATS["F32"], b"")], 32, "at least 1"),
        ([TensorSource("a", (48,), FORMATS["Q8_0"], b"")], 32, "48 values are no multiple"),
        ([TensorSource("a", (48,), FORMATS["FP8"], b"")], 32, "GGUF has no type for FP8"),
        ([tensor("a", np.zeros(8, ">f4"))], 32, "big-endian"),
        ([], 24, "alignment 24"),
        ([], 4, "alignment 4"),
    ],
)
def test_arguments_that_make_no_file(tmp_path: Path, tensors: list[TensorSource], alignment: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        write_gguf(tmp_path / "w.gguf", KEYS, tensors, alignment)
    assert not list(tmp_path.iterdir())


def test_alignment_in_the_keys_must_agree(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"general\.alignment 64 differs from the alignment 32"):
        write_gguf(tmp_path / "w.gguf", KEYS | {"general.alignment": u32(64)}, [])
