"""Typed, bounded access to a checkpoint's metadata."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from strata.core.errors import CheckpointError

type_names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}

Scalar = int | float | str | bool
Value = Scalar | Sequence[Scalar] | None


class Metadata:
    """Key-values of one model; every getter names file, key, what was expected and what was found."""

    def __init__(self, file: Path, values: Mapping[str, Value]) -> None:
        self.file = file
        self.values = values

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def _fail(self, key: str, expected: str, found: object) -> CheckpointError:
        shown = repr(found)
        return CheckpointError(
            f"{self.file}: key {key}: expected {expected}, found {shown[:80] if found is not None else 'nothing'}"
        )

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An integer within [low, high]; `default` only when the key is absent."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._fail(key, f"an integer from {low} to {high}", value)
        return value

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number within [low, high]; `default` only when the key is absent."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self._fail(key, f"a number from {low} to {high}", value)
        return float(value)

    def string(self, key: str, default: str | None = None) -> str:
        """A string; `default` only when the key is absent."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self._fail(key, "a string", value)
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false; `default` only when the key is absent."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, bool):
            raise self._fail(key, "true or false", value)
        return value

    def integers(self, key: str, count: int | None = None) -> tuple[int, ...]:
        """An array of integers, of exactly `count` when given."""
        value = self.values.get(key)
        wanted = "an array of integers" if count is None else f"an array of {count} integers"
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self._fail(key, wanted, value)
        if any(isinstance(v, bool) or not isinstance(v, int) for v in value):
            raise self._fail(key, wanted, value)
        if count is not None and len(value) != count:
            raise self._fail(key, wanted, f"{len(value)} of them")
        return tuple(int(v) for v in value)

    def strings(self, key: str) -> tuple[str, ...]:
        """An array of strings."""
        value = self.values.get(key)
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self._fail(key, "an array of strings", value)
        if any(not isinstance(v, str) for v in value):
            raise self._fail(key, "an array of strings", value)
        return tuple(str(v) for v in value)
