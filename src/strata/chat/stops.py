"""Stop strings, found across token borders."""

from collections.abc import Sequence


class StopFinder:
    """Passes text on, holding back the longest end of it that may still become a stop string.

    The stop whose last character comes first wins (of several, the longest), so the result does not depend on how
    the text was cut into pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if any(not stop for stop in stops):
            raise ValueError("a stop string is empty")
        self._stops = tuple(stops)
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text; nothing passes after it."""
        self.rest = ""
        """What came after it in the same piece."""

    def push(self, text: str) -> str:
        """The part of the text so far that is certainly not (part of) a stop string."""
        if self.found is not None:
            return ""
        if not self._stops:
            return text
        buffer = self._held + text
        hits = [(at + len(stop), at, stop) for stop in self._stops if (at := buffer.find(stop)) >= 0]
        if hits:
            end, start, self.found = min(hits)
            self._held, self.rest = "", buffer[end:]
            return buffer[:start]
        keep = self._longest_beginning(buffer)
        self._held = buffer[len(buffer) - keep :]
        return buffer[: len(buffer) - keep]

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held

    def _longest_beginning(self, buffer: str) -> int:
        """Length of the longest end of `buffer` with which some stop begins."""
        longest = min(len(buffer), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            end = buffer[len(buffer) - length :]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
