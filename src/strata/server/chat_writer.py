"""Answers of OpenAI's chats."""

import uuid
from collections.abc import Sequence
from typing import Any

from strata.chat.blocks import ended_blocks
from strata.chat.events import CallDelta, CallStart, Delta, Done, Event, ReasoningDelta, TextDelta
from strata.server.errors import ApiError
from strata.server.logprobs import chat_items
from strata.server.sse import DONE, data
from strata.server.usage import ending, timings, usage


class ChatWriter:
    """Writes one request's answers."""

    def __init__(self, model: str, created: int, logprobs: bool, with_usage: bool) -> None:
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._head = {"id": self._id, "created": created, "model": model}
        self._logprobs = logprobs
        self._with_usage = with_usage
        self._dones: dict[int, Done] = {}
        self._calls: list[int] = []
        """Calls that every answer has begun."""

    def whole(self, answers: Sequence[tuple[Sequence[Delta], Done]]) -> dict[str, Any]:
        """The object of a request without streaming."""
        dones = [done for _, done in answers]
        return self._head | {
            "object": "chat.completion",
            "choices": [self._choice(i, events, done) for i, (events, done) in enumerate(answers)],
            "usage": usage([dones]),
            "timings": timings(dones),
        }

    def _choice(self, index: int, events: Sequence[Delta], done: Done) -> dict[str, Any]:
        blocks = ended_blocks(events)
        texts = {
            kind: "".join(block.text for block in blocks if block.begun.kind == kind) for kind in ("text", "reasoning")
        }
        calls = [_call(block.begun.id, block.begun.name, block.text) for block in blocks if block.begun.kind == "call"]
        message: dict[str, Any] = {"role": "assistant", "content": texts["text"] or (None if calls else "")}
        if texts["reasoning"]:
            message["reasoning_content"] = texts["reasoning"]
        if calls:
            message["tool_calls"] = calls
        logprobs = None
        if self._logprobs:
            logprobs = {"content": chat_items([i for e in events for i in e.logprobs]), "refusal": None}
        return {"index": index, "message": message, "logprobs": logprobs, **ending(done)}

    def failed(self, error: ApiError) -> bytes:
        """See Writer."""
        return data(error.body())

    def _chunk(self, index: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None} | more
        chunk = self._head | {"object": "chat.completion.chunk", "choices": [choice]}
        return chunk | {"usage": None} if self._with_usage else chunk

    def begin(self, count: int) -> bytes:
        """See Writer."""
        self._calls = [0] * count
        return b"".join(data(self._chunk(index, {"role": "assistant", "content": ""})) for index in range(count))

    def event(self, number: int, event: Event) -> bytes:
        """See Writer."""
        if isinstance(event, Done):
            self._dones[number] = event
            last = self._chunk(number, {}, **ending(event))
            if len(self._dones) == len(self._calls):
                last["timings"] = timings(list(self._dones.values()))
            return data(last)
        likely = {"content": chat_items(event.logprobs), "refusal": None} if self._logprobs else None
        self._calls[number] += isinstance(event, CallStart)
        return data(self._chunk(number, _delta(event, self._calls[number] - 1), logprobs=likely))

    def end(self) -> bytes:
        """See Writer."""
        if not self._with_usage:
            return DONE
        counts = usage([[self._dones[i] for i in range(len(self._calls))]])
        return data(self._head | {"object": "chat.completion.chunk", "choices": [], "usage": counts}) + DONE


def _call(call: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}


def _delta(event: Delta, number: int) -> dict[str, Any]:
    """What is new with `event`; the call that began last has this number."""
    match event:
        case CallStart(id=call, name=name):
            return {"tool_calls": [{"index": number, **_call(call, name, "")}]}
        case CallDelta(text=text):
            return {"tool_calls": [{"index": number, "function": {"arguments": text}}]}
        case ReasoningDelta(text=text):
            return {"reasoning_content": text}
        case TextDelta(text=text):
            return {"content": text}
