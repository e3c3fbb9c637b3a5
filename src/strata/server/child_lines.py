"""Lines of a child process, as many at once as have come."""

import asyncio

LONGEST_LINE = 1 << 24
_READ_BYTES = 1 << 18


class ChildLines:
    """Splits what a child writes; one read serves all the lines that a step of the engine wrote."""

    def __init__(self, stream: asyncio.StreamReader, longest: int = LONGEST_LINE) -> None:
        self._stream = stream
        self._longest = longest
        self._rest = b""

    async def next(self, wait_s: float | None = None) -> list[bytes]:
        """The next lines, at least one, without their ends; none at the end of the stream.

        TimeoutError when nothing comes for `wait_s`, ValueError for a line that is too long.
        """
        while True:
            async with asyncio.timeout(wait_s):
                read = await self._stream.read(_READ_BYTES)
            *lines, self._rest = (self._rest + read).split(b"\n")
            if not read and self._rest:
                lines, self._rest = [self._rest], b""
            if max(map(len, lines), default=len(self._rest)) > self._longest:
                raise ValueError(f"a line of more than {self._longest} bytes")
            if lines or not read:
                return lines
