"""OpenAI's chat completions."""

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from strata.chat.conversation import Prompt, TemplateOptions, Turn
from strata.chat.events import Done, Event, ReasoningDelta, TextDelta, TokenLogprob
from strata.chat.reader import Reading
from strata.engine.request import Request
from strata.server.engine_process import EngineProcess
from strata.server.errors import ApiError
from strata.server.fields import CommonFields, answer_tokens, choices, sampling, stops, terms
from strata.server.generate import Job
from strata.server.served import ServedModel
from strata.server.stream import DONE, data
from strata.server.usage import ending, timings, usage

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot say."""

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

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
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
    effort = fields.reasoning_effort
    if effort is None:
        return TemplateOptions(extra=extra)
    if effort not in EFFORTS:
        raise ApiError(
            400, f"reasoning_effort must be one of {', '.join(EFFORTS)}, found {effort[:40]!r}", "reasoning_effort"
        )
    if "reasoning_effort" in source:
        return TemplateOptions(extra=extra | {"reasoning_effort": effort})
    if "enable_thinking" in source:
        return TemplateOptions(thinking=effort != "none", extra=extra)
    if effort == "none":
        return TemplateOptions(extra=extra)
    raise ApiError(
        400, "this model's chat template cannot turn reasoning on", "reasoning_effort", "unsupported_parameter"
    )


def jobs_of(fields: ChatFields, prompt: Prompt, served: ServedModel, engine: EngineProcess) -> list[Job]:
    """The answers to make."""
    if fields.top_logprobs is not None and not fields.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", "top_logprobs", "invalid_value")
    asked = sampling(fields, (fields.top_logprobs or 0) if fields.logprobs else None)
    name = "max_tokens" if fields.max_completion_tokens is None else "max_completion_tokens"
    max_new = answer_tokens(getattr(fields, name), name, served.max_tokens)
    stop_ids = () if fields.ignore_eos else served.conversation.tokenizer.stop_ids
    sharing = served.conversation.sharing(prompt.tokens, fields.cache_prompt)
    return [
        Job(
            Request(
                engine.new_id(),
                prompt.tokens,
                max_new,
                served.params(asked, number),
                stop_ids,
                sharing=sharing,
                **terms(fields),
            ),
            Reading(stops(fields), opened=prompt.opened),
        )
        for number in range(choices(fields))
    ]


def logprob_items(items: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """Likelihoods in the chat form."""

    def one(piece: bytes, value: float) -> dict[str, Any]:
        shown = max(value, LOWEST_LOGPROB)
        return {"token": piece.decode(errors="replace"), "logprob": shown, "bytes": list(piece)}

    return [one(i.piece, i.logprob) | {"top_logprobs": [one(p, v) for p, v in i.top]} for i in items]


class ChatWriter:
    """Writes one request's answers."""

    def __init__(self, served: ServedModel, fields: ChatFields, created: int, with_usage: bool) -> None:
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._head = {"id": self._id, "created": created, "model": served.name}
        self._logprobs = fields.logprobs
        self._with_usage = with_usage

    def whole(self, answers: Sequence[tuple[Sequence[Event], Done]]) -> dict[str, Any]:
        """The object of a request without streaming."""
        dones = [done for _, done in answers]
        return self._head | {
            "object": "chat.completion",
            "choices": [self._choice(i, events, done) for i, (events, done) in enumerate(answers)],
            "usage": usage([dones]),
            "timings": timings(dones),
        }

    def _choice(self, index: int, events: Sequence[Event], done: Done) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(e.text for e in events if isinstance(e, TextDelta)),
        }
        thought = "".join(e.text for e in events if isinstance(e, ReasoningDelta))
        if thought:
            message["reasoning_content"] = thought
        logprobs = None
        if self._logprobs:
            items = [i for e in events if not isinstance(e, Done) for i in e.logprobs]
            logprobs = {"content": logprob_items(items), "refusal": None}
        return {"index": index, "message": message, "logprobs": logprobs, **ending(done)}

    def _chunk(self, index: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None} | more
        chunk = self._head | {"object": "chat.completion.chunk", "choices": [choice]}
        return chunk | {"usage": None} if self._with_usage else chunk

    async def chunks(self, stream: AsyncGenerator[tuple[int, Event], None], count: int) -> AsyncGenerator[str, None]:
        """The events of a streaming request with `count` answers."""
        dones: dict[int, Done] = {}
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
                name = "reasoning_content" if isinstance(event, ReasoningDelta) else "content"
                likely = {"content": logprob_items(event.logprobs), "refusal": None} if self._logprobs else None
                yield data(self._chunk(index, {name: event.text}, logprobs=likely))
        if self._with_usage:
            counts = usage([[dones[i] for i in range(count)]])
            yield data(self._head | {"object": "chat.completion.chunk", "choices": [], "usage": counts})
        yield DONE
