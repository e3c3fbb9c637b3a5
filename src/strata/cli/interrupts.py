"""Ctrl-C while something runs for long."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noticed() -> Iterator[Callable[[], None]]:
    """Within it Ctrl-C raises KeyboardInterrupt at once, as ever; the function that it gives raises it again.

    An exception out of a signal may come up in a call that swallows every exception, and then nothing would stop.
    """
    came = threading.Event()

    def interrupted(number: int, frame: FrameType | None) -> None:
        came.set()
        raise KeyboardInterrupt

    def check() -> None:
        if came.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield check
        return
    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
