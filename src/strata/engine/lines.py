"""The line protocol's loop: commands from a text stream to an Engine, its events to another. Grammar: protocol.py."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from strata.core.errors import EngineError, RequestError, StrataError, UnsupportedError
from strata.core.order import Order
from strata.engine.commands import (
    FAILED,
    UNKNOWN,
    UNSUPPORTED,
    USAGE,
    Gen,
    Keep,
    LineError,
    Stat,
    Stop,
    Yield,
    code_of,
    parse_command,
)
from strata.engine.engine import Engine
from strata.engine.events import Event, Finished, Token
from strata.engine.messages import (
    format_admitted,
    format_error,
    format_event,
    format_experts,
    format_fatal,
    format_info,
    format_kept,
    format_ready,
    format_status,
)
from strata.engine.orders import Answer
from strata.engine.request import Request
from strata.engine.session import Session
from strata.engine.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the client is told before its first request."""

    stop_ids: tuple[int, ...] = ()
    """Stop ids of a GEN that names none."""
    info: Mapping[str, object] = field(default_factory=dict)
    """Facts for the INFO line, such as the model's name."""


class _Writer:
    """Whole lines under one lock, from the engine's thread and the reading one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._admitted: set[Session] = set()

    def write(self, *lines: str) -> None:
        """Write `lines` together."""
        with self._lock:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()

    def event(self, session: Session, event: Event) -> None:
        """A session's sink: its event, with what the slot-addressed form says around it."""
        request = session.request
        lines = [format_event(request.id, event)]
        if request.slot is not None:
            over = isinstance(event, Finished)
            if isinstance(event, Finished) and event.error:
                lines.insert(0, format_error(request.id, event.code, event.error))
            if session not in self._admitted and (over or isinstance(event, Token)):
                self._admitted.add(session)
                lines.insert(0, format_admitted(request.slot, running=not over))
            if over:
                self._admitted.discard(session)
        self.write(*lines)

    def kept(self, order: Order, answer: Answer) -> None:
        """What became of an order."""
        if not isinstance(answer, Exception):
            self.write(format_experts(answer) if order.verb == "experts" else format_kept(order.verb, answer))
            return
        code = UNSUPPORTED if isinstance(answer, UnsupportedError) else FAILED
        text = str(answer) if isinstance(answer, StrataError) else f"{type(answer).__name__}: {answer}"
        self.write(format_error("-", code, f"{order.verb}: {text}"))


def read_lines(stream: TextIO, limit: int) -> Iterator[str | None]:
    """Lines without their end; None for one longer than `limit` characters, which is skipped whole."""
    while piece := stream.readline(limit + 1):
        if len(piece) <= limit or piece.endswith("\n"):
            yield piece.rstrip("\r\n")
            continue
        while piece and not piece.endswith("\n"):
            piece = stream.readline(limit + 1)
        yield None


@dataclass(frozen=True, slots=True)
class Stall:
    """What happens when a step does not return."""

    limit_s: float
    end: Callable[[], None]
    """Ends the process, after FATAL was written."""


def serve_lines(
    engine: Engine,
    stdin: TextIO,
    stdout: TextIO,
    greeting: Greeting,
    stall: Stall | None = None,
    max_line: int = 1 << 24,
    prepare: Callable[[Request], None] = lambda request: None,
) -> int:
    """Start `engine`, answer lines until QUIT or the end of input, stop it. Returns 0, or 1 when it gave up.

    `prepare` does for a request what may take long and needs no engine; a RequestError of it refuses the request.

    Open `stdin` with errors="replace", so that bytes which are no UTF-8 give an ERR line. After FATAL the loop ends
    with the next line or end of input; a process that should end at once does so in its own Engine.on_fatal.
    """
    writer = _Writer(stdout)
    status = engine.status()["slots"]
    slots = status if isinstance(status, dict) else {}
    engine.on_fatal(lambda reason: writer.write(format_fatal(reason)))
    engine.start()
    watchdog = watch(engine, writer, stall) if stall is not None else None
    try:
        writer.write(
            format_info(batch_slots=slots["serving"], requested=slots["requested"], reason=slots["reason"]),
            *([format_info(**greeting.info)] if greeting.info else []),
            format_ready(engine.limits.context, greeting.stop_ids),
        )
        for line in read_lines(stdin, max_line):
            if engine.fatal is not None:
                break
            if line is None:
                writer.write(format_error("-", USAGE, f"a line longer than {max_line} characters"))
            elif not _answer(line, engine, writer, greeting.stop_ids, prepare):
                break
    except BrokenPipeError:
        pass  # nobody reads any more: the same as the end of input
    finally:
        if watchdog is not None:
            watchdog.stop()
        engine.stop()
    return int(engine.fatal is not None)


def watch(engine: Engine, writer: _Writer, stall: Stall) -> Watchdog:
    """Say FATAL and end the process when a step takes too long."""

    def stalled(seconds: float) -> None:
        writer.write(format_fatal(f"a step has not returned for {seconds:.0f} s (--stall-s {stall.limit_s:g})"))
        stall.end()

    watchdog = Watchdog(lambda: engine.busy_since, stall.limit_s, stalled)
    watchdog.start()
    return watchdog


def _answer(
    line: str,
    engine: Engine,
    writer: _Writer,
    stop_ids: tuple[int, ...],
    prepare: Callable[[Request], None],
) -> bool:
    """Carry out one line; False for QUIT."""
    if not line.strip():
        return True
    request_id = "-"
    try:
        match parse_command(line, stop_ids):
            case Gen(request):
                request_id = request.id
                prepare(request)
                engine.submit(request, writer.event)
            case Stop(name) | Yield(name) as command:
                _interrupt(engine, name, ends=isinstance(command, Stop))
            case Keep(order):
                engine.order(order, lambda answer: writer.kept(order, answer))
            case Stat():
                writer.write(format_status(engine.status()))
            case _:
                return False
    except RequestError as error:
        if isinstance(error, LineError):
            request_id = error.id
        elif error.param == "id":  # the live request of that id must not take this for its own end
            request_id = "-"
        writer.write(format_error(request_id, code_of(error), str(error)))
    except EngineError as error:
        writer.write(format_error(request_id, FAILED, str(error)))
    return True


def _interrupt(engine: Engine, request_id: str, ends: bool) -> None:
    session = engine.find(request_id)
    if session is None:
        raise LineError(request_id, UNKNOWN, f"no live request {request_id}")
    if ends:
        session.cancel()
    else:
        session.give_way()
