"""A runner that does not come back is noticed, said, and ended; one that is idle or quick is left alone."""

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fakes import FakeRunner
from strata.engine.engine import Engine
from strata.engine.lines import Greeting, Stall, serve_lines
from strata.engine.request import Request
from strata.engine.watchdog import Watchdog

pytestmark = pytest.mark.timeout(30)


def test_a_call_that_takes_too_long_is_reported_once() -> None:
    seen: list[float] = []
    told = threading.Event()

    def stalled(seconds: float) -> None:
        seen.append(seconds)
        told.set()

    watchdog = Watchdog(lambda: 100.0, 0.05, stalled, clock=lambda: 107.0)
    watchdog.start()
    assert told.wait(10)
    watchdog.stop()
    assert seen == [7.0]


def test_nothing_is_reported_between_calls_or_within_the_limit() -> None:
    looks = 0
    enough = threading.Event()

    def since() -> float | None:
        nonlocal looks
        looks += 1
        if looks == 6:
            enough.set()
        return None if looks % 2 else 100.0

    watchdog = Watchdog(since, 0.05, lambda seconds: pytest.fail("no call stalls"), clock=lambda: 100.04)
    watchdog.start()
    assert enough.wait(10)
    watchdog.stop()


def test_the_loop_is_busy_only_while_there_is_work() -> None:
    runner = FakeRunner()
    runner.gate = threading.Semaphore(0)
    engine = Engine(runner)
    engine.start()
    session = engine.submit(Request("a", (1, 2, 3), 2))
    assert runner.entered.acquire(timeout=10)
    assert engine.busy_since is not None
    runner.gate.release(10)
    list(session.events())
    for _ in range(1000):
        if engine.busy_since is None:
            break
        threading.Event().wait(0.005)
    assert engine.busy_since is None
    engine.stop()


def test_a_stalled_step_says_fatal_before_the_end() -> None:
    runner = FakeRunner()
    runner.gate = threading.Semaphore(0)
    gate, ended = runner.gate, threading.Event()
    source, sink = os.pipe()
    out = io.StringIO()

    def end() -> None:
        ended.set()
        gate.release(1000)
        os.close(sink)

    os.write(sink, b"GEN a 2 1 2 3\n")
    with os.fdopen(source) as lines:
        serve_lines(Engine(runner), lines, out, Greeting(), Stall(0.1, end))
    assert ended.is_set()
    said = [line for line in out.getvalue().splitlines() if line.startswith("FATAL")]
    assert len(said) == 1
    assert "--stall-s 0.1" in said[0]


def test_the_process_ends_with_the_stacks_of_all_threads() -> None:
    code = "import threading, strata.cli.engine as e; "
    code += "threading.Timer(0.2, e.end_stalled).start(); threading.Event().wait()"
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=25)
    assert done.returncode == 1
    assert "most recent call first" in done.stderr
    assert "in wait" in done.stderr
