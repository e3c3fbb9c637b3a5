"""How much text the parts of a regular expression take at least, and which words they contain."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

NEVER = 1 << 30
"""Characters of what has no text, or none that ends."""
WORDS = 64
"""Words that are kept of one grammar."""


@dataclass(frozen=True, slots=True)
class Size:
    """Characters of one part of a grammar. Estimates: what a part excludes elsewhere is not looked at."""

    least: int = 0
    """Of its shortest text."""
    choice: int = 0
    """Of the shortest text of the largest part within it that may come or not."""
    words: frozenset[str] = frozenset()
    """Texts that are written as they are, single characters too."""


def literal(text: str) -> Size:
    """One text and no other."""
    return Size(len(text), 0, frozenset((text,)) if text else frozenset())


def in_turn(parts: Sequence[Size]) -> Size:
    """One part after the other."""
    return Size(min(NEVER, sum(part.least for part in parts)), _choice(parts), _words(parts))


def one_of(parts: Sequence[Size]) -> Size:
    """Any of the parts."""
    finite = [part.least for part in parts if part.least < NEVER]
    choice = max(finite, default=0) if len(parts) > 1 else 0
    return Size(min(finite, default=NEVER), max(choice, _choice(parts)), _words(parts))


def repeated(part: Size, low: int, high: int | None) -> Size:
    """The part `low` times or more, up to `high` (None: any number)."""
    free = part.least if part.least < NEVER and high != low else 0
    return Size(min(NEVER, part.least * low), max(part.choice, free), part.words)


def _choice(parts: Sequence[Size]) -> int:
    return max((part.choice for part in parts), default=0)


def _words(parts: Sequence[Size]) -> frozenset[str]:
    found = frozenset[str]().union(*(part.words for part in parts))
    return found if len(found) <= WORDS else frozenset(sorted(found)[:WORDS])


_REPEAT = re.compile(r"(?:[*+?]|\{(\d+)(?:(,)(\d*))?\})[?]?")
_GROUP = re.compile(r"\((?:\?(?:P?<\w+>|[a-zA-Z-]*:|[a-zA-Z-]+(?=\))))?")
_ESCAPE = re.compile(r"\\(?:[pPxuU]\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CLASSES = frozenset("dDwWsSpPbBAzZ")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}


class _Regex:
    """Reads one expression from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def whole(self) -> Size:
        """Up to the end; a bracket too many ends it too."""
        return self._branches()

    def _branches(self) -> Size:
        found = [self._sequence()]
        while self._at < len(self._pattern) and self._pattern[self._at] == "|":
            self._at += 1
            found.append(self._sequence())
        return one_of(found)

    def _sequence(self) -> Size:
        parts: list[Size] = []
        run = ""
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            text, part = self._atom()
            low, high = self._times()
            if text and (low, high) == (1, 1):
                run += text
                continue
            parts += [literal(run), repeated(part, low, high)]
            run = ""
        return in_turn([*parts, literal(run)])

    def _atom(self) -> tuple[str, Size]:
        """(the character, if it is one and no other; its size)."""
        letter = self._pattern[self._at]
        if letter == "(":
            opened = _GROUP.match(self._pattern, self._at)
            self._at = opened.end() if opened else self._at + 1
            inner = self._branches()
            self._at += 1
            return "", inner
        if letter == "[":
            self._class()
            return "", Size(1)
        if letter == "\\":
            return self._escape()
        self._at += 1
        if letter in "^$":
            return "", Size()
        return ("", Size(1)) if letter == "." else (letter, literal(letter))

    def _escape(self) -> tuple[str, Size]:
        found = _ESCAPE.match(self._pattern, self._at)
        written = found.group() if found else "\\"
        self._at += len(written)
        kind, rest = written[1:2], written[2:].strip("{}")
        if kind in _CLASSES:
            return "", Size(0 if kind in "bBAzZ" else 1)
        if kind in "xuU" and rest:
            code = int(rest, 16) if re.fullmatch("[0-9a-fA-F]{1,6}", rest) else 0
            return ("", Size(1)) if code > 0x10FFFF else (chr(code), literal(chr(code)))
        letter = _CONTROL.get(kind, kind)
        return letter, literal(letter)

    def _class(self) -> None:
        """Beyond a class in brackets, with classes within it."""
        depth, self._at = 1, self._at + 1
        self._at += self._pattern.startswith("^", self._at)
        self._at += self._pattern.startswith("]", self._at)
        while self._at < len(self._pattern) and depth:
            letter = self._pattern[self._at]
            depth += (letter == "[") - (letter == "]")
            self._at += 2 if letter == "\\" else 1

    def _times(self) -> tuple[int, int | None]:
        found = _REPEAT.match(self._pattern, self._at)
        if found is None:
            return 1, 1
        self._at = found.end()
        if found.group(1) is None:
            mark = found.group()[0]
            return int(mark == "+"), 1 if mark == "?" else None
        low = int(found.group(1))
        if found.group(2) is None:
            return low, low
        return low, int(found.group(3)) if found.group(3) else None


def of_pattern(pattern: str) -> Size:
    """A regular expression's texts."""
    return _Regex(pattern).whole()
