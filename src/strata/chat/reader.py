"""One answer: engine tokens in, chat events out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from strata.chat.detokenize import Detokenizer
from strata.chat.events import Done, Event, ReasoningDelta, TextDelta, TokenLogprob
from strata.chat.reasoning import ReasoningSplitter
from strata.chat.stops import StopFinder
from strata.chat.tokenizer import Tokenizer
from strata.engine.events import Finished, Reason, Token


@dataclass(frozen=True, slots=True)
class Reading:
    """How an answer is to be read."""

    stops: Sequence[str] = field(default=())
    """Stop strings; they end the answer wherever they appear, in its reasoning too (as in llama.cpp and vLLM)."""
    split_reasoning: bool = True
    opened: bool = False
    """The prompt already opened <think>."""


class AnswerReader:
    """Detokenises, looks for stop strings, splits off reasoning. `stopped` says that a stop string was met."""

    def __init__(self, tokenizer: Tokenizer, reading: Reading) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopFinder(reading.stops)
        self._splitter = ReasoningSplitter(reading.opened) if reading.split_reasoning else None
        self._pending: list[tuple[int, TokenLogprob]] = []
        self._tokens = 0
        self._thought = 0
        self._made = 0
        self._passed = 0

    @property
    def stopped(self) -> bool:
        """A stop string was met: further tokens are not part of the answer."""
        return self._stops.found is not None

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
        if not self.stopped:
            tail = self._detokenizer.flush()
            self._made += len(tail)
            rest = self._stops.push(tail)
            if not self.stopped:
                rest += self._stops.flush()
            self._passed += len(rest)
            events += self._split(rest)
        if self._splitter is not None:
            for part in self._splitter.flush():
                events.append(self._delta(part.text, part.reasoning))
        left = self._logprobs()
        if left:
            events.append(TextDelta("", left))
        done = Done(finished.reason, finished, self._tokens, self._stops.found, self._thought)
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
            return [self._delta(text, reasoning=False)] if text else []
        return [self._delta(part.text, part.reasoning) for part in self._splitter.push(text)]

    def _delta(self, text: str, reasoning: bool) -> TextDelta | ReasoningDelta:
        logprobs = self._logprobs()
        return ReasoningDelta(text, logprobs) if reasoning else TextDelta(text, logprobs)

    def _logprobs(self) -> tuple[TokenLogprob, ...]:
        """Likelihoods of tokens whose text has begun to pass (those of a stop string never do)."""
        all_passed = self._passed == self._made
        ready = [item for start, item in self._pending if all_passed or start < self._passed]
        self._pending = self._pending[len(ready) :]
        return tuple(ready)
