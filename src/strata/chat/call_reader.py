"""Text with calls in it: finds where a call begins, hands it to its dialect, and goes on after it."""

from collections.abc import Callable
from typing import Protocol

from strata.chat.calls import CallPart, Over, Said
from strata.chat.stops import StopFinder


class CallBody(Protocol):
    """One call from behind its opener. While `failed` is possible it hands out no parts."""

    complete: bool
    """The call has ended; `rest` came after it."""
    failed: bool
    """It is no call: `rest` is all that was read."""
    rest: str

    def push(self, text: str) -> list[CallPart]:
        """The parts that became certain."""
        ...

    def close(self) -> list[CallPart]:
        """The answer ended here: what is missing, or `failed`. Neither `complete` nor that: it was cut."""
        ...


class CallReader:
    """A CallParser from the opener of a dialect and its way of reading one call.

    Line breaks before a call and white space after it belong to the call, as templates write them.
    """

    def __init__(self, opener: str, body: Callable[[], CallBody]) -> None:
        self._opener = opener
        self._make = body
        self._body: CallBody | None = None
        self._finder = StopFinder((opener,))
        self._gap = ""
        """Line breaks that belong to a call if one follows."""
        self._after = False
        """Nothing but white space since a call."""

    def push(self, text: str) -> list[CallPart]:
        """See CallParser."""
        parts: list[CallPart] = []
        while text:
            text = self._call(text, parts) if self._body is not None else self._plain(text, parts)
        return parts

    def flush(self) -> list[CallPart]:
        """See CallParser."""
        parts: list[CallPart] = []
        while self._body is not None:
            parts += self._body.close()
            if not self._body.failed:
                whole, self._body = self._body.complete, None
                return [*parts, Over(whole)]
            parts += self._undo(self._body)
        rest = self._gap + self._finder.flush()
        self._gap = ""
        if rest.strip() or not self._after:
            self._say(rest, parts)
        return parts

    def _plain(self, text: str, parts: list[CallPart]) -> str:
        seen = self._gap + self._finder.push(text)
        kept = seen.rstrip("\n")
        if self._after and not seen.strip():
            kept = ""
        self._gap = seen[len(kept) :]
        self._say(kept, parts)
        if self._finder.found is None:
            return ""
        rest, self._finder = self._finder.rest, StopFinder((self._opener,))
        self._body = self._make()
        # A body may fail on what it already holds, so an empty rest is no reason to wait.
        return rest

    def _say(self, text: str, parts: list[CallPart]) -> None:
        text = text.lstrip("\n") if self._after else text
        if text:
            self._after = False
            parts.append(Said(text))

    def _call(self, text: str, parts: list[CallPart]) -> str:
        assert self._body is not None
        parts += self._body.push(text)
        if self._body.failed:
            parts += self._undo(self._body)
            return ""
        if not self._body.complete:
            return ""
        rest, self._body, self._gap, self._after = self._body.rest, None, "", True
        parts.append(Over())
        return rest

    def _undo(self, body: CallBody) -> list[CallPart]:
        """What was taken for a call is text, and may hold a call further on."""
        parts: list[CallPart] = []
        self._body = None
        self._say(self._gap + self._opener, parts)
        self._gap = ""
        return [*parts, *self.push(body.rest)]
