"""Engines that are started for one check, and ended with it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import cast

from strata.assemble import Loaded
from strata.checks.crowd import Answer, Crowd, Part, Tell
from strata.checks.lanes import Lane
from strata.checks.runners import forgetful
from strata.checks.watched import Watched
from strata.core.order import Order
from strata.engine.engine import Engine, EngineSettings
from strata.engine.runner import Runner


@dataclass(frozen=True, slots=True)
class Finding:
    """What one part of a check found."""

    name: str
    streams: int
    tokens: int
    """Answer tokens compared."""
    failure: str
    """What is wrong; "" when nothing is."""
    figures: Mapping[str, object] = field(default_factory=dict)


@contextmanager
def running(
    runner: Runner | Watched | Lane,
    settings: EngineSettings | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Engine]:
    """An engine that runs for as long as it is used."""
    engine = Engine(cast(Runner, runner), settings or EngineSettings(), clock=clock)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def alone(loaded: Loaded, parts: Sequence[Part], tell: Tell | None = None) -> dict[str, Answer]:
    """Every request in an engine with one slot that keeps nothing, one after the other, whole."""
    found: dict[str, Answer] = {}
    with running(forgetful(loaded, 1)) as engine:
        for done, part in enumerate(parts, 1):
            found |= Crowd(engine, [Part(part.request)]).run()
            if tell is not None:
                tell(done, len(parts))
    return found


def obey(engine: Engine, order: Order) -> Mapping[str, int]:
    """Give an order and wait for what became of it; raises what it failed with."""
    answers: SimpleQueue[Mapping[str, int] | Exception] = SimpleQueue()
    engine.order(order, answers.put)
    answer = answers.get()
    if isinstance(answer, Exception):
        raise answer
    return answer


def next_turns(
    parts: Sequence[Part], answers: Mapping[str, Answer], questions: Sequence[Sequence[int]], max_new: int = 10
) -> list[Part]:
    """Each conversation goes on with a new question behind its answer."""
    again = []
    for i, part in enumerate(parts):
        said = answers[part.request.id].tokens
        tokens = (*part.request.tokens, *said, *questions[i % len(questions)])
        again.append(Part(replace(part.request, id=f"{part.request.id}.2", tokens=tokens, max_new=max_new, slot=None)))
    return again


def said(answers: Mapping[str, Answer]) -> int:
    """Tokens of all answers."""
    return sum(len(answer.tokens) for answer in answers.values())
