"""Anthropic's messages: answers."""

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from strata.chat.blocks import Begun, Blocks, Ended, More, Step, ended_blocks
from strata.chat.events import Delta, Done, Event
from strata.engine.events import Reason
from strata.server.errors import ApiError
from strata.server.sse import named
from strata.server.usage import timings

_DELTAS = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}


class MessageWriter:
    """Writes one request's answer."""

    def __init__(self, model: str, prompt: int, shows: bool = True) -> None:
        """`prompt`: its tokens; without `shows` blocks of thinking are there, but empty."""
        self._shows = shows
        self._head = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": model}
        self._prompt = prompt
        self._blocks = Blocks()

    def whole(self, answers: Sequence[tuple[Sequence[Delta], Done]]) -> dict[str, Any]:
        """See Writer."""
        ((events, done),) = answers
        content = [self._block(each) for each in ended_blocks(events)]
        return {**self._head, "content": content, **ending(done), "usage": usage(done), "timings": timings([done])}

    def begin(self, count: int) -> bytes:
        """See Writer."""
        nothing = {"input_tokens": self._prompt, "output_tokens": 0, **_cached(0)}
        begun: dict[str, Any] = {
            **self._head,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": nothing,
        }
        return named({"type": "message_start", "message": begun})

    def event(self, number: int, event: Event) -> bytes:
        """See Writer."""
        if not isinstance(event, Done):
            return b"".join(self._step(step) for step in self._blocks.push(event))
        delta = {"type": "message_delta", "delta": ending(event), "usage": usage(event), "timings": timings([event])}
        return b"".join(self._step(step) for step in self._blocks.close()) + named(delta)

    def end(self) -> bytes:
        """See Writer."""
        return named({"type": "message_stop"})

    def failed(self, error: ApiError) -> bytes:
        """See Writer."""
        return named(error.anthropic_body())

    def _block(self, block: Ended) -> dict[str, Any]:
        match block.begun.kind:
            case "text":
                return {"type": "text", "text": block.text, "citations": None}
            case "reasoning":
                text = block.text if self._shows else ""
                return {"type": "thinking", "thinking": text, "signature": signature(block.text)}
            case "call":
                return {"type": "tool_use", "id": block.begun.id, "name": block.begun.name, "input": _made(block.text)}

    def _step(self, step: Step) -> bytes:
        match step:
            case Begun():
                block = self._block(Ended(step, ""))
                return named({"type": "content_block_start", "index": step.index, "content_block": block})
            case More(kind="reasoning") if not self._shows:
                return b""
            case More():
                kind, name = _DELTAS[step.kind]
                return _delta(step.index, {"type": kind, name: step.text})
            case Ended():
                stop = named({"type": "content_block_stop", "index": step.begun.index})
                if step.begun.kind != "reasoning":
                    return stop
                return _delta(step.begun.index, {"type": "signature_delta", "signature": signature(step.text)}) + stop


def _delta(index: int, delta: Mapping[str, Any]) -> bytes:
    return named({"type": "content_block_delta", "index": index, "delta": dict(delta)})


def _made(arguments: str) -> Any:
    """A call's arguments; none of one that the length cut off, which the stop reason tells."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return {}


def signature(text: str) -> str:
    """Stands where a hosted service signs what was thought: clients send it back, and nothing here needs it."""
    return base64.b64encode(f"strata {len(text)}".encode()).decode() if text else ""


def ending(done: Done) -> dict[str, Any]:
    """How it ended."""
    reason = "end_turn"
    if done.reason is Reason.LENGTH:
        reason = "max_tokens"
    elif done.stop is not None:
        reason = "stop_sequence"
    elif done.calls:
        reason = "tool_use"
    return {"stop_reason": reason, "stop_sequence": done.stop}


def usage(done: Done) -> dict[str, Any]:
    """Exact counts: `input_tokens` leaves out what was held already."""
    counts = done.counts
    details = {"thinking_tokens": done.thought}
    read = {"input_tokens": counts.prompt - counts.reused, "output_tokens": done.tokens}
    return {**read, "output_tokens_details": details, **_cached(counts.reused)}


def _cached(reused: int) -> dict[str, int]:
    return {"cache_creation_input_tokens": 0, "cache_read_input_tokens": reused}
