"""The thread that owns the loop: seats sessions, runs steps, hands out events."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strata.core.errors import CapacityError, EngineError, RequestError
from strata.core.log import Log
from strata.core.order import Order
from strata.engine.admission import Admission
from strata.engine.commands import FAILED, code_of
from strata.engine.events import Event, Reason
from strata.engine.facts import facts
from strata.engine.orders import Answer, Orders, refuse
from strata.engine.outcome import Outcome
from strata.engine.request import Request
from strata.engine.runner import Runner
from strata.engine.scheduler import Scheduler
from strata.engine.session import Session, Timeline
from strata.engine.settings import Settings
from strata.engine.tally import Tally

SHORT_WAIT_S = 0.01
"""Between two looks for pages when nobody has any."""
Sink = Callable[[Session, Event], None]
REFRESH_S = 0.1
"""Age of the runner's status at which a step asks for it again; one that ends an answer always does."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine is started with."""

    scheduler: Settings = field(default=Settings())
    requested_slots: int | None = None
    """Slots that were asked for, where the plan serves another number; `slots_reason` says why."""
    slots_reason: str = "as requested"
    plan: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """What was decided about the machine, as the status shows it."""
    max_failures: int = 3
    """Steps that may fail in a row; with the last of them the engine gives up."""


class Engine:
    """Runs requests on `runner`, which only its own thread touches after `start`.

    Submitting, cancelling and asking for the status work from any thread. Every session that `submit` returns gets
    exactly one Finished, also when a step fails, the engine stops, or its thread dies.
    """

    def __init__(
        self,
        runner: Runner,
        settings: EngineSettings | None = None,
        log: Log | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._settings = settings or EngineSettings()
        self._log = log
        self._clock = clock
        self._tally = Tally()
        self._admission = Admission(runner.limits, self._settings.scheduler, self._tally)
        self._scheduler = Scheduler(self._admission)
        self._changed = threading.Condition()
        """Guards admission, scheduler and the fields below; notified when there may be something to do."""
        self._orders = Orders()
        self._stopping = False
        self._fatal: str | None = None
        self._on_fatal: list[Callable[[str], None]] = []
        self._failures = 0
        self._busy_since: float | None = None
        self._runner_status: dict[str, object] = dict(runner.status())
        self._refreshed_s = -REFRESH_S
        self._thread = threading.Thread(target=self._main, name="strata-engine", daemon=True)
        self.limits = runner.limits

    # --- for any thread --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the loop; requests may have been submitted before."""
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Cancel every session, end the loop and wait for it.

        EngineError when the running step does not return within `timeout_s`; the sessions are ended all the same.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        self._end_sessions(Reason.CANCEL, "", "")
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            raise EngineError(f"a step of the runner did not return within {timeout_s:g} s")
        with self._changed:
            orders = self._orders.take()
        refuse(orders, self._fatal or "the engine was stopped")
        self._runner.close()

    def submit(self, request: Request, sink: Sink | None = None) -> Session:
        """Take `request` in. Events go to `sink` on the engine's thread, or wait in `Session.events()`.

        CapacityError: never fits. QueueFullError: not now. RequestError: its id lives already. EngineError: down.
        """
        session = Session(request, self._wake, sink)
        with self._changed:
            if self._fatal is not None or self._stopping:
                raise EngineError(f"the engine is down: {self._fatal or 'it was stopped'}")
            self._admission.enqueue(session, self._clock())
            self._changed.notify_all()
        return session

    def find(self, request_id: str) -> Session | None:
        """The live session with this id."""
        with self._changed:
            return self._admission.find(request_id)

    def cancel(self, request_id: str) -> bool:
        """End the session with this id at the next step; False when none lives."""
        session = self.find(request_id)
        if session is not None:
            session.cancel()
        return session is not None

    def order(self, order: Order, answer: Callable[[Answer], None]) -> None:
        """Have the runner carry out `order`; its one answer comes on the engine's thread. EngineError: down."""
        with self._changed:
            if self._fatal is not None or self._stopping:
                raise EngineError(f"the engine is down: {self._fatal or 'it was stopped'}")
            self._orders.add(order, answer)
            self._changed.notify_all()

    @property
    def busy_since(self) -> float | None:
        """When the round of the loop under way began, in seconds of the clock; None while there is nothing to do."""
        return self._busy_since

    @property
    def fatal(self) -> str | None:
        """Why the engine gave up; None while it works."""
        return self._fatal

    def on_fatal(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the reason when the engine gives up (at once when it has)."""
        with self._changed:
            if self._fatal is None:
                self._on_fatal.append(listener)
                return
            reason = self._fatal
        listener(reason)

    def status(self) -> dict[str, object]:
        """Plain values for STAT and /v1/status."""
        with self._changed:
            settings = self._settings
            return {
                **facts(self._scheduler, settings.requested_slots, settings.slots_reason, self._clock()),
                "plan": settings.plan,
                "fatal": self._fatal,
                "runner": self._runner_status,
            }

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # --- the engine's thread ---------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:  # noqa: BLE001 - whatever it was, no client may be left waiting
            self._give_up(f"the engine's loop failed: {_words(error)}")
        if self._fatal is None:
            with self._changed:
                outcomes = self._admission.end_all(Reason.CANCEL, "", "", self._clock())
            self._apply(outcomes)

    def _turn(self) -> bool:
        """One round of the loop; False when it has to end."""
        with self._changed:
            self._busy_since = None
            while not (self._stopping or self._orders or self._admission.has_work()):
                self._changed.wait()
            self._busy_since = self._clock()
            if self._stopping or self._fatal is not None:
                return False
            orders = self._orders.take()
            fresh = self._admission.unmeasured()
        self._measure(fresh)
        with self._changed:
            outcomes = self._admission.sweep(self._clock())
        self._apply(outcomes)
        for order, answer in orders:
            answer(self._obey(order))
        self._admit()
        if self._fatal is None:
            self._step()
        return self._fatal is None

    def _measure(self, fresh: Iterable[tuple[Session, Timeline]]) -> None:
        """A prompt counts as long as what is to be read of it: a follow-up of a long conversation is a short one."""
        for session, line in fresh:
            tokens, began_s = session.request.tokens, self._clock()
            known = self._runner.known(tokens)
            with self._changed:
                line.left, line.measured = max(1, len(tokens) - known), True
                line.looked_s = self._clock() - began_s

    def _obey(self, order: Order) -> Answer:
        try:
            done = self._runner.order(order)
            self._refresh()
        except Exception as error:  # noqa: BLE001 - whoever gave the order hears of it
            return error
        return done

    def _refresh(self) -> None:
        status = dict(self._runner.status())
        self._refreshed_s = self._clock()
        with self._changed:
            self._runner_status = status

    def _admit(self) -> None:
        """Seat who waits, in order: when there is no room for one yet, nobody overtakes it."""
        with self._changed:
            seats = self._admission.admit()
        full = False
        for index, session in seats:
            if self._fatal is None:
                with self._changed:
                    waits = full and self._admission.unseat(index, "who is before it finds no room")
                full = full or not (waits or self._seat(index, session))

    def _seat(self, index: int, session: Session) -> bool:
        """Prepare the slot; False when the session went back to wait for room."""
        request = session.request
        most = len(request.tokens) + request.budget(self.limits)
        began = self._clock()
        try:
            held = self._runner.seat(index, request.tokens, request.params, most, request.sharing)
        except CapacityError as error:
            with self._changed:
                _, line = self._admission.slots[index].occupied()
                waits = self._admission.unseat(index, error.message)
                told, line.told = line.told, waits
            if waits and not told and self._log is not None:
                self._log.info("waits for room", request=request.id, reason=error.message)
            if not waits:
                self._fail([index], code_of(error), error.message, seated=False)
            return not waits
        except RequestError as error:
            self._fail([index], code_of(error), error.message, seated=False)
        except Exception as error:  # noqa: BLE001 - the runner's failure becomes the session's
            self._failed([index], f"preparing slot {index} failed: {_words(error)}", seated=False)
        else:
            with self._changed:
                outcome = self._admission.seated(index, held, self._clock(), began)
            self._apply([outcome])
        return True

    def _step(self) -> None:
        with self._changed:
            caps = self._scheduler.draft_caps(self._clock())
            lengths = self._scheduler.lengths()
        if not lengths:
            return
        short = self._runner.short(lengths)
        with self._changed:
            caps = self._scheduler.sit_out(short)
            chosen = self._scheduler.chosen()
            if not chosen:  # until what is on its way to disk is there
                self._changed.wait(SHORT_WAIT_S)
                return
        try:
            drafts = self._runner.draft(caps) if caps else {}
            with self._changed:
                windows = self._scheduler.next_windows(drafts)
            results = self._runner.step(windows)
            now = self._clock()
            with self._changed:
                if self._stopping:  # stop() may have stopped waiting and ended the sessions
                    return
                outcomes = self._scheduler.settle(windows, results, now)
                self._failures = 0
            for result in results:
                if result.error and self._log is not None:
                    self._log.warning("window_failed", slot=result.slot, error=result.error)
        except Exception as error:  # noqa: BLE001 - the runner's failure becomes the sessions'
            self._tally.failed_steps += 1
            self._failed(chosen, f"the step failed: {_words(error)}")
        else:
            if now - self._refreshed_s >= REFRESH_S or any(outcome.release is not None for outcome in outcomes):
                self._refresh()
            self._apply(outcomes)

    def _failed(self, slots: Iterable[int], text: str, seated: bool = True) -> None:
        """The runner failed: so do these sessions, and with the last failure allowed in a row the engine."""
        self._failures += 1
        if self._log is not None:
            self._log.warning("runner_failed", failures_in_a_row=self._failures, error=text)
        if self._failures >= self._settings.max_failures:
            self._give_up(f"{text} ({self._failures} failures in a row)")
        else:
            self._fail(slots, FAILED, text, seated)

    def _fail(self, slots: Iterable[int], code: str, text: str, seated: bool) -> None:
        with self._changed:
            alive = [index for index in slots if self._admission.slots[index].session is not None]
            outcomes = self._admission.fail(alive, code, text, self._clock())
        if seated:
            self._apply(outcomes)
        else:
            for outcome in outcomes:
                self._deliver(outcome)

    def _give_up(self, reason: str) -> None:
        with self._changed:
            if self._fatal is not None:
                return
            self._fatal = reason
            listeners = list(self._on_fatal)
        self._end_sessions(Reason.ERROR, FAILED, reason)
        for listener in listeners:
            listener(reason)

    def _end_sessions(self, reason: Reason, code: str, text: str) -> None:
        with self._changed:
            outcomes = self._admission.end_all(reason, code, text, self._clock())
        for outcome in outcomes:
            self._deliver(outcome)

    def _apply(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            # Before the client hears of it, so that its next turn finds the slot free and its state known.
            problem = None if outcome.release is None else self._release(outcome.release)
            self._deliver(outcome)
            if outcome.admission is not None and self._log is not None:
                self._log.info("admission", request=outcome.session.request.id, **outcome.admission.fields())
            if problem is not None:
                self._give_up(problem)
        if any(outcome.release is not None for outcome in outcomes):
            self._refresh()

    def _release(self, index: int) -> str | None:
        try:
            self._runner.release(index)
        except Exception as error:  # noqa: BLE001 - a slot that cannot be released cannot be trusted
            return f"releasing slot {index} failed: {_words(error)}"
        return None

    def _deliver(self, outcome: Outcome) -> None:
        session = outcome.session
        for event in outcome.events:
            try:
                session.deliver(event)
            except Exception as error:  # noqa: BLE001 - a client's sink must not take the others down
                if self._log is not None:
                    self._log.warning("client_failed", request=session.request.id, error=_words(error))
                session.cancel()


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
