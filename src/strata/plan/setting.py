"""One setting: its help, its kind and its bounds, kept beside the dataclass field it describes.

Flags, environment, configuration files and documentation are generated from these, so they cannot disagree.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from strata.core.errors import UsageError

Value = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Setting:
    """How one setting is written and what it may be."""

    help: str
    kind: Literal["integer", "number", "text", "switch"] = "text"
    absent: str = ""
    """The word that stands for None ("model"); empty: None cannot be written."""
    word: str = ""
    """A word that is a value of its own beside numbers ("auto")."""
    choices: tuple[str, ...] = ()
    unbuilt: tuple[str, ...] = ()
    """Choices that are understood, but not built."""
    low: float = -math.inf
    high: float = math.inf
    aliases: tuple[str, ...] = ()
    """Other names, without dashes."""

    @property
    def metavar(self) -> str:
        """What `--help` shows in the value's place."""
        if self.choices:
            return "|".join(self.choices)
        word = {"integer": "N", "number": "X", "text": "TEXT", "switch": ""}[self.kind]
        return "|".join(part for part in (word, self.word, self.absent) if part)

    def read(self, value: object, source: str) -> Value:
        """The value of `value` as a flag, an environment variable (text) or a TOML file (typed) gives it."""
        if value is None or (self.absent and value == self.absent):
            return None
        if self.word and value == self.word:
            return self.word
        if isinstance(value, str):
            return self._check(self._from_text(value, source), source)
        wanted: dict[str, tuple[type, ...]] = {"integer": (int,), "number": (int, float), "switch": (bool,), "text": ()}
        if not isinstance(value, wanted[self.kind]) or (isinstance(value, bool) and self.kind != "switch"):
            raise self._wrong(source, value)
        assert isinstance(value, int | float)
        return self._check(float(value) if self.kind == "number" else value, source)

    def check(self, value: Value, source: str) -> None:
        """Raise UsageError unless `value` (already of the field's type) is within bounds and choices."""
        if value is not None and not (self.word and value == self.word):
            self._check(value, source)

    def _from_text(self, text: str, source: str) -> Value:
        try:
            match self.kind:
                case "integer":
                    return int(text)
                case "number":
                    return float(text)
                case "switch":
                    return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
                case "text":
                    return text
        except (ValueError, KeyError) as error:
            raise self._wrong(source, text) from error

    def _check(self, value: Value, source: str) -> Value:
        if value in self.unbuilt:
            raise UsageError(f"{source}: {value!r} is not built yet", hint=f"built: {', '.join(self.choices)}")
        if self.choices and value not in self.choices:
            raise self._wrong(source, value)
        if isinstance(value, int | float) and not self.low <= value <= self.high:
            raise self._wrong(source, value)
        return value

    @property
    def values(self) -> str:
        """What it may be, in words."""
        kinds = {"integer": "a whole number", "number": "a number", "text": "text", "switch": "true or false"}
        expected = f"one of {', '.join(self.choices)}" if self.choices else kinds[self.kind]
        if math.isfinite(self.low) and math.isfinite(self.high):
            expected += f" from {_plain(self.low)} to {_plain(self.high)}"
        elif math.isfinite(self.low):
            expected += f" of {_plain(self.low)} or more"
        return expected + (f", or {self.absent or self.word}" if self.absent or self.word else "")

    def _wrong(self, source: str, found: object) -> UsageError:
        return UsageError(f"{source}: expected {self.values}, found {found!r:.60}")


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"


def setting(default: Value, text: str, **more: Any) -> Any:
    """A dataclass field with its Setting; `text` is the help."""
    return dataclasses.field(default=default, metadata={"setting": Setting(text, **more)})


def settings_of(cls: type) -> Mapping[str, Setting]:
    """The settings of a dataclass by field name."""
    return {field.name: field.metadata["setting"] for field in dataclasses.fields(cls)}


def flag_of(name: str) -> str:
    """`ctx_size` as it stands on a command line."""
    return "--" + name.replace("_", "-")
