"""What a wire dialect gives the application: the answers to make, and how they are written."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from strata.chat.events import Delta, Done, Event
from strata.server.engine_process import EngineProcess
from strata.server.errors import ApiError
from strata.server.generate import Job
from strata.server.served import ServedModel


class Writer(Protocol):
    """Writes the answers of one request."""

    def whole(self, answers: Sequence[tuple[Sequence[Delta], Done]]) -> dict[str, Any]:
        """The object of a request without streaming."""
        ...

    def chunks(self, stream: AsyncGenerator[tuple[int, Event], None], count: int) -> AsyncGenerator[str, None]:
        """The events of a streaming request with `count` answers."""
        ...

    def failed(self, error: ApiError) -> str:
        """The event that tells of an error after the stream has begun."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    """One request, understood."""

    jobs: Sequence[Job]
    writer: Writer
    stream: bool


Dialect: TypeAlias = Callable[[Mapping[str, Any], ServedModel, EngineProcess], Awaitable[Work]]
"""Reads a request's body; ApiError or RequestError for what cannot be honoured."""
