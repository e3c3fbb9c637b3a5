"""Work on a client's text: a short one within the event loop, a long one beside it."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SHORT = 1 << 13
"""Characters. Their tokens take a millisecond or two; to reach a thread and come back takes half of one at least, more
where the engine has all processors."""


async def aside(characters: int, work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """What `work` gives for so many characters, without keeping other clients waiting for long."""
    if characters <= SHORT:
        return work(*args, **more)
    return await asyncio.to_thread(work, *args, **more)
