"""One answer: engine tokens in, chat events out."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from strata.chat.calls import Argued, Called, CallParser, CallPart, Over, Said
from strata.chat.detokenize import Detokenizer
from strata.chat.events import CallDelta, CallStart, Done, Event, ReasoningDelta, TextDelta, TokenLogprob
from strata.chat.reasoning import Part, ReasoningSplitter
from strata.chat.stops import StopFinder
from strata.chat.tokenizer import Tokenizer
from strata.core.errors import EngineError
from strata.engine.events import Finished, Reason, Token


@dataclass(frozen=True, slots=True)
class Reading:
    """How an answer is to be read."""

    stops: Sequence[str] = field(default=())
    """Stop strings; they end the answer wherever they appear, in its reasoning too (as in llama.cpp and vLLM)."""
    split_reasoning: bool = True
    opened: bool = False
    """The prompt already opened <think>."""
    calls: Callable[[], CallParser] | None = None
    """Makes what finds calls of tools; None: there are none to find."""
    most_calls: int | None = None
    """After so many the answer is over."""


class AnswerReader:
    """Detokenises, looks for stop strings, splits off reasoning, finds calls."""

    def __init__(self, tokenizer: Tokenizer, reading: Reading) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopFinder(reading.stops)
        self._splitter = ReasoningSplitter(reading.opened) if reading.split_reasoning else None
        self._calls = reading.calls() if reading.calls is not None else None
        self._most_calls = reading.most_calls
        self._called = 0
        self._pending: list[tuple[int, TokenLogprob]] = []
        self._tokens = 0
        self._thought = 0
        self._made = 0
        self._passed = 0

    @property
    def stopped(self) -> bool:
        """A stop string was met, or the last call was made: further tokens are not part of the answer."""
        return self._stops.found is not None or self._called == self._most_calls

    def push(self, token: Token) -> list[Event]:
        """Events that became certain with `token`."""
        if self.stopped:
            return []
        self._tokens += 1
        if token.logprob is not None:
            self._pending.append((self._made, self._likelihood(token, token.logprob)))
        text = self._detokenizer.push(token.token)
        self._made += len(text)
        passed = self._stops.push(text)
        self._passed += len(passed)
        before = self._thinking
        events = self._split(passed)
        self._thought += before or self._thinking
        return events

    @property
    def _thinking(self) -> bool:
        return self._splitter is not None and self._splitter.inside

    def finish(self, finished: Finished) -> list[Event]:
        """The held-back rest and the Done."""
        events: list[Event] = []
        over = self.stopped
        if not over:
            tail = self._detokenizer.flush()
            self._made += len(tail)
            rest = self._stops.push(tail)
            if self._stops.found is None:
                rest += self._stops.flush()
            self._passed += len(rest)
            events += self._split(rest)
        if self._splitter is not None:
            for part in self._splitter.flush():
                events += self._part(part)
        if self._calls is not None and self._called != self._most_calls:
            events += self._take(self._calls.flush(), finished.reason is Reason.STOP and not self.stopped)
        left = self._logprobs()
        if left:
            events.append(TextDelta("", left))
        done = Done(finished.reason, finished, self._tokens, self._stops.found, self._thought, self._called)
        if self.stopped or done.late:
            done = replace(done, reason=Reason.STOP if self.stopped else Reason.LENGTH)
        return [*events, done]

    def _likelihood(self, token: Token, logprob: float) -> TokenLogprob:
        piece = self._tokenizer.piece
        return TokenLogprob(
            token.token, piece(token.token), logprob, tuple((piece(other), value) for other, value in token.top)
        )

    def _split(self, text: str) -> list[Event]:
        if self._splitter is None:
            return self._part(Part(text, reasoning=False)) if text else []
        return [event for part in self._splitter.push(text) for event in self._part(part)]

    def _part(self, part: Part) -> list[Event]:
        if part.reasoning:
            return [ReasoningDelta(part.text, self._logprobs())]
        if self._calls is None:
            return [TextDelta(part.text, self._logprobs())]
        return self._take(self._calls.push(part.text)) if self._called != self._most_calls else []

    def _take(self, parts: Sequence[CallPart], own_end: bool = False) -> list[Event]:
        """Events of what a parser found; with `own_end` the model ended the answer by itself."""
        events: list[Event] = []
        for part in parts:
            match part:
                case Said(text):
                    events.append(TextDelta(text, self._logprobs()))
                case Called(name):
                    events.append(CallStart(f"call_{uuid.uuid4().hex[:24]}", name, self._logprobs()))
                case Argued(text):
                    events.append(CallDelta(text, self._logprobs()))
                case Over(whole):
                    if own_end and not whole:
                        raise EngineError("the model ended its answer in the middle of a call")
                    self._called += 1
                    if self._called == self._most_calls:
                        break
        return events

    def _logprobs(self) -> tuple[TokenLogprob, ...]:
        """Likelihoods of tokens whose text has begun to pass (those of a stop string never do)."""
        all_passed = self._passed == self._made
        ready = [item for start, item in self._pending if all_passed or start < self._passed]
        self._pending = self._pending[len(ready) :]
        return tuple(ready)
