"""Splits an answer into reasoning and text at <think> and </think>, across token borders."""

from dataclasses import dataclass
from enum import Enum

from strata.chat.stops import StopFinder

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an answer."""

    text: str
    reasoning: bool


class _State(Enum):
    START = 0
    """Nothing but white space so far: a <think> may still come."""
    INSIDE = 1
    AFTER = 2
    """Right after </think>: line breaks belong to the marker."""
    TEXT = 3


class ReasoningSplitter:
    """Only a <think> at the very start opens reasoning (later ones are text); the prompt may have opened it already.

    Line breaks next to the markers belong to the markers, as templates write them, so that a conversation rendered
    again gives the same prompt.
    """

    def __init__(self, opened: bool) -> None:
        self._state = _State.INSIDE if opened else _State.START
        self._closing = StopFinder((CLOSE,))
        self._held = ""
        self._begun = False

    @property
    def inside(self) -> bool:
        """Whether more reasoning may come."""
        return self._state is _State.INSIDE

    def push(self, text: str) -> list[Part]:
        """The parts that became certain with `text`."""
        parts: list[Part] = []
        if self._state is _State.START:
            text = self._start(text)
        if self._state is _State.INSIDE:
            text = self._inside(text, parts)
        if self._state is _State.AFTER:
            text = text.lstrip("\n")
            if text:
                self._state = _State.TEXT
        if self._state is _State.TEXT and text:
            parts.append(Part(text, reasoning=False))
        return parts

    def flush(self) -> list[Part]:
        """What was held back, once no more text comes (an answer cut while thinking is all reasoning)."""
        if self._state is _State.INSIDE:
            text = self._held + self._closing.flush()
            text = text if self._begun else text.lstrip("\n")
            return [Part(text, reasoning=True)] if text else []
        held, self._held = self._held, ""
        return [Part(held, reasoning=False)] if held else []

    def _start(self, text: str) -> str:
        """Decide whether the answer opens with <think>; returns the text to go on with."""
        seen = self._held + text
        body = seen.lstrip()
        if body.startswith(OPEN):
            self._state, self._held = _State.INSIDE, ""
            return body[len(OPEN) :]
        if OPEN.startswith(body):
            self._held = seen
            return ""
        self._state, self._held = _State.TEXT, ""
        return seen

    def _inside(self, text: str, parts: list[Part]) -> str:
        """Emit reasoning up to </think>; returns the text after it."""
        seen = self._held + self._closing.push(text)
        if not self._begun:
            seen = seen.lstrip("\n")
        kept = seen.rstrip("\n")
        self._held = seen[len(kept) :]
        if kept:
            self._begun = True
            parts.append(Part(kept, reasoning=True))
        if self._closing.found is None:
            return ""
        self._state, self._held = _State.AFTER, ""
        return self._closing.rest
