"""GGUF's value types, and values that remember theirs."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from strata.checkpoint.metadata import Scalar


class ValueType(IntEnum):
    """Type ids of GGUF key-values (ggml, gguf.h)."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


CODES = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "B",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}
"""The struct and numpy letter of each type of fixed size (little-endian, in files)."""

FLOATS = (ValueType.FLOAT32, ValueType.FLOAT64)


def _fits(kind: ValueType, value: object) -> bool:
    """Whether `value` can be stored as `kind` without a change of its kind."""
    if kind is ValueType.STRING:
        return isinstance(value, str)
    if kind is ValueType.BOOL:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind in FLOATS:
        return isinstance(value, float)
    return isinstance(value, int)


@dataclass(frozen=True, slots=True)
class Typed:
    """A GGUF value: a scalar of `type`, or (a tuple) an array of them.

    The type is kept so that a file is written with the types it was read with: 64-bit hash multipliers must not
    become 32-bit or floating point numbers on the way.
    """

    type: ValueType
    value: Scalar | tuple[Scalar, ...]

    @property
    def is_array(self) -> bool:
        """Whether the value is an array (of any length)."""
        return isinstance(self.value, tuple)


def encode(typed: Typed) -> bytes:
    """The value as GGUF stores it after its key: type id, then the bytes; ValueError when value and type differ."""
    kind, value = typed.type, typed.value
    if kind is ValueType.ARRAY:
        raise ValueError("an array takes the type of its elements; arrays of arrays are not written")
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if not _fits(kind, item):
            raise ValueError(f"{item!r:.80} is no {kind.name}")
    if isinstance(value, tuple):
        head = struct.pack("<IIQ", ValueType.ARRAY, kind, len(value))
    else:
        head = struct.pack("<I", kind)
    return head + (_strings(items) if kind is ValueType.STRING else _numbers(kind, items))


def _strings(items: tuple[Scalar, ...]) -> bytes:
    return b"".join(encode_string(str(item)) for item in items)


def encode_string(text: str) -> bytes:
    """Length and UTF-8 bytes; ValueError for text that has none (a lone surrogate)."""
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _numbers(kind: ValueType, items: tuple[Scalar, ...]) -> bytes:
    try:
        return struct.pack(f"<{len(items)}{CODES[kind]}", *items)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"a value is out of range for {kind.name}: {error}") from error


def u32(value: int) -> Typed:
    """An unsigned 32-bit integer, what most GGUF counts are."""
    return Typed(ValueType.UINT32, value)


def f32(value: float) -> Typed:
    """A 32-bit float: `value` rounded to one."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    return Typed(ValueType.FLOAT32, rounded)


def flag(value: bool) -> Typed:
    """True or false."""
    return Typed(ValueType.BOOL, value)


def string(value: str) -> Typed:
    """A string."""
    return Typed(ValueType.STRING, value)


def array(kind: ValueType, values: Sequence[Scalar]) -> Typed:
    """An array of `kind`."""
    return Typed(kind, tuple(values))
