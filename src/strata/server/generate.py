"""From a request to chat events, whatever the wire dialect; several answers at once; early errors seen early."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from strata.chat.events import Delta, Done, Event
from strata.chat.reader import AnswerReader, Reading
from strata.chat.tokenizer import Tokenizer
from strata.core.errors import CapacityError, EngineError, RequestError
from strata.core.limits import Limits
from strata.engine.events import Finished, Reason, Token
from strata.engine.protocol import DEADLINE
from strata.engine.request import DeadlineError, Request
from strata.server.engine_process import EngineProcess, refusal
from strata.server.metrics import AnswerTimer, Metrics

T = TypeVar("T")
DEADLINE_HEADER = "X-Strata-Deadline-S"
"""For whoever stands between a client and the server, such as a proxy with a time limit of its own."""


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to make."""

    request: Request
    reading: Reading
    names: Mapping[str, str] = field(default_factory=dict)
    """What the dialect calls the engine's fields, where it has another word."""


def check_fits(engine: EngineProcess, job: Job, tokenizer: Tokenizer) -> None:
    """Refuse, with the numbers, what the engine would refuse or could not survive."""
    context = engine.require_ready().context
    try:
        job.request.budget(Limits(slots=1, context=context, step_tokens=1))
    except CapacityError as error:
        error.param = job.names.get(error.param or "", error.param)
        raise
    for name, ids in (("prompt", job.request.tokens), ("logit_bias", [t for t, _ in job.request.params.logit_bias])):
        worst = max(ids, default=0)
        if worst >= tokenizer.size or min(ids, default=0) < 0:
            raise RequestError(
                f"{name}: token ids are from 0 to {tokenizer.size - 1}, found {worst if worst > 0 else min(ids)}",
                param=name,
            )


async def answer(
    engine: EngineProcess, job: Job, tokenizer: Tokenizer, metrics: Metrics
) -> AsyncGenerator[Event, None]:
    """The events of one answer; leaving early ends it in the engine."""
    timer = metrics.timer()
    ended, counts = "cancel", None
    try:
        async with aclosing(untimed(engine, job, tokenizer, timer)) as events:
            async for event in events:
                if isinstance(event, Done):
                    ended, counts = "deadline" if event.late else event.reason, event.counts
                yield event
    except Exception:
        ended = "error"
        raise
    finally:
        timer.ended(ended, counts)


async def untimed(
    engine: EngineProcess, job: Job, tokenizer: Tokenizer, timer: AnswerTimer
) -> AsyncGenerator[Event, None]:
    """`answer`; `timer` hears of every token."""
    generation = engine.submit(job.request)
    reader = AnswerReader(tokenizer, job.reading)
    stopping = False
    async with aclosing(generation.events()) as events:
        async for event in events:
            if isinstance(event, Token):
                timer.token()
                for part in reader.push(event):
                    yield part
                if reader.stopped and not stopping:
                    stopping = True
                    generation.cancel()
            elif isinstance(event, Finished):
                if event.reason is Reason.ERROR:
                    text = event.error or event.code
                    raise refusal(event.code, f"the engine could not finish the answer: {text}")
                if event.reason is Reason.CANCEL and not stopping and event.code != DEADLINE:
                    raise EngineError("the answer was cancelled by the engine")
                for part in reader.finish(event):
                    yield part


async def merged(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """Items of all streams as they come, with their stream's number; the first error ends them all."""
    queue: asyncio.Queue[tuple[int, T] | Exception | None] = asyncio.Queue(maxsize=256)

    async def pump(number: int, stream: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(stream):
                async for item in stream:
                    await queue.put((number, item))
        except Exception as error:  # noqa: BLE001 (handed to the reader, who raises it)
            await queue.put(error)
        else:
            await queue.put(None)

    tasks = [asyncio.create_task(pump(i, stream)) for i, stream in enumerate(streams)]
    try:
        left = len(tasks)
        while left:
            item = await queue.get()
            if item is None:
                left -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Peeked(Generic[T]):
    """A stream whose first item can be waited for before anything is sent to the client."""

    def __init__(self, stream: AsyncGenerator[T, None]) -> None:
        self._stream = stream
        self._first: asyncio.Task[T] | None = None

    async def peek(self, wait_s: float) -> None:
        """Raise what the stream raises before its first item, if it does so within `wait_s`."""
        self._first = asyncio.ensure_future(_next(self._stream))
        try:
            done, _ = await asyncio.wait({self._first}, timeout=wait_s)
        except asyncio.CancelledError:
            await self.close()
            raise
        if done and self._first.exception() is not None:
            await self.close()
            self._first.result()

    async def items(self) -> AsyncGenerator[T, None]:
        """All items, the first included."""
        try:
            if self._first is not None:
                yield await self._first
            async for item in self._stream:
                yield item
        finally:
            await self.close()

    async def close(self) -> None:
        """End the stream."""
        if self._first is not None and not self._first.done():
            self._first.cancel()
            await asyncio.gather(self._first, return_exceptions=True)
        await self._stream.aclose()


async def _next(stream: AsyncGenerator[T, None]) -> T:
    return await anext(stream)


def answers(
    engine: EngineProcess, jobs: Sequence[Job], tokenizer: Tokenizer, metrics: Metrics
) -> AsyncGenerator[tuple[int, Event], None]:
    """All answers of one request together; DeadlineError when it passed before any of them had begun."""
    for job in jobs:
        check_fits(engine, job, tokenizer)
    return begun(merged([answer(engine, job, tokenizer, metrics) for job in jobs]), len(jobs))


async def begun(stream: AsyncGenerator[tuple[int, Event], None], count: int) -> AsyncGenerator[tuple[int, Event], None]:
    """`stream` of `count` answers; what a deadline cut off counts as an answer unless all are empty."""
    empty = 0
    async with aclosing(stream):
        async for number, event in stream:
            if isinstance(event, Done) and event.late and not event.tokens:
                empty += 1
                if empty == count:
                    raise DeadlineError(f"{event.counts.error} before the first token")
            yield number, event


def within(jobs: Sequence[Job], asked: str | None) -> list[Job]:
    """`jobs` with the deadline of the request's header `asked`; the sooner one where its body names another."""
    if asked is None:
        return list(jobs)
    try:
        seconds = float(asked)
        return [
            replace(job, request=replace(job.request, deadline_s=min(seconds, job.request.deadline_s or seconds)))
            for job in jobs
        ]
    except (ValueError, RequestError) as error:
        raise RequestError(f"{DEADLINE_HEADER} takes seconds above 0, found {asked[:40]!r}", DEADLINE_HEADER) from error


async def collect(stream: AsyncGenerator[tuple[int, Event], None], count: int) -> list[tuple[list[Delta], Done]]:
    """Everything of `count` answers: their deltas, and how each ended."""
    deltas: list[list[Delta]] = [[] for _ in range(count)]
    ends: dict[int, Done] = {}
    async with aclosing(stream):
        async for number, event in stream:
            if isinstance(event, Done):
                ends[number] = event
            else:
                deltas[number].append(event)
    return [(deltas[i], ends[i]) for i in range(count)]
