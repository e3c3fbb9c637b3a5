"""What the engine says to one client, kept until the client's task asks for it."""

import asyncio
import contextlib
from typing import TypeAlias

from strata.engine.events import Event

Item: TypeAlias = Event | Exception
"""An event of a request, or why there will be no more of them."""


class Inbox:
    """Items of one or several requests in the order in which they came; one task waits for them.

    Whoever is slow gets everything that came meanwhile at once, so that a slow client costs one wake-up and one write
    for many tokens, and a quick one waits for none.
    """

    def __init__(self) -> None:
        self._items: list[tuple[str, Item]] = []
        self._came = asyncio.Event()

    def put(self, request_id: str, item: Item) -> None:
        """Another item of a request."""
        self._items.append((request_id, item))
        self._came.set()

    async def take(self, wait_s: float | None = None) -> list[tuple[str, Item]]:
        """All that came since the last time, at least one item; nothing when none comes within `wait_s`."""
        if not self._items:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._came.wait()
        self._came.clear()
        items, self._items = self._items, []
        return items
