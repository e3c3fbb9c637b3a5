"""JSON in text: the end of an object that is still coming, and how the JSON of a forced answer is spaced."""

from collections.abc import Mapping
from typing import Any

WHITE_SPACE = r"[ ]?|\n[ ]{0,20}"
"""Between the tokens of JSON: a space, or a line break and its indentation. Without an end a model may never go on."""
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def spaced(schema: Mapping[str, Any] | bool, strict: bool) -> dict[str, Any]:
    """The schema with llguidance's options; without `strict`, keywords that cannot be enforced do not count."""
    options = {"whitespace_pattern": WHITE_SPACE, "lenient": not strict, "coerce_one_of": not strict}
    given: Mapping[str, Any] = {} if schema is True else {"not": {}} if schema is False else schema
    return {**given, "x-guidance": options}


_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


class ObjectScanner:
    """Follows one object by its brackets and strings; what lies between is for a parser to judge."""

    def __init__(self) -> None:
        self._depth = 0
        self._inside = False
        self._escaped = False
        self.complete = False

    def push(self, text: str) -> tuple[str, str]:
        """(what belongs to the object, the rest once it is complete).

        Control characters inside strings, which models write and JSON forbids, come back escaped.
        """
        made: list[str] = []
        for place, letter in enumerate(text):
            if self.complete:
                return "".join(made), text[place:]
            made.append(self._take(letter))
        return "".join(made), ""

    def _take(self, letter: str) -> str:
        if self._inside:
            if self._escaped:
                self._escaped = False
            elif letter == "\\":
                self._escaped = True
            elif letter == '"':
                self._inside = False
            elif letter < " ":
                return _ESCAPES.get(letter, f"\\u{ord(letter):04x}")
        elif letter == '"':
            self._inside = True
        elif letter in "{[":
            self._depth += 1
        elif letter in "}]":
            self._depth -= 1
            self.complete = self._depth == 0
        return letter
