"""OpenAI's chat completions."""

import time
from collections.abc import Mapping
from typing import Any

from strata.chat.conversation import TemplateOptions
from strata.server import body
from strata.server.ask import Ask, jobs_of
from strata.server.body import read_fields
from strata.server.chat_messages import Message, turns_of
from strata.server.chat_writer import ChatWriter
from strata.server.dialect import Work
from strata.server.errors import ApiError
from strata.server.fields import (
    CommonFields,
    answer_tokens,
    budget,
    choices,
    form_of,
    include_usage,
    sampling,
    stop_ids,
    stops,
    terms,
)
from strata.server.served import ServedModel
from strata.server.thinking import by_effort, source_of
from strata.server.tools import MODES, Toolbox, chosen_name, tool_of, toolbox

UNBUILT: Mapping[str, tuple[Any, ...]] = {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "audio": (),
    "modalities": (["text"],),
    "web_search_options": (),
    "verbosity": ("medium",),
    "moderation": (),
    "service_tier": ("auto", "default"),
}
"""Understood, but not built; with the values that ask for nothing."""

IGNORED = body.IGNORED | {"prediction"}
"""What is likely to come is found without being told, and changes no token."""

_RESERVED = frozenset(("messages", "tools", "documents", "add_generation_prompt"))


class ChatFields(CommonFields, kw_only=True):
    """A chat request."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    thinking_budget: int | None = None


def toolbox_of(fields: ChatFields) -> Toolbox:
    """Tools and the choice among them."""
    tools = []
    for number, form in enumerate(fields.tools or []):
        where = f"tools[{number}]"
        if form.get("type") != "function" or not isinstance(form.get("function"), dict):
            kind = form.get("type")
            raise ApiError(
                400, f"{where}: type {kind!r:.40} is not built, function is", "tools", "unsupported_parameter"
            )
        tools.append(tool_of(f"{where}.function", "tools", form["function"], "parameters"))
    choice: str | dict[str, Any] = fields.tool_choice or "auto"
    named: list[str] = []
    if isinstance(choice, dict):
        choice, named = _named(choice)
    if choice not in {"auto", "none", "required"}:
        raise ApiError(400, f"tool_choice: unknown choice {choice[:40]!r}", "tool_choice", "invalid_value")
    return toolbox(tools, choice, named, fields.parallel_tool_calls, ("tools", "tool_choice"))


def _named(choice: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A choice of one tool, or of some."""
    if choice.get("type") == "function" and isinstance(choice.get("function"), dict):
        return "required", [chosen_name("tool_choice.function", choice["function"])]
    allowed = choice.get("allowed_tools")
    if choice.get("type") == "allowed_tools" and isinstance(allowed, dict) and allowed.get("mode") in MODES:
        forms = [form for form in allowed.get("tools", ()) if isinstance(form, dict)]
        names = [chosen_name("tool_choice.allowed_tools", form.get("function") or {}) for form in forms]
        return allowed["mode"], names
    raise ApiError(400, f"tool_choice: {choice.get('type')!r:.40} is not built", "tool_choice", "unsupported_parameter")


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


async def read(value: Mapping[str, Any], served: ServedModel, context: int | None) -> Work:
    """The work of POST /v1/chat/completions."""
    fields = read_fields(value, ChatFields, UNBUILT, IGNORED)
    served.check_name(fields.model)
    with_usage = include_usage(fields)
    ask = _ask(fields, served)
    writer = ChatWriter(served.name, int(time.time()), fields.logprobs, with_usage)
    return Work(await jobs_of(ask, served, context), writer, fields.stream)


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
        stop_ids=stop_ids(fields),
        count=choices(fields),
        ignore_end=fields.ignore_eos,
        cached=fields.cache_prompt,
        terms=terms(fields),
        toolbox=toolbox_of(fields),
        form=form_of(fields),
        budget=budget(fields.thinking_budget, "thinking_budget"),
    )
