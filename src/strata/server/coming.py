"""The answers of one request, which the engine is asked for as soon as the request's model is loaded."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from strata.chat.events import Delta, Done
from strata.engine.request import DeadlineError
from strata.server.answers import Answers, Lot
from strata.server.catalog import Model
from strata.server.dialect import Work
from strata.server.job import Job
from strata.server.metrics import AnswerTimer
from strata.server.models import Models

NOTICED_S = 0.01
"""A shorter wait for the model counts for nothing."""
LEAST_S = 0.001
"""What is left of a deadline that passed while the engine was handed over."""


async def ask(
    models: Models,
    model: Model,
    work: Work,
    again: Callable[[int], Awaitable[Work]] | None,
    timer: Callable[[], AnswerTimer],
) -> Answers:
    """Wait for `model`, then ask for all jobs of `work`; DeadlineError when the sooner deadline passes before.

    `again` reads the request once more, by the tokens of a context that was not known before the model was loaded.
    """
    began_s = time.monotonic()
    most_s = min((job.request.deadline_s for job in work.jobs if job.request.deadline_s is not None), default=None)
    try:
        async with asyncio.timeout(most_s), models.use(model) as engine:
            if again is not None:
                work = await again(engine.require_ready().context)
            waited_s = time.monotonic() - began_s
            left = [shortened(job, waited_s) for job in work.jobs]
            return Answers(engine, left, model.served.conversation.tokenizer, timer)
    except TimeoutError as error:
        raise DeadlineError(f"the deadline of {most_s:g} s passed before model {model.name!r} was loaded") from error


def shortened(job: Job, waited_s: float) -> Job:
    """`job` with what is left of its deadline."""
    deadline_s = job.request.deadline_s
    if deadline_s is None or waited_s < NOTICED_S:
        return job
    return replace(job, request=replace(job.request, deadline_s=max(LEAST_S, deadline_s - waited_s)))


class Coming:
    """Answers that may have to wait for their model first. Whoever makes it closes it."""

    def __init__(self, count: int, asked: "Answers | asyncio.Task[Answers]") -> None:
        """`count` answers, or the task that asks for them."""
        self.count = count
        self._asked = asked

    @property
    def over(self) -> bool:
        """Every answer has had its Done."""
        return isinstance(self._asked, Answers) and self._asked.over

    async def next(self, wait_s: float | None = None) -> Lot:
        """See Answers.next; raises, too, why the engine could not be asked."""
        if not isinstance(self._asked, Answers):
            began_s = time.monotonic()
            done, _ = await asyncio.wait({self._asked}, timeout=wait_s)
            if not done:
                return []
            self._asked = self._asked.result()
            wait_s = None if wait_s is None else max(0.0, wait_s - (time.monotonic() - began_s))
        return await self._asked.next(wait_s)

    async def collect(self) -> list[tuple[list[Delta], Done]]:
        """See Answers.collect."""
        if not isinstance(self._asked, Answers):
            self._asked = await self._asked
        return await self._asked.collect()

    def close(self) -> None:
        """End what is still under way, or is waited for."""
        if isinstance(self._asked, Answers):
            self._asked.close()
        elif not self._asked.done():
            self._asked.cancel()
        elif not self._asked.cancelled() and self._asked.exception() is None:
            self._asked.result().close()


async def coming(
    models: Models,
    model: Model,
    work: Work,
    again: Callable[[int], Awaitable[Work]] | None,
    timer: Callable[[], AnswerTimer],
) -> Coming:
    """The answers of `work`: asked for here and now when `model` need not be waited for, else by a task."""
    asking = ask(models, model, work, again, timer)
    return Coming(len(work.jobs), await asking if models.passes(model) else asyncio.create_task(asking))
