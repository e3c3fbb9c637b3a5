"""Typed, bounded access to a checkpoint's metadata."""

import math
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from strata.core.errors import CheckpointError

Scalar = int | float | str | bool
Value = Scalar | Sequence[Scalar] | None


class Metadata:
    """Key-values of one model; every getter names file, key, what was expected and what was found.

    A key whose value is null counts as absent. Numbers that are not finite are refused by every getter.
    """

    def __init__(self, file: Path, values: Mapping[str, Value]) -> None:
        self.file = file
        self.values = values

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def fail(self, key: str, expected: str, found: object) -> CheckpointError:
        """The error that says what `key` should have been; the caller raises it."""
        shown = "nothing" if found is None else reprlib.repr(found)
        return CheckpointError(f"{self.file}: key {key}: expected {expected}, found {shown}")

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An integer within [low, high]; `default` only when the key is absent."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fail(key, f"an integer from {low} to {high}", value)
        return value

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number within [low, high]; `default` only when the key is absent."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        # the range first: an integer too large for a float fails it, and `isfinite` would raise
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.fail(key, f"a number from {low} to {high}", value)
        return self._finite(key, value)

    def string(self, key: str, default: str | None = None) -> str:
        """A string; `default` only when the key is absent."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.fail(key, "a string", value)
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false; `default` only when the key is absent."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, "true or false", value)
        return value

    def integers(self, key: str, count: int | None = None) -> tuple[int, ...]:
        """An array of integers, of exactly `count` when given."""
        items = self._items(key, "integers", count)
        for index, item in enumerate(items):
            if isinstance(item, bool) or not isinstance(item, int):
                raise self.fail(f"{key}[{index}]", "an integer", item)
        return tuple(item for item in items if isinstance(item, int))

    def numbers(self, key: str, count: int | None = None) -> tuple[float, ...]:
        """An array of finite numbers, of exactly `count` when given."""
        numbers = []
        for index, item in enumerate(self._items(key, "numbers", count)):
            if isinstance(item, bool) or not isinstance(item, int | float):
                raise self.fail(f"{key}[{index}]", "a number", item)
            numbers.append(self._finite(f"{key}[{index}]", item))
        return tuple(numbers)

    def flags(self, key: str, count: int | None = None) -> tuple[bool, ...]:
        """An array of true and false, of exactly `count` when given."""
        items = self._items(key, "true and false", count)
        for index, item in enumerate(items):
            if not isinstance(item, bool):
                raise self.fail(f"{key}[{index}]", "true or false", item)
        return tuple(item for item in items if isinstance(item, bool))

    def strings(self, key: str, count: int | None = None) -> tuple[str, ...]:
        """An array of strings, of exactly `count` when given."""
        items = self._items(key, "strings", count)
        for index, item in enumerate(items):
            if not isinstance(item, str):
                raise self.fail(f"{key}[{index}]", "a string", item)
        return tuple(item for item in items if isinstance(item, str))

    def _items(self, key: str, of: str, count: int | None) -> Sequence[Scalar]:
        value = self.values.get(key)
        wanted = f"an array of {of}" if count is None else f"an array of {count} {of}"
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self.fail(key, wanted, value)
        if count is not None and len(value) != count:
            raise CheckpointError(f"{self.file}: key {key}: expected {wanted}, found {len(value)} of them")
        return value

    def _finite(self, key: str, value: float) -> float:
        try:
            result = float(value)
        except OverflowError:
            raise self.fail(key, "a finite number", value) from None
        if not math.isfinite(result):
            raise self.fail(key, "a finite number", value)
        return result
