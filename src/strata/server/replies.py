"""Who waits for what the engine will say: the events of requests, the answers to questions and orders."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from strata.core.errors import CapacityError, EngineError, RequestError
from strata.core.log import Log
from strata.engine.events import Event, Finished
from strata.engine.protocol import (
    BAD_REQUEST,
    BUSY,
    TOO_LONG,
    UNKNOWN,
    UNSUPPORTED,
    Error,
    Experts,
    Kept,
    Message,
    Of,
    Status,
)
from strata.engine.request import QueueFullError
from strata.server.departures import Departures
from strata.server.inbox import Inbox

Answer = Mapping[str, Any]
STATUS = "stat"
EXPERTS = "experts"


class Replies:
    """Belongs to the event loop's thread."""

    def __init__(self, log: Log) -> None:
        self.idle = asyncio.Event()
        """Set while no request is under way."""
        self.idle.set()
        self._log = log
        self._live: dict[str, Inbox] = {}
        """Where the events of a request go, by its id."""
        self._asked: defaultdict[str, deque[asyncio.Future[Answer]]] = defaultdict(deque)
        """Who waits for an answer, by the verb of the question."""
        self._departures = Departures()

    @property
    def live(self) -> tuple[str, ...]:
        """Requests under way."""
        return tuple(self._live)

    def expect_events(self, request_id: str, inbox: Inbox) -> None:
        """What is said of a request goes to `inbox`, up to Finished or an error."""
        self._live[request_id] = inbox
        self.idle.clear()

    def forget(self, request_id: str) -> None:
        """Nobody waits for a request's events any more."""
        self._live.pop(request_id, None)
        if not self._live:
            self.idle.set()

    def expect(self, verb: str) -> "asyncio.Future[Answer]":
        """The next answer to `verb`."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[verb].append(answer)
        return answer

    def take(self, message: Message) -> None:
        """Hand out what the engine said."""
        match message:
            case Of(name, event):
                self._hand_out(name, event)
            # Unknown is a request whose STOP crossed its last words: they follow.
            case Error(name, code, text) if name in self._live and code != UNKNOWN:
                self._live[name].put(name, self._refusal(code, text))
                self.forget(name)
            case Kept(verb, counts):
                self._settle(verb, counts)
            case Experts(values):
                self._settle(EXPERTS, values)
            case Status(values):
                self._settle(STATUS, values)
            case Error("-", code, text):
                verb, _, why = text.partition(": ")
                if not self._settle(verb, refusal(code, why)):
                    self._log.warning("engine refused a line", code=code, reason=text)
            case _:
                pass

    def _hand_out(self, request_id: str, event: Event) -> None:
        over = isinstance(event, Finished)
        if over:
            self._departures.left(time.monotonic())
        if request_id in self._live:  # else nobody waits for it any more
            self._live[request_id].put(request_id, event)
            if over:
                self.forget(request_id)

    def fail(self, why: str) -> None:
        """Tell everybody who waits that the engine is gone."""
        for name in self.live:
            self._live[name].put(name, EngineAwayError(f"the answer was cut off: {why}"))
            self.forget(name)
        for verb in self._asked:
            while self._settle(verb, EngineAwayError(why)):
                pass

    def _settle(self, verb: str, found: Answer | Exception) -> bool:
        """Give an answer to who waits longest for one; False when nobody does."""
        if not self._asked[verb]:
            return False
        answer = self._asked[verb].popleft()
        if not answer.done():
            if isinstance(found, Exception):
                answer.set_exception(found)
            else:
                answer.set_result(found)
        return True

    def _refusal(self, code: str, text: str) -> Exception:
        found = refusal(code, text)
        if isinstance(found, QueueFullError):
            found.after_s = self._departures.wait_s(time.monotonic())
        return found


class EngineAwayError(EngineError):
    """Loading, restarting or gone: no request can be taken right now."""


def refusal(code: str, text: str) -> Exception:
    """The exception for an ERR line, or for an end with an error."""
    if code == BUSY:
        return QueueFullError(text)
    if code == TOO_LONG:
        return CapacityError(text, param="messages")
    if code in {BAD_REQUEST, UNSUPPORTED}:
        return RequestError(text)
    return EngineError(text)
