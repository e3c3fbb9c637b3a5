"""A client that leaves frees what it had, and the others go on."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from engine.live import Started, ask, collect, gated
from fakes import FakeRunner
from reference.decoding import alone
from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.window import Window
from strata.engine.engine import Engine
from strata.engine.events import Event, Reason
from strata.engine.request import Request
from strata.engine.runner import Stepped
from strata.engine.session import Session

pytestmark = pytest.mark.timeout(30)


def test_a_client_whose_sink_fails_is_dropped_and_the_others_go_on(started: Started) -> None:
    engine, runner = started()

    def sink(session: Session, event: Event) -> None:
        raise BrokenPipeError("nobody reads")

    session = engine.submit(ask("a", max_new=200), sink)
    assert collect(engine.submit(ask("b")))[0] == alone(ask("b"), 256)[0]
    while session.finished is None:
        time.sleep(0.001)
    assert session.finished.reason is Reason.CANCEL
    assert session.finished.generated < 200
    assert engine.fatal is None
    assert sorted(runner.released) == [0, 1]


def test_a_cancel_works_while_a_step_runs(started: Started) -> None:
    engine, runner = started(gated())
    session = engine.submit(ask("a", max_new=200))
    runner.entered.acquire()
    assert engine.cancel("a")
    assert not engine.cancel("zz")
    assert runner.gate is not None
    runner.gate.release(1000)
    assert collect(session)[1].reason is Reason.CANCEL
    assert engine.find("a") is None
    assert runner.calls <= 2


class Counting(FakeRunner):
    """Counts the rows of finished steps by the first token of their prompts; each step waits at the gate."""

    def __init__(self) -> None:
        super().__init__(Limits(slots=1, context=256, step_tokens=16))
        self.gate: threading.Semaphore = threading.Semaphore(0)
        self.names: dict[int, int] = {}
        self.rows: Counter[int] = Counter()

    def seat(self, slot: int, tokens: Sequence[int], *rest: Any) -> Held:
        self.names[slot] = tokens[0]
        return super().seat(slot, tokens, *rest)

    def step(self, windows: Sequence[Window]) -> list[Stepped]:
        found = super().step(windows)
        for window in windows:
            self.rows[self.names[window.slot]] += len(window.tokens)
        return found


@pytest.mark.parametrize(("moment", "steps", "before", "most"), [("read", 2, 16, 24), ("decoded", 10, 62, 63)])
def test_no_step_begins_for_a_client_that_left(
    started: Started, moment: str, steps: int, before: int, most: int
) -> None:
    runner = Counting()
    engine = Engine(runner)
    started.engines.append(engine)
    engine.start()
    session = engine.submit(Request("gone", (49,) * 60, 40))
    for _ in range(steps):
        assert runner.entered.acquire(timeout=10)
        runner.gate.release()
    assert runner.entered.acquire(timeout=10)  # the next step is under way
    assert runner.rows[49] == before, moment
    session.cancel()
    runner.gate.release(1000)
    assert collect(session)[1].reason is Reason.CANCEL
    assert collect(engine.submit(ask("next")))[0] == alone(ask("next"), 256)[0]
    assert runner.rows[49] == most, "the step that was under way, and no other"


def test_who_leaves_while_waiting_is_never_seated(started: Started) -> None:
    runner = Counting()
    engine = Engine(runner)
    started.engines.append(engine)
    engine.start()
    other = engine.submit(ask("other", max_new=40))
    assert runner.entered.acquire(timeout=10)
    session = engine.submit(Request("gone", (49,) * 60, 40))
    session.cancel()
    runner.gate.release(1000)
    assert collect(session)[1].reason is Reason.CANCEL
    assert collect(other)[0] == alone(other.request, 256)[0]
    assert 49 not in runner.names.values() and runner.rows[49] == 0
