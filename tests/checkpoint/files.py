"""Model files written byte by byte, independent of the code under test, so that any field can be made wrong."""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from strata.checkpoint.gguf import open_gguf
from strata.core.errors import CheckpointError


def text(value: str) -> bytes:
    """A GGUF string."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key(name: str, type_id: int, payload: bytes) -> bytes:
    """A GGUF key-value."""
    return text(name) + struct.pack("<I", type_id) + payload


def key_u32(name: str, value: int) -> bytes:
    return key(name, 4, struct.pack("<I", value))


def key_u16(name: str, value: int) -> bytes:
    return key(name, 2, struct.pack("<H", value))


def key_text(name: str, value: str) -> bytes:
    return key(name, 8, text(value))


def key_array(name: str, type_id: int, count: int, payload: bytes) -> bytes:
    return key(name, 9, struct.pack("<IQ", type_id, count) + payload)


@dataclass(frozen=True)
class Raw:
    """A tensor entry as it stands in the file; dims innermost first."""

    name: str
    dims: tuple[int, ...]
    type_id: int
    offset: int
    num_dims: int | None = None

    def entry(self) -> bytes:
        count = len(self.dims) if self.num_dims is None else self.num_dims
        dims = struct.pack(f"<I{len(self.dims)}Q", count, *self.dims)
        return text(self.name) + dims + struct.pack("<IQ", self.type_id, self.offset)


def gguf(
    keys: list[bytes],
    tensors: list[Raw],
    data: bytes = b"",
    alignment: int = 32,
    version: int = 3,
    num_tensors: int | None = None,
    num_keys: int | None = None,
) -> bytes:
    """A GGUF file; counts can be made to lie."""
    counts = (len(tensors) if num_tensors is None else num_tensors, len(keys) if num_keys is None else num_keys)
    head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(t.entry() for t in tensors)
    return head + b"\0" * (-len(head) % alignment) + data


def small_gguf() -> bytes:
    """A valid file: every value type, two tensors, the last one a whole multiple of the alignment."""
    keys = [
        key_text("general.architecture", "tiny"),
        key("a.u8", 0, b"\xff"),
        key("a.i8", 1, b"\xff"),
        key_u16("a.u16", 65535),
        key("a.i16", 3, struct.pack("<h", -3)),
        key_u32("a.u32", 4_000_000_000),
        key("a.i32", 5, struct.pack("<i", -5)),
        key("a.f32", 6, struct.pack("<f", 0.5)),
        key("a.bool", 7, b"\1"),
        key("a.u64", 10, struct.pack("<Q", 2**64 - 1)),
        key("a.i64", 11, struct.pack("<q", -(2**63))),
        key("a.f64", 12, struct.pack("<d", 1e300)),
        key_array("a.tokens", 8, 3, text("a") + text("") + text("日本")),
        key_array("a.u64s", 10, 2, struct.pack("<2Q", 23703573157769, 2**64 - 1)),
        key_array("a.bools", 7, 2, b"\0\1"),
        key_array("a.none", 5, 0, b""),
    ]
    tensors = [Raw("first", (3, 2), 0, 0), Raw("second.weight", (32, 2), 8, 32)]
    first = struct.pack("<6f", *range(6)) + b"\0" * 8
    second = bytes(range(68)) + b"\0" * 28
    return gguf(keys, tensors, first + second)


def full_gguf() -> bytes:
    """A valid file without padding at its end: every cut takes something away."""
    keys = [key_text("general.architecture", "tiny"), key_array("a.tokens", 8, 2, text("a") + text("日本"))]
    data = struct.pack("<8f", *range(8)) + struct.pack("<16f", *range(16))
    return gguf(keys, [Raw("one", (8,), 0, 0), Raw("two", (4, 4), 0, 32)], data)


def split_keys(number: int, total: int, tensors: int) -> list[bytes]:
    return [
        key_u16("split.no", number),
        key_u16("split.count", total),
        key("split.tensors.count", 5, struct.pack("<i", tensors)),
    ]


def write_split(folder: Path, stem: str = "m", total: int = 3) -> list[Path]:
    """A split of `total` files with one tensor [8] each, named t0, t1, ...; values are the file's number."""
    paths = []
    for number in range(total):
        keys = [key_text("general.architecture", "tiny")] if number == 0 else []
        data = struct.pack("<8f", *[number] * 8)
        path = folder / f"{stem}-{number + 1:05d}-of-{total:05d}.gguf"
        path.write_bytes(gguf(keys + split_keys(number, total, total), [Raw(f"t{number}", (8,), 0, 0)], data))
        paths.append(path)
    return paths


def safetensors(header: object, data: bytes, length: int | None = None) -> bytes:
    """A safetensors file; `header` is JSON-encoded unless it is bytes."""
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(encoded) if length is None else length) + encoded + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    """A tensor of a safetensors header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def small_safetensors() -> bytes:
    """A valid file of two tensors."""
    header = {
        "__metadata__": {"format": "pt"},
        "a.weight": entry("F32", [2, 3], 0, 24),
        "b": entry("BF16", [4], 24, 32),
    }
    return safetensors(header, struct.pack("<6f", *range(6)) + bytes(range(8)))


def write_folder(folder: Path, data: bytes | None = None, config: object | None = None) -> Path:
    """A safetensors folder of one file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(small_safetensors() if data is None else data)
    (folder / "config.json").write_text(json.dumps({"model_type": "tiny"} if config is None else config))
    return folder


def open_files() -> int:
    """File descriptors and file mappings that this process holds now."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return len(list(Path("/proc/self/fd").iterdir())) + sum(".gguf" in m or ".safetensors" in m for m in maps)


PLAIN = [Raw("t", (8,), 0, 0)]
"""One tensor of eight floats; `DATA` is what it holds."""
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
