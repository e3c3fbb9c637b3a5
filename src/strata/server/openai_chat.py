"""OpenAI's chat completions."""

import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from strata.chat.blocks import ended_blocks
from strata.chat.conversation import TemplateOptions, Turn
from strata.chat.events import CallDelta, CallStart, Delta, Done, Event, ReasoningDelta, TextDelta
from strata.server.ask import Ask, jobs_of
from strata.server.body import read_fields
from strata.server.dialect import Work
from strata.server.engine_process import EngineProcess
from strata.server.errors import ApiError
from strata.server.fields import CommonFields, answer_tokens, choices, include_usage, sampling, stops, terms
from strata.server.logprobs import chat_items
from strata.server.served import ServedModel
from strata.server.stream import DONE, data
from strata.server.thinking import by_effort, source_of
from strata.server.usage import ending, timings, usage

UNBUILT: Mapping[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "grammar": ("",),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "web_search_options": (),
    "verbosity": (),
    "service_tier": ("auto", "default"),
}
"""Understood, but not built; with the values that ask for nothing."""

_RESERVED = frozenset(("messages", "tools", "documents", "add_generation_prompt"))


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One message as OpenAI writes it."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    audio: dict[str, Any] | None = None


class ChatFields(CommonFields, kw_only=True):
    """A chat request."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


def turns_of(messages: Sequence[Message]) -> list[Turn]:
    """Messages as turns; what no turn can hold is refused by its place and name."""
    return [_turn(f"messages[{i}]", message) for i, message in enumerate(messages)]


def _turn(where: str, message: Message) -> Turn:
    for name in ("tool_calls", "tool_call_id", "function_call", "audio"):
        if getattr(message, name):
            raise ApiError(400, f"{where}.{name} is not built yet", "messages", "unsupported_parameter")
    content = _content(where, message)
    speaker = message.name
    match message.role:
        case "system" | "developer":
            return Turn("system", content, name=speaker)
        case "user":
            return Turn("user", content, name=speaker)
        case "assistant":
            thought = message.reasoning if message.reasoning_content is None else message.reasoning_content
            return Turn("assistant", content, thought, speaker)
        case "tool" | "function":
            raise ApiError(400, f"{where}: role {message.role!r} is not built yet", "messages", "unsupported_parameter")
    raise ApiError(400, f"{where}: unknown role {message.role[:40]!r}", "messages", "invalid_value")


def _content(where: str, message: Message) -> str:
    """The text; text parts are joined by line breaks, parts of other types refused by name."""
    if isinstance(message.content, str):
        return message.content
    if message.content is None:
        if message.role == "assistant":
            return ""
        raise ApiError(400, f"{where}.content is missing", "messages", "invalid_value")
    texts = []
    for number, part in enumerate(message.content):
        kind = part.get("type")
        if kind != "text":
            raise ApiError(
                400,
                f"{where}.content[{number}]: parts of type {kind!r:.40} are not built yet, text is",
                "messages",
                "unsupported_parameter",
            )
        if not isinstance(part.get("text"), str):
            raise ApiError(400, f"{where}.content[{number}].text must be text", "messages", "invalid_value")
        texts.append(part["text"])
    return "\n".join(texts)


def template_options(fields: ChatFields, source: str) -> TemplateOptions:
    """What the template is told. A switch that the model's template (`source`) does not read is refused."""
    extra = dict(fields.chat_template_kwargs or {})
    for name in extra:
        if name in _RESERVED or name not in source:
            why = "is set by the server" if name in _RESERVED else "is not read by this model's chat template"
            field = f"chat_template_kwargs.{name[:60]}"
            raise ApiError(400, f"{field} {why}", field, "unsupported_parameter")
    if not isinstance(extra.get("enable_thinking", False), bool):
        raise ApiError(400, "chat_template_kwargs.enable_thinking must be true or false", "chat_template_kwargs")
    return by_effort(fields.reasoning_effort, "reasoning_effort", source, extra)


async def read(value: Mapping[str, Any], served: ServedModel, engine: EngineProcess) -> Work:
    """The work of POST /v1/chat/completions."""
    fields = read_fields(value, ChatFields, UNBUILT)
    served.check_name(fields.model)
    with_usage = include_usage(fields)
    ask = _ask(fields, served)
    writer = ChatWriter(served, fields, int(time.time()), with_usage)
    return Work(await jobs_of(ask, served, engine), writer, fields.stream)


def _ask(fields: ChatFields, served: ServedModel) -> Ask:
    if fields.top_logprobs is not None and not fields.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", "top_logprobs", "invalid_value")
    name = "max_tokens" if fields.max_completion_tokens is None else "max_completion_tokens"
    return Ask(
        turns=turns_of(fields.messages),
        options=template_options(fields, source_of(served)),
        sampling=sampling(fields, (fields.top_logprobs or 0) if fields.logprobs else None),
        max_new=answer_tokens(getattr(fields, name), name, served.max_tokens),
        names={"max_new": name, "tokens": "messages"},
        stops=stops(fields),
        count=choices(fields),
        ignore_end=fields.ignore_eos,
        cached=fields.cache_prompt,
        terms=terms(fields),
    )


class ChatWriter:
    """Writes one request's answers."""

    def __init__(self, served: ServedModel, fields: ChatFields, created: int, with_usage: bool) -> None:
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._head = {"id": self._id, "created": created, "model": served.name}
        self._logprobs = fields.logprobs
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
