"""Reading a GGUF header: every number is checked against the bytes that remain before it is used."""

import struct
from types import TracebackType
from typing import NoReturn

import numpy as np

from strata.checkpoint.mapped import MappedFile
from strata.checkpoint.metadata import Scalar
from strata.checkpoint.text import shown
from strata.checkpoint.typed import CODES, Typed, ValueType
from strata.core.errors import CheckpointError

NAME_BYTES = 65_535
"""Longest key or tensor name (the GGUF specification's limit for keys)."""
STRING_BYTES = 1 << 26
"""Longest string value; the longest chat templates have some tens of thousands."""
ARRAY_ITEMS = 1 << 24
"""Longest array; the largest vocabularies have about a million tokens."""

_LENGTH = struct.Struct("<Q")


class Cursor:
    """A position in a file's header. `what` arguments name the thing being read, for errors."""

    def __init__(self, file: MappedFile) -> None:
        self.path = file.path
        self.size = file.size
        self.position = 0
        self._data = file.view(0, file.size, "header").data

    def __enter__(self) -> "Cursor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # an exception's traceback may keep this frame for long, and a view keeps the mapping
        self._data.release()

    @property
    def remaining(self) -> int:
        """Bytes from here to the end of the file."""
        return self.size - self.position

    def fail(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise a CheckpointError that begins with the file's name."""
        raise CheckpointError(f"{self.path}: {message}", hint)

    def take(self, nbytes: int, what: str) -> int:
        """Step over `nbytes` bytes, which must be there; gives where they begin."""
        if nbytes > self.remaining:
            self.fail(
                f"{what} needs {nbytes} bytes at byte {self.position}, but the file ends {self.remaining} bytes on",
                hint="the file is cut off or damaged: download it again",
            )
        start = self.position
        self.position += nbytes
        return start

    def raw(self, nbytes: int, what: str) -> bytes:
        """The next `nbytes` bytes (few: this copies them)."""
        start = self.take(nbytes, what)
        return bytes(self._data[start : start + nbytes])

    def number(self, kind: ValueType, what: str) -> int | float:
        """One number of fixed size."""
        layout = struct.Struct("<" + CODES[kind])
        (value,) = layout.unpack_from(self._data, self.take(layout.size, what))
        return value  # type: ignore[no-any-return]

    def u32(self, what: str) -> int:
        """An unsigned 32-bit integer."""
        return int(self.number(ValueType.UINT32, what))

    def u64(self, what: str) -> int:
        """An unsigned 64-bit integer."""
        return int(self.number(ValueType.UINT64, what))

    def count(self, what: str, each: int, most: int) -> int:
        """A 64-bit count of things of at least `each` bytes: no more than fit in the rest, nor than `most`."""
        found = self.u64(f"the number of {what}")
        room = self.remaining // each
        if found > room:
            self.fail(f"expected at most {room} {what} in the {self.remaining} bytes that remain, found {found}")
        if found > most:
            self.fail(f"expected at most {most} {what}, found {found}")
        return found

    def string(self, what: str, longest: int) -> str:
        """A string: 64-bit length, then UTF-8."""
        length = self.u64(f"the length of {what}")
        if length > longest:
            self.fail(f"{what}: expected at most {longest} bytes, found a length of {length}")
        start = self.take(length, what)
        try:
            return str(self._data[start : start + length], "utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"{what}: expected UTF-8 text, found {error.reason} at byte {start + error.start}")

    def name(self, what: str) -> str:
        """The name of a key or tensor: not empty and printable, so that it can stand in any message."""
        text = self.string(what, NAME_BYTES)
        if not text or not text.isprintable():
            self.fail(f"{what}: expected a printable name, found {shown(text) or 'an empty one'}")
        return text

    def value_type(self, what: str) -> ValueType:
        """The type id of a value or of an array's elements."""
        found = self.u32(f"the type of {what}")
        if found > max(ValueType):
            self.fail(f"{what}: expected a GGUF value type from 0 to {max(ValueType):d}, found {found}")
        return ValueType(found)

    def value(self, key: str) -> Typed:
        """A key's value with its type."""
        what = f"key {shown(key)}"
        kind = self.value_type(what)
        if kind is not ValueType.ARRAY:
            return Typed(kind, self._scalar(kind, what))
        kind = self.value_type(f"{what}'s elements")
        if kind is ValueType.ARRAY:
            self.fail(f"{what}: expected an array of scalars, found an array of arrays")
        each = 8 if kind is ValueType.STRING else struct.calcsize("<" + CODES[kind])
        count = self.count(f"elements of {what}", each, ARRAY_ITEMS)
        if kind is ValueType.STRING:
            return Typed(kind, self._strings(count, what))
        start = self.take(count * each, what)
        # to a list at once: an array that outlives this line would keep the mapping from being closed
        values = np.frombuffer(self._data, dtype="<" + CODES[kind], count=count, offset=start).tolist()
        if kind is not ValueType.BOOL:
            return Typed(kind, tuple(values))
        if count and max(values) > 1:
            self.fail(f"{what}: expected only 0 and 1 in an array of true and false, found {max(values)}")
        return Typed(kind, tuple(value == 1 for value in values))

    def _scalar(self, kind: ValueType, what: str) -> Scalar:
        if kind is ValueType.STRING:
            return self.string(what, STRING_BYTES)
        value = self.number(kind, what)
        if kind is not ValueType.BOOL:
            return value
        if value not in (0, 1):
            self.fail(f"{what}: expected 0 or 1 for true or false, found {value}")
        return value == 1

    def _strings(self, count: int, what: str) -> tuple[str, ...]:
        """`count` strings. The same checks as `string`, written out: vocabularies have a quarter million."""
        data, size, position = self._data, self.size, self.position
        items = []
        for index in range(count):
            if size - position < 8:
                self.position = position
                self.take(8, f"the length of {what}[{index}]")
            (length,) = _LENGTH.unpack_from(data, position)
            position += 8
            if length > size - position or length > STRING_BYTES:
                self.position = position - 8
                self.string(f"{what}[{index}]", STRING_BYTES)
            try:
                items.append(str(data[position : position + length], "utf-8"))
            except UnicodeDecodeError as error:
                start = position + error.start
                self.fail(f"{what}[{index}]: expected UTF-8 text, found {error.reason} at byte {start}")
            position += length
        self.position = position
        return tuple(items)
