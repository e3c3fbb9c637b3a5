"""OpenAI's responses: answers."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strata.chat.blocks import Begun, Blocks, Ended, More, Step, ended_blocks
from strata.chat.events import Delta, Done, Event, TokenLogprob
from strata.engine.events import Reason
from strata.server.errors import ApiError
from strata.server.logprobs import chat_items
from strata.server.responses_items import carried
from strata.server.sse import named
from strata.server.usage import timings

_PREFIX = {"text": "msg", "reasoning": "rs", "call": "fc"}
_PART = {"text": "output_text", "reasoning": "reasoning_text"}


@dataclass(frozen=True, slots=True)
class Told:
    """What the response says about its request."""

    model: str
    created: int
    fields: Mapping[str, Any]
    logprobs: bool = False
    encrypted: bool = False
    """Reasoning is also given in the form that clients carry without looking at it."""


class ResponseWriter:
    """Writes one request's response."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._id = uuid.uuid4().hex
        self._sent = 0
        """Events, which are numbered."""
        self._output: list[dict[str, Any]] = []
        self._blocks = Blocks()

    def whole(self, answers: Sequence[tuple[Sequence[Delta], Done]]) -> dict[str, Any]:
        """See Writer."""
        ((events, done),) = answers
        self._output = [self._item(each, _status(done)) for each in ended_blocks(events)]
        return self._response(_status(done), done)

    def begin(self, count: int) -> bytes:
        """See Writer."""
        created = self._event("response.created", response=self._response("in_progress", None))
        return created + self._event("response.in_progress", response=self._response("in_progress", None))

    def event(self, number: int, event: Event) -> bytes:
        """See Writer."""
        if not isinstance(event, Done):
            return b"".join(self._step(step, "completed") for step in self._blocks.push(event))
        status = _status(event)
        closed = b"".join(self._step(step, status) for step in self._blocks.close())
        return closed + self._event(f"response.{status}", response=self._response(status, event))

    def end(self) -> bytes:
        """See Writer."""
        return b""

    def failed(self, error: ApiError) -> bytes:
        """See Writer."""
        said = {"code": "server_error" if error.status >= 500 else "invalid_prompt", "message": error.message}
        response = self._response("failed", None) | {"error": said}
        # The last field is not in the interface, but it is what the official client looks for to raise an error.
        told = self._event("error", code=error.code, message=error.message, param=error.param, **error.body())
        return self._event("response.failed", response=response) + told

    def _response(self, status: str, done: Done | None) -> dict[str, Any]:
        told = self._told
        over: dict[str, Any] = {"usage": None}
        if done is not None:
            over = {"usage": usage(done), "timings": timings([done]), "completed_at": int(time.time())}
        return {
            "id": f"resp_{self._id}",
            "object": "response",
            "created_at": told.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": told.model,
            "output": list(self._output),
            **told.fields,
            **over,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._sent += 1
        return named({"type": kind, "sequence_number": self._sent - 1, **fields})

    def _item_id(self, begun: Begun) -> str:
        return f"{_PREFIX[begun.kind]}_{self._id}{begun.index}"

    def _item(self, block: Ended, status: str) -> dict[str, Any]:
        """One item of the output; `status` empty: it is being written."""
        begun = block.begun
        item = {"id": self._item_id(begun), "status": status or "in_progress"}
        parts = [self._part(block)] if status else []
        match begun.kind:
            case "text":
                return {**item, "type": "message", "role": "assistant", "content": parts}
            case "call":
                return {
                    **item,
                    "type": "function_call",
                    "call_id": begun.id,
                    "name": begun.name,
                    "arguments": block.text,
                }
            case "reasoning":
                hidden = {"encrypted_content": carried(block.text)} if self._told.encrypted and status else {}
                return {**item, "type": "reasoning", "summary": [], "content": parts, **hidden}

    def _part(self, block: Ended) -> dict[str, Any]:
        if block.begun.kind == "reasoning":
            return {"type": "reasoning_text", "text": block.text}
        return {
            "type": "output_text",
            "text": block.text,
            "annotations": [],
            "logprobs": self._logprobs(block.logprobs),
        }

    def _logprobs(self, items: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
        return chat_items(items) if self._told.logprobs else []

    def _step(self, step: Step, status: str) -> bytes:
        begun = step.begun if isinstance(step, Ended) else step
        where: dict[str, Any] = {"output_index": begun.index}
        match step:
            case Begun():
                return self._begin(step, where)
            case More(kind="call"):
                where["item_id"] = f"fc_{self._id}{step.index}"
                return self._event("response.function_call_arguments.delta", delta=step.text, **where)
            case More():
                where |= {"item_id": f"{_PREFIX[step.kind]}_{self._id}{step.index}", "content_index": 0}
                if step.kind == "text":
                    where["logprobs"] = self._logprobs(step.logprobs)
                return self._event(f"response.{_PART[step.kind]}.delta", delta=step.text, **where)
            case Ended():
                return self._end(step, where, status)

    def _begin(self, begun: Begun, where: Mapping[str, Any]) -> bytes:
        empty = Ended(begun, "")
        added = self._event("response.output_item.added", item=self._item(empty, ""), **where)
        if begun.kind == "call":
            return added
        place = {**where, "item_id": self._item_id(begun), "content_index": 0}
        return added + self._event("response.content_part.added", part=self._part(empty), **place)

    def _end(self, block: Ended, where: Mapping[str, Any], status: str) -> bytes:
        begun = block.begun
        place = {**where, "item_id": self._item_id(begun)}
        item = self._item(block, status)
        self._output.append(item)
        if begun.kind == "call":
            said = self._event("response.function_call_arguments.done", arguments=block.text, name=begun.name, **place)
        else:
            place["content_index"] = 0
            more = {"logprobs": self._logprobs(block.logprobs)} if begun.kind == "text" else {}
            said = self._event(f"response.{_PART[begun.kind]}.done", text=block.text, **place, **more)
            said += self._event("response.content_part.done", part=self._part(block), **place)
        return said + self._event("response.output_item.done", item=item, **where)


def _status(done: Done) -> str:
    return "incomplete" if done.reason is Reason.LENGTH else "completed"


def usage(done: Done) -> dict[str, Any]:
    """Exact counts."""
    counts = done.counts
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.reused, "cache_write_tokens": 0},
        "output_tokens": done.tokens,
        "output_tokens_details": {"reasoning_tokens": done.thought},
        "total_tokens": counts.prompt + done.tokens,
    }
