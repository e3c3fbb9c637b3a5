"""A scheduler with a fake device, stepped by hand."""

from collections.abc import Callable
from typing import Any

from fakes import FakeRunner
from strata.core.limits import Limits
from strata.core.window import Window
from strata.engine.admission import Admission
from strata.engine.events import Event, Finished, Progress, Token
from strata.engine.outcome import Outcome
from strata.engine.request import Request
from strata.engine.scheduler import Scheduler
from strata.engine.session import Session
from strata.engine.settings import Settings
from strata.engine.tally import Tally


class Bench:
    """A scheduler with its runner, stepped by hand."""

    def __init__(self, runner: FakeRunner, settings: Settings | None = None) -> None:
        self.runner = runner
        self.tally = Tally()
        self.admission = Admission(runner.limits, settings or Settings(), self.tally)
        self.scheduler = Scheduler(self.admission)
        self.now = 0.0
        self.cost: Callable[[list[Window]], float] | None = None
        """Seconds of a step; None: steps take no time, and a second passes between them."""
        self.sessions: dict[str, Session] = {}
        self.events: dict[str, list[Event]] = {}
        self.steps = 0
        self.read_at: dict[str, int] = {}
        """Number of the step in which a prompt was read to its end."""
        self.longest_wait: dict[str, float] = {}
        """Seconds between two steps that a prompt took part in."""
        self.served: dict[str, float] = {}

    def submit(self, request: Request) -> Session:
        session = Session(request, wake=lambda: None)
        self.admission.enqueue(session, self.now)
        self.sessions[request.id] = session
        self.events[request.id] = []
        return session

    def ask(self, name: str, prompt: int, max_new: int | None = 4, **fields: Any) -> Session:
        return self.submit(Request(name, tuple((i * 7 + len(name)) % 50 for i in range(prompt)), max_new, **fields))

    def apply(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.release is not None:
                self.runner.release(outcome.release)
            self.events[outcome.session.request.id] += outcome.events

    def step(self) -> list[Window]:
        admission, scheduler = self.admission, self.scheduler
        self.steps += 1
        self.now += 0.0 if self.cost else 1.0
        self.apply(admission.sweep(self.now))
        for index, session in admission.admit():
            request = session.request
            held = self.runner.seat(index, request.tokens, request.params, None, request.sharing)
            self.apply([admission.seated(index, held, self.now)])
        scheduler.draft_caps(self.now)
        caps = scheduler.sit_out(self.runner.short(scheduler.lengths()))
        windows = scheduler.next_windows(self.runner.draft(caps))
        results = self.runner.step(windows) if windows else []
        self.now += self.cost(windows) if self.cost else 0.0
        if windows:
            names = [admission.slots[window.slot].occupied()[0].request.id for window in windows]
            self.apply(scheduler.settle(windows, results, self.now))
            self.note(names)
        return windows

    def note(self, names: list[str]) -> None:
        for name in names:
            done = [event for event in self.events[name] if isinstance(event, Progress)]
            if done and done[-1].read == done[-1].total:
                self.read_at.setdefault(name, self.steps)
            waited = self.now - self.served.get(name, self.now)
            self.longest_wait[name] = max(self.longest_wait.get(name, 0.0), waited)
            self.served[name] = self.now

    def run(self, most: int = 500) -> None:
        while self.admission.has_work():
            self.step()
            most -= 1
            assert most, "sessions did not end"

    def answer(self, name: str) -> list[int]:
        return [event.token for event in self.events[name] if isinstance(event, Token)]

    def finished(self, name: str) -> Finished:
        ends = [event for event in self.events[name] if isinstance(event, Finished)]
        assert len(ends) == 1
        assert self.events[name][-1] is ends[0]
        return ends[0]


def bench(slots: int = 4, context: int = 256, step_tokens: int = 64, drafts: int = 0, **settings: Any) -> Bench:
    return Bench(FakeRunner(Limits(slots, context, step_tokens), draft_depth=drafts), Settings(**settings))
