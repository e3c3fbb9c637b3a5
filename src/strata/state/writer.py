"""The thread that writes kept prefixes to disk, so that no step waits for a disk."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from strata.state.archive import Archive
from strata.state.prefix import Blob, Node

MOST_WAITING = 64
"""Nodes on the way to disk; their pages cannot be freed before they are written."""


@dataclass(frozen=True, slots=True)
class Job:
    """A node to write, and where its bytes are; nobody changes them until it is written."""

    node: Node
    pages: Sequence[int] | None
    parked: Blob | None
    state: Blob | None


@dataclass(frozen=True, slots=True)
class Written:
    """What lies on disk now."""

    nbytes: int
    state: bool
    """Whether the state is in it."""


class Writer:
    """Writes what it is offered, in order. `offer`, `done` and `close` are for one other thread."""

    def __init__(self, archive: Archive, gather: Callable[[Sequence[int]], Blob]) -> None:
        self._archive = archive
        self._gather = gather
        self._waiting: queue.Queue[Job | None] = queue.Queue(MOST_WAITING)
        self._done: queue.SimpleQueue[tuple[Node, Written | str]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def offer(self, job: Job) -> bool:
        """Take a job; False when too many wait already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="strata-archive", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(job)
        except queue.Full:
            return False
        return True

    def done(self) -> Iterator[tuple[Node, Written | str]]:
        """Nodes that were written, or why they were not."""
        while not self._done.empty():
            yield self._done.get()

    def wait(self) -> None:
        """Until everything that was offered is written."""
        self._waiting.join()

    def close(self) -> None:
        """Write what waits, and end."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _main(self) -> None:
        while (job := self._waiting.get()) is not None:
            self._done.put((job.node, self._write(job)))
            self._waiting.task_done()
        self._waiting.task_done()

    def _write(self, job: Job) -> Written | str:
        try:
            pages = job.parked if job.pages is None else self._gather(job.pages)
            return Written(self._archive.write(job.node, pages or {}, job.state), job.state is not None)
        except Exception as error:  # noqa: BLE001 - a full disk, or whatever it was, must not end the thread
            return f"{type(error).__name__}: {error}"
