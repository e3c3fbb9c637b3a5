"""The end of a JSON object in text that is still coming."""

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
