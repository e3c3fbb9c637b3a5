"""The answers of one request, whatever its dialect: engine events in, chat events out, in lots as they come."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from strata.chat.events import Delta, Done, Event
from strata.chat.reader import AnswerReader
from strata.chat.tokenizer import Tokenizer
from strata.core.errors import EngineError, StrataError
from strata.engine.events import Finished, Reason, Token
from strata.engine.protocol import DEADLINE
from strata.engine.request import DeadlineError
from strata.server.engine_process import EngineProcess
from strata.server.inbox import Inbox, Item
from strata.server.job import Job, check_fits
from strata.server.metrics import AnswerTimer
from strata.server.replies import refusal

Lot: TypeAlias = list[tuple[int, Event]]
"""Events in their order, each with its answer's number."""


class Answers:
    """All answers of one request, asked for at once. Whoever makes it closes it."""

    def __init__(
        self, engine: EngineProcess, jobs: Sequence[Job], tokenizer: Tokenizer, timer: Callable[[], AnswerTimer]
    ) -> None:
        """EngineAwayError, CapacityError or RequestError for what the engine would not take."""
        for job in jobs:
            check_fits(engine, job, tokenizer)
        self.count = len(jobs)
        self._engine = engine
        self._inbox = Inbox()
        self._open: dict[str, _Answer] = {}
        self._failure: StrataError | None = None
        self._unbegun = 0
        """Answers that a deadline cut off before their first token."""
        for number, job in enumerate(jobs):
            engine.submit(job.request, self._inbox)
            self._open[job.request.id] = _Answer(number, AnswerReader(tokenizer, job.reading), timer())

    @property
    def over(self) -> bool:
        """Every answer has had its Done, and there is no failure to tell."""
        return not self._open and self._failure is None

    async def next(self, wait_s: float | None = None) -> Lot:
        """The events that come next, at least one; nothing when none comes within `wait_s`.

        Raises what the engine refused or failed with, of whichever answer it was; DeadlineError when the deadline
        passed before any of them had begun.
        """
        loop = asyncio.get_running_loop()
        end_s = None if wait_s is None else loop.time() + wait_s
        lot: Lot = []
        while not lot:
            if self._failure is not None:
                raise self._failure
            items = await self._inbox.take(None if end_s is None else end_s - loop.time())
            if not items:
                break
            self._read(items, lot)
        return lot

    def _read(self, items: Sequence[tuple[str, Item]], lot: Lot) -> None:
        """Add to `lot` what `items` make certain; a failure waits until what came before it was taken."""
        for request_id, item in items:
            answer = self._open[request_id]
            try:
                events = answer.read(item)
            except StrataError as error:
                answer.timer.ended("error", None)
                del self._open[request_id]
                self._failure = error
                return
            if answer.ends_early():
                self._engine.cancel(request_id)
            if isinstance(item, Finished):
                del self._open[request_id]
                self._failure = self._all_late(events)
                if self._failure is not None:
                    return
            lot += [(answer.number, event) for event in events]

    def _all_late(self, events: Sequence[Event]) -> StrataError | None:
        """Why there is no answer; what a deadline cut off is one unless all of them are empty."""
        done = events[-1]
        if not (isinstance(done, Done) and done.late and not done.tokens):
            return None
        self._unbegun += 1
        return DeadlineError(f"{done.counts.error} before the first token") if self._unbegun == self.count else None

    async def collect(self) -> list[tuple[list[Delta], Done]]:
        """Everything: of every answer its deltas, and how it ended."""
        deltas: list[list[Delta]] = [[] for _ in range(self.count)]
        ends: dict[int, Done] = {}
        while not self.over:
            for number, event in await self.next():
                if isinstance(event, Done):
                    ends[number] = event
                else:
                    deltas[number].append(event)
        return [(deltas[i], ends[i]) for i in range(self.count)]

    def close(self) -> None:
        """End in the engine what is still under way."""
        for request_id, answer in self._open.items():
            self._engine.forget(request_id)
            answer.timer.ended("cancel", None)
        self._open = {}


class _Answer:
    """One answer under way."""

    def __init__(self, number: int, reader: AnswerReader, timer: AnswerTimer) -> None:
        self.number = number
        self.timer = timer
        self._reader = reader
        self._stopping = False

    def ends_early(self) -> bool:
        """Whether the engine has to be told, now, that the answer needs no more tokens."""
        if self._stopping or not self._reader.stopped:
            return False
        self._stopping = True
        return True

    def read(self, item: Item) -> list[Event]:
        """The events that `item` makes certain; raises it when it is an error."""
        if isinstance(item, Token):
            self.timer.token()
            return self._reader.push(item)
        if isinstance(item, Finished):
            return self._finish(item)
        if isinstance(item, Exception):
            raise item
        return []

    def _finish(self, finished: Finished) -> list[Event]:
        if finished.reason is Reason.ERROR:
            text = finished.error or finished.code
            raise refusal(finished.code, f"the engine could not finish the answer: {text}")
        if finished.reason is Reason.CANCEL and not self._stopping and finished.code != DEADLINE:
            raise EngineError("the answer was cancelled by the engine")
        events = self._reader.finish(finished)
        done = events[-1]
        assert isinstance(done, Done)
        self.timer.ended("deadline" if done.late else done.reason, done.counts)
        return events
