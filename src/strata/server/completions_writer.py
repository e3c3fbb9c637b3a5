"""Answers of OpenAI's text completions."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from strata.chat.events import CallStart, Delta, Done, Event, TokenLogprob
from strata.server.errors import ApiError
from strata.server.logprobs import LOWEST
from strata.server.sse import DONE, data
from strata.server.usage import ending, timings, usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a request wants to see of its answers."""

    made: int = 1
    """Answers that are made to each prompt."""
    best: int = 1
    """How many of them are shown: the likeliest."""
    echoes: Sequence[str] = ()
    """Texts of the prompts, which go before their answers; none: they do not."""
    logprobs: bool = False
    usage: bool = False
    """A stream ends with the counts."""

    def echo(self, answer: int) -> str:
        """What goes before an answer."""
        return self.echoes[answer // self.made] if self.echoes else ""


def _text(event: Delta) -> str:
    assert not isinstance(event, CallStart), "a plain text has no calls"
    return event.text


def _likelihood(events: Sequence[Delta]) -> float:
    """Per token."""
    found = [item.logprob for event in events for item in event.logprobs]
    return sum(found) / len(found) if found else LOWEST


def logprob_lists(items: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
    """Likelihoods in the completions form; `offset` characters of the answer came before."""
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for item in items:
        text = item.piece.decode(errors="replace")
        lists["tokens"].append(text)
        lists["token_logprobs"].append(max(item.logprob, LOWEST))
        lists["top_logprobs"].append({p.decode(errors="replace"): max(v, LOWEST) for p, v in item.top})
        lists["text_offset"].append(offset)
        offset += len(text)
    return lists


class CompletionWriter:
    """Writes one request's answers."""

    def __init__(self, model: str, created: int, shown: Shown) -> None:
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": created,
            "model": model,
        }
        self._shown = shown
        self._dones: dict[int, Done] = {}
        self._offsets: list[int] = []
        """Characters of every answer that were written."""

    def whole(self, answers: Sequence[tuple[Sequence[Delta], Done]]) -> dict[str, Any]:
        """The object of a request without streaming."""
        dones = [done for _, done in answers]
        kept = [answer for group in self._groups(range(len(answers))) for answer in self._best(group, answers)]
        return self._head | {
            "choices": [self._choice(i, self._shown.echo(kept[i]), *answers[kept[i]]) for i in range(len(kept))],
            "usage": usage(self._groups(dones)),
            "timings": timings(dones),
        }

    def _groups(self, items: Sequence[T]) -> list[Sequence[T]]:
        """Of each prompt."""
        return [items[i : i + self._shown.made] for i in range(0, len(items), self._shown.made)]

    def _best(self, group: Sequence[int], answers: Sequence[tuple[Sequence[Delta], Done]]) -> Sequence[int]:
        """The answers that are shown of one prompt's: those with the highest likelihood per token."""
        if self._shown.best == self._shown.made:
            return group
        return sorted(group, key=lambda answer: -_likelihood(answers[answer][0]))[: self._shown.best]

    def failed(self, error: ApiError) -> bytes:
        """See Writer."""
        return data(error.body())

    def _choice(self, index: int, echo: str, events: Sequence[Delta], done: Done) -> dict[str, Any]:
        likely = logprob_lists([i for e in events for i in e.logprobs], 0) if self._shown.logprobs else None
        return {
            "index": index,
            "text": echo + "".join(_text(e) for e in events),
            "logprobs": likely,
            **ending(done),
        }

    def _chunk(self, index: int, text: str, **more: Any) -> dict[str, Any]:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": None} | more
        chunk = self._head | {"choices": [choice]}
        return chunk | {"usage": None} if self._shown.usage else chunk

    def begin(self, count: int) -> bytes:
        """See Writer."""
        self._offsets = [0] * count
        echoed = range(count if self._shown.echoes else 0)
        return b"".join(data(self._chunk(index, self._shown.echo(index))) for index in echoed)

    def event(self, number: int, event: Event) -> bytes:
        """See Writer."""
        if isinstance(event, Done):
            self._dones[number] = event
            last = self._chunk(number, "", **ending(event))
            if len(self._dones) == len(self._offsets):
                last["timings"] = timings(list(self._dones.values()))
            return data(last)
        text = _text(event)
        likely = logprob_lists(event.logprobs, self._offsets[number]) if self._shown.logprobs else None
        self._offsets[number] += len(text)
        return data(self._chunk(number, text, logprobs=likely))

    def end(self) -> bytes:
        """See Writer."""
        if not self._shown.usage:
            return DONE
        counts = usage(self._groups([self._dones[i] for i in range(len(self._offsets))]))
        return data(self._head | {"choices": [], "usage": counts}) + DONE
