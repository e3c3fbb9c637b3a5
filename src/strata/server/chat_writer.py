"""Answers of OpenAI's chats."""

import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from strata.chat.blocks import ended_blocks
from strata.chat.events import CallDelta, CallStart, Delta, Done, Event, ReasoningDelta, TextDelta
from strata.server.errors import ApiError
from strata.server.logprobs import chat_items
from strata.server.stream import DONE, data
from strata.server.usage import ending, timings, usage


class ChatWriter:
    """Writes one request's answers."""

    def __init__(self, model: str, created: int, logprobs: bool, with_usage: bool) -> None:
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._head = {"id": self._id, "created": created, "model": model}
        self._logprobs = logprobs
        self._with_usage = with_usage

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

    def failed(self, error: ApiError) -> str:
        """See Writer."""
        return data(error.body())

    def _chunk(self, index: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None} | more
        chunk = self._head | {"object": "chat.completion.chunk", "choices": [choice]}
        return chunk | {"usage": None} if self._with_usage else chunk

    async def chunks(self, stream: AsyncGenerator[tuple[int, Event], None], count: int) -> AsyncGenerator[str, None]:
        """The events of a streaming request with `count` answers."""
        dones: dict[int, Done] = {}
        calls = [0] * count
        async with aclosing(stream):
            for index in range(count):
                yield data(self._chunk(index, {"role": "assistant", "content": ""}))
            async for index, event in stream:
                if isinstance(event, Done):
                    dones[index] = event
                    last = self._chunk(index, {}, **ending(event))
                    if len(dones) == count:
                        last["timings"] = timings(list(dones.values()))
                    yield data(last)
                    continue
                likely = {"content": chat_items(event.logprobs), "refusal": None} if self._logprobs else None
                calls[index] += isinstance(event, CallStart)
                yield data(self._chunk(index, _delta(event, calls[index] - 1), logprobs=likely))
        if self._with_usage:
            counts = usage([[dones[i] for i in range(count)]])
            yield data(self._head | {"object": "chat.completion.chunk", "choices": [], "usage": counts})
        yield DONE


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
