"""Asking an engine in this process, for `strata run` and `strata chat`."""

import dataclasses
import itertools
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from strata.chat.conversation import Conversation, Prompt
from strata.chat.events import Event
from strata.chat.reader import AnswerReader, Reading
from strata.core.errors import EngineError, RequestError
from strata.core.log import Log
from strata.engine.engine import Engine
from strata.engine.events import Finished, Progress, Reason, Token
from strata.engine.request import Request
from strata.plan.wishes import Wishes
from strata.sampling.params import SamplingParams

PROGRESS_EVERY_S = 2.0


@dataclass
class Talker:
    """One engine, one model, one person."""

    engine: Engine
    conversation: Conversation
    defaults: SamplingParams
    wishes: Wishes
    log: Log
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def request(self, prompt: Prompt) -> Request:
        """The request for `prompt` with the wished sampling."""
        size = self.conversation.tokenizer.size
        if prompt.tokens and max(prompt.tokens) >= size:
            raise RequestError(f"the prompt has token {max(prompt.tokens)}, the vocabulary has {size}")
        seed = secrets.randbits(48) if self.wishes.seed is None else self.wishes.seed
        params = dataclasses.replace(self.defaults, seed=seed)
        stop_ids = self.conversation.tokenizer.stop_ids
        sharing = self.conversation.sharing(prompt.tokens)
        name, most = f"r{next(self.numbers)}", self.wishes.max_tokens
        return Request(name, prompt.tokens, most, params, stop_ids, sharing=sharing)

    def answer(self, prompt: Prompt, reading: Reading) -> Iterator[Event]:
        """The events of one answer; leaving early (Ctrl-C too) ends it in the engine."""
        session = self.engine.submit(self.request(prompt))
        reader = AnswerReader(self.conversation.tokenizer, reading)
        said_s = time.monotonic()
        try:
            for event in session.events():
                if isinstance(event, Token):
                    yield from reader.push(event)
                    if reader.stopped:
                        session.cancel()
                elif isinstance(event, Progress) and time.monotonic() - said_s > PROGRESS_EVERY_S:
                    said_s = time.monotonic()
                    self.log.info("prompt", read=event.read, total=event.total)
                elif isinstance(event, Finished):
                    if event.reason is Reason.ERROR:
                        raise EngineError(f"the engine could not finish the answer: {event.error}")
                    yield from reader.finish(event)
        finally:
            session.cancel()
