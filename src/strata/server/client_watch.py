"""Work that ends when the client it is for leaves."""

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Receive


class ClientGoneError(Exception):
    """The client left before its answer was whole."""


class ClientWatch:
    """Ends what the task that made it does when the client leaves: ClientGoneError comes out of the `with`.

    One for the whole of a request, begun once its body was read: a second task for the work itself, or another watch
    for the stream after its first token, costs turns of the loop that every first token waits for.
    """

    def __init__(self, receive: Receive) -> None:
        task = asyncio.current_task()
        assert task is not None, "a request is answered by a task"
        self._task = task
        self._cancelled_before = task.cancelling()
        self._gone = False
        self._watcher = asyncio.create_task(self._watch(receive))

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The work is over; somebody else's cancellation stays one."""
        self._watcher.cancel()
        if self._gone and self._task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise ClientGoneError from error
