"""Engines with a thread of their own on fake runners."""

import threading
from typing import Any

from fakes import FakeRunner
from strata.engine.engine import Engine, EngineSettings
from strata.engine.events import Finished, Token
from strata.engine.request import Request
from strata.engine.session import Session


class Started:
    """An engine on a fake runner, stopped at the end of the test."""

    def __init__(self) -> None:
        self.engines: list[Engine] = []

    def __call__(self, runner: FakeRunner | None = None, **settings: Any) -> tuple[Engine, FakeRunner]:
        runner = runner or FakeRunner()
        engine = Engine(runner, EngineSettings(**settings))
        engine.start()
        self.engines.append(engine)
        return engine, runner


def gated() -> FakeRunner:
    runner = FakeRunner()
    runner.gate = threading.Semaphore(0)
    return runner


def ask(name: str, prompt: int = 5, max_new: int | None = 6, **fields: Any) -> Request:
    return Request(name, tuple((i * 3 + len(name)) % 50 for i in range(prompt)), max_new, **fields)


def collect(session: Session) -> tuple[list[int], Finished]:
    events = list(session.events())
    assert [event for event in events if isinstance(event, Finished)] == [events[-1]]
    last = events[-1]
    assert isinstance(last, Finished)
    return [event.token for event in events if isinstance(event, Token)], last
