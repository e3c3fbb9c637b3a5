"""Anthropic's messages: requests."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from strata.chat.conversation import TemplateOptions, Turn
from strata.server.anthropic_turns import Content, system_text, turns_of
from strata.server.anthropic_writer import MessageWriter
from strata.server.ask import Ask, jobs_of, prompt_of
from strata.server.body import read_fields
from strata.server.dialect import Work
from strata.server.errors import ApiError
from strata.server.fields import LONGEST_STOP, answer_tokens
from strata.server.formats import Format, of_schema_field
from strata.server.served import ServedModel
from strata.server.thinking import EFFORTS, by_effort, source_of, switched
from strata.server.tools import Toolbox, chosen_name, tool_of, toolbox

UNBUILT: Mapping[str, tuple[Any, ...]] = {
    "container": (),
    "mcp_servers": ([],),
    "context_management": ({}, {"edits": []}),
    "compaction": (),
    "fallbacks": ([],),
    "fallback_credit_token": (),
    "thread": (),
    "speed": ("standard",),
}
"""Understood, but not built; with the values that ask for nothing."""

IGNORED = frozenset(
    (
        "metadata", "cache_control", "service_tier", "inference_geo", "user_profile_id", "workspace_id", "diagnostics",
        "billing_policy", "betas", "anthropic_beta",
    )
)  # fmt: skip
"""Fields that are accepted and do nothing: they describe the client, or where a hosted service is to run and bill; all
that was read is kept without being asked to."""

MAX_STOPS = 16
_EFFORT_KEYS = frozenset(("effort", "format", "task_budget"))


class MessageTurn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One message as Anthropic writes it."""

    role: str
    content: Content


class CountFields(msgspec.Struct, kw_only=True):
    """What a prompt is made of."""

    messages: list[MessageTurn]
    model: str | None = None
    system: Content | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None


class MessageFields(CountFields, kw_only=True):
    """A request for an answer. Beside Anthropic's own fields those of sampling that the other dialects have."""

    max_tokens: int
    stream: bool = False
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    seed: int | None = None


async def read(value: Mapping[str, Any], served: ServedModel, context: int | None) -> Work:
    """The work of POST /v1/messages."""
    fields = read_fields(value, MessageFields, UNBUILT, IGNORED)
    served.check_name(fields.model)
    thinking = fields.thinking or {}
    names = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repeat_penalty", "seed")
    ask = Ask(
        turns=_turns(fields),
        options=_options(fields, source_of(served)),
        sampling={name: getattr(fields, name) for name in names} | {"top_k": fields.top_k},
        max_new=answer_tokens(fields.max_tokens, "max_tokens", None),
        names={"max_new": "max_tokens", "tokens": "messages"},
        stops=_stops(fields.stop_sequences or []),
        toolbox=toolbox_of(fields),
        form=_form((fields.output_config or {}).get("format")),
        budget=thinking.get("budget_tokens") if thinking.get("type") == "enabled" else None,
    )
    jobs = await jobs_of(ask, served, context)
    writer = MessageWriter(served.name, len(jobs[0].request.tokens), _shows(thinking))
    return Work(jobs, writer, fields.stream)


async def count(value: Mapping[str, Any], served: ServedModel) -> dict[str, int]:
    """The answer of POST /v1/messages/count_tokens: how many tokens the prompt would have."""
    fields = read_fields(value, CountFields, UNBUILT, IGNORED)
    served.check_name(fields.model)
    options = _options(fields, source_of(served))
    options = replace(options, tools=[tool.written() for tool in toolbox_of(fields).tools])
    prompt = await prompt_of(served.conversation, _turns(fields), options)
    return {"input_tokens": len(prompt.tokens)}


def _turns(fields: CountFields) -> list[Turn]:
    turns = turns_of([(message.role, message.content) for message in fields.messages])
    system = "" if fields.system is None else system_text("system", fields.system)
    return [Turn("system", system), *turns] if system else turns


def toolbox_of(fields: CountFields) -> Toolbox:
    """Tools and the choice among them."""
    tools = []
    for number, form in enumerate(fields.tools or []):
        kind = form.get("type", "custom")
        if kind not in {"custom", None}:
            raise ApiError(
                400, f"tools.{number}: type {kind!r:.40} is not built, custom is", "tools", "unsupported_parameter"
            )
        tools.append(tool_of(f"tools.{number}", "tools", form, "input_schema"))
    choice = fields.tool_choice or {"type": "auto"}
    parallel = choice.get("disable_parallel_tool_use") is not True
    modes = {"auto": "auto", "none": "none", "any": "required", "tool": "required"}
    kind = choice.get("type")
    if kind not in modes:
        raise ApiError(400, f"tool_choice.type must be auto, any, tool or none, found {kind!r:.40}", "tool_choice")
    named = [chosen_name("tool_choice", choice)] if kind == "tool" else []
    return toolbox(tools, modes[kind], named, parallel, ("tools", "tool_choice"))


def _form(value: Any) -> Format | None:
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("type") != "json_schema":
        name = "output_config.format"
        raise ApiError(400, f"{name}.type must be json_schema", name, "invalid_value")
    return of_schema_field("output_config.format.schema", value.get("schema"), strict=False)


def _stops(asked: Sequence[str]) -> tuple[str, ...]:
    if len(asked) > MAX_STOPS or any(not 0 < len(stop) <= LONGEST_STOP for stop in asked):
        raise ApiError(
            400, f"stop_sequences: at most {MAX_STOPS} strings of 1 to {LONGEST_STOP} characters", "stop_sequences"
        )
    return tuple(asked)


def _options(fields: CountFields, source: str) -> TemplateOptions:
    config = fields.output_config or {}
    unknown = config.keys() - _EFFORT_KEYS
    if unknown:
        name = f"output_config.{min(unknown)[:60]}"
        raise ApiError(400, f"unknown field {name!r}", name, "unknown_parameter")
    if config.get("task_budget") is not None:
        name = "output_config.task_budget"
        raise ApiError(400, f"{name!r} is not built yet", name, "unsupported_parameter")
    effort = config.get("effort")
    if effort is not None and effort not in EFFORTS:
        name = "output_config.effort"
        raise ApiError(400, f"{name} must be one of {', '.join(EFFORTS)}, found {effort!r:.40}", name, "invalid_value")
    thinking = fields.thinking or {"type": "adaptive"}
    match thinking.get("type"):
        case "disabled":
            return switched(False, "thinking", source)
        case "enabled":
            _check_budget(thinking)
            return switched(True, "thinking", source)
        case "adaptive":
            # The model decides, so one that knows no thinking is right too.
            switch = "enable_thinking" in source and fields.thinking is not None
            return by_effort(effort if switch or "reasoning_effort" in source else None, "output_config", source, {})
    raise ApiError(
        400, f"thinking.type must be enabled, disabled or adaptive, found {thinking.get('type')!r:.40}", "thinking.type"
    )


def _check_budget(thinking: Mapping[str, Any]) -> None:
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or isinstance(budget, bool) or budget < 1:
        name = "thinking.budget_tokens"
        raise ApiError(400, f"{name} must be a whole number of 1 or more, found {budget!r:.40}", name, "invalid_value")


def _shows(thinking: Mapping[str, Any]) -> bool:
    """Whether the client wants to see what was thought; it is never summarised here, but given whole."""
    display = thinking.get("display", "summarized")
    if display not in {"summarized", "omitted", None}:
        raise ApiError(
            400, f"thinking.display must be summarized or omitted, found {display!r:.40}", "thinking.display"
        )
    return bool(display != "omitted")
