"""What a wire dialect gives the application: the answers to make, and how they are written."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from strata.chat.events import Delta, Done, Event
from strata.server.errors import ApiError
from strata.server.job import Job
from strata.server.served import ServedModel


class Writer(Protocol):
    """Writes the answers of one request."""

    def whole(self, answers: Sequence[tuple[Sequence[Delta], Done]]) -> dict[str, Any]:
        """The object of a request without streaming."""
        ...

    def begin(self, count: int) -> bytes:
        """What a stream of `count` answers begins with."""
        ...

    def event(self, number: int, event: Event) -> bytes:
        """What a stream says about an event of answer `number`."""
        ...

    def end(self) -> bytes:
        """What a stream ends with, after the last Done."""
        ...

    def failed(self, error: ApiError) -> bytes:
        """The event that tells of an error after the stream has begun."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    """One request, understood."""

    jobs: Sequence[Job]
    writer: Writer
    stream: bool


Dialect: TypeAlias = Callable[[Mapping[str, Any], ServedModel, int | None], Awaitable[Work]]
"""Reads a request's body, for a model whose context has so many tokens (None: it was never loaded yet).

ApiError or RequestError for what cannot be honoured.
"""
