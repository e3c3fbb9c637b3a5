"""Notices a runner that does not come back."""

import threading
import time
from collections.abc import Callable


class Watchdog:
    """Calls `stalled` once, with the seconds so far, when one call of the runner takes longer than `limit_s`.

    `since` says when the call under way began (in seconds of `clock`), None between calls. A call that hangs cannot be
    interrupted in its own process: what is left is to say where every thread stands, and to end the process.
    """

    def __init__(
        self,
        since: Callable[[], float | None],
        limit_s: float,
        stalled: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._since = since
        self._limit_s = limit_s
        self._stalled = stalled
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="strata-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        # Looked at ten times per limit: a stall is noticed at most a tenth later, and an idle engine stays idle.
        while not self._ended.wait(min(1.0, self._limit_s / 10)):
            since = self._since()
            taken_s = 0.0 if since is None else self._clock() - since
            if taken_s > self._limit_s:
                self._stalled(taken_s)
                return
