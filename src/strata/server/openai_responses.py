"""OpenAI's responses, stateless: requests."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from strata.chat.conversation import Turn
from strata.server import body
from strata.server.ask import Ask, jobs_of
from strata.server.body import read_fields
from strata.server.dialect import Work
from strata.server.errors import ApiError
from strata.server.fields import answer_tokens, budget
from strata.server.formats import of_response_format
from strata.server.responses_items import turns_of
from strata.server.responses_writer import ResponseWriter, Told
from strata.server.served import ServedModel
from strata.server.thinking import by_effort, source_of
from strata.server.tools import MODES, Toolbox, chosen_name, tool_of, toolbox

UNBUILT: Mapping[str, tuple[Any, ...]] = {
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "background": (False,),
    "background_options": (),
    "context_management": ([],),
    "image": (),
    "moderation": (),
    "access_programs": (),
    "truncation": ("disabled", "auto"),
    "service_tier": ("auto", "default"),
}
"""Understood, but not built; with the values that ask for nothing."""

IGNORED = body.IGNORED - {"metadata"} | {"max_tool_calls"}
"""The response repeats its metadata; calls of tools that a service runs are never made."""

WHY = {
    "previous_response_id": "responses are not stored: send the whole conversation as input",
    "conversation": "conversations are not stored: send the whole conversation as input",
    "background": "responses are not stored: ask with background false and wait, or stream",
}
ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
_INCLUDED = frozenset(
    (
        ENCRYPTED, LOGPROBS, "file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
        "message.input_image.image_url", "computer_call_output.output.image_url", "code_interpreter_call.outputs",
    )
)  # fmt: skip
"""What may be asked for; of what is never made there is nothing to include."""
_REASONING = frozenset(("effort", "summary", "generate_summary", "mode", "context"))


class ResponseFields(msgspec.Struct, kw_only=True):
    """A request for a response. Beside OpenAI's own fields those of sampling that the other dialects have."""

    input: str | list[dict[str, Any]] = ""
    model: str | None = None
    instructions: str | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    thinking_budget: int | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    seed: int | None = None


async def read(value: Mapping[str, Any], served: ServedModel, context: int | None) -> Work:
    """The work of POST /v1/responses."""
    for name, why in WHY.items():
        if value.get(name) not in (None, False):
            raise ApiError(400, f"{name!r}: {why}", name, "unsupported_parameter")
    fields = read_fields(value, ResponseFields, UNBUILT, IGNORED)
    served.check_name(fields.model)
    _check_stream_options(fields)
    include = _included(fields.include or [])
    effort = _effort(fields.reasoning or {})
    _check_text(fields.text or {})
    form = (fields.text or {}).get("format")
    if form is not None and not isinstance(form, dict):
        raise ApiError(400, "text.format must be an object", "text.format", "invalid_value")
    names = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repeat_penalty")
    asked = {name: getattr(fields, name) for name in (*names, "seed")}
    if fields.top_logprobs is not None or LOGPROBS in include:
        asked["logprobs"] = fields.top_logprobs or 0
    ask = Ask(
        turns=_turns(fields),
        options=by_effort(effort, "reasoning.effort", source_of(served), {}),
        sampling=asked,
        max_new=answer_tokens(fields.max_output_tokens, "max_output_tokens", served.max_tokens),
        names={"max_new": "max_output_tokens", "tokens": "input"},
        toolbox=toolbox_of(fields),
        form=of_response_format(form, "text.format"),
        budget=budget(fields.thinking_budget, "thinking_budget"),
    )
    jobs = await jobs_of(ask, served, context)
    told = Told(
        model=served.name,
        created=int(time.time()),
        fields=_echo(fields, effort, jobs[0].request.params.temperature, jobs[0].request.params.top_p),
        logprobs="logprobs" in asked,
        encrypted=ENCRYPTED in include,
    )
    return Work(jobs, ResponseWriter(told), fields.stream)


def _turns(fields: ResponseFields) -> list[Turn]:
    turns = turns_of(fields.input)
    return [Turn("system", fields.instructions), *turns] if fields.instructions else turns


def _echo(fields: ResponseFields, effort: str | None, temperature: float, top_p: float) -> dict[str, Any]:
    """Fields of the request that the response repeats."""
    return {
        "instructions": fields.instructions,
        "max_output_tokens": fields.max_output_tokens,
        "metadata": fields.metadata or {},
        "parallel_tool_calls": fields.parallel_tool_calls,
        "temperature": temperature,
        "top_p": top_p,
        "top_logprobs": fields.top_logprobs or 0,
        "tool_choice": fields.tool_choice or "auto",
        "tools": [form for form in fields.tools or [] if form.get("type") == "function"],
        "previous_response_id": None,
        "reasoning": {"effort": effort, "summary": None},
        "text": {"format": (fields.text or {}).get("format") or {"type": "text"}},
        "truncation": "disabled",
        "background": False,
        "store": False,
    }


def toolbox_of(fields: ResponseFields) -> Toolbox:
    """Functions and the choice among them.

    Tools of other types run where a hosted service is; they are left out, as the response's `tools` shows.
    """
    tools = [
        tool_of(f"tools[{number}]", "tools", form, "parameters")
        for number, form in enumerate(fields.tools or [])
        if form.get("type") == "function"
    ]
    choice: str | dict[str, Any] = fields.tool_choice or "auto"
    named: list[str] = []
    if isinstance(choice, dict):
        choice, named = _named(choice)
    if choice not in {"auto", "none", "required"}:
        raise ApiError(400, f"tool_choice: unknown choice {choice[:40]!r}", "tool_choice", "invalid_value")
    return toolbox(tools, choice, named, fields.parallel_tool_calls, ("tools", "tool_choice"))


def _named(choice: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A choice of one function, or of some."""
    kind = choice.get("type")
    if kind == "function":
        return "required", [chosen_name("tool_choice", choice)]
    if kind == "allowed_tools" and choice.get("mode") in MODES:
        forms = [form for form in choice.get("tools", ()) if isinstance(form, dict)]
        return choice["mode"], [chosen_name("tool_choice.tools", form) for form in forms]
    raise ApiError(400, f"tool_choice: {kind!r:.40} is not built", "tool_choice", "unsupported_parameter")


def _check_stream_options(fields: ResponseFields) -> None:
    options = fields.stream_options or {}
    if options and not fields.stream:
        raise ApiError(400, "stream_options needs stream: true", "stream_options", "invalid_value")
    unknown = options.keys() - {"include_obfuscation"}
    if unknown:
        name = f"stream_options.{min(unknown)[:60]}"
        raise ApiError(400, f"unknown field {name!r}", name, "unknown_parameter")
    if options.get("include_obfuscation") not in (None, False):
        name = "stream_options.include_obfuscation"
        raise ApiError(400, f"{name!r} is not built yet", name, "unsupported_parameter")


def _included(include: list[str]) -> frozenset[str]:
    unknown = set(include) - _INCLUDED
    if unknown:
        raise ApiError(400, f"include: unknown value {min(unknown)[:60]!r}", "include", "invalid_value")
    return frozenset(include)


def _effort(reasoning: Mapping[str, Any]) -> str | None:
    """What was asked for; a summary is never made, for what was thought is given whole."""
    unknown = reasoning.keys() - _REASONING
    if unknown:
        name = f"reasoning.{min(unknown)[:60]}"
        raise ApiError(400, f"unknown field {name!r}", name, "unknown_parameter")
    if reasoning.get("mode") not in (None, "standard"):
        raise ApiError(400, "'reasoning.mode' is not built yet, standard is", "reasoning.mode", "unsupported_parameter")
    effort = reasoning.get("effort")
    if effort is not None and not isinstance(effort, str):
        raise ApiError(400, "reasoning.effort must be text", "reasoning.effort", "invalid_value")
    return effort


def _check_text(text: Mapping[str, Any]) -> None:
    unknown = text.keys() - {"format", "verbosity"}
    if unknown:
        name = f"text.{min(unknown)[:60]}"
        raise ApiError(400, f"unknown field {name!r}", name, "unknown_parameter")
    if text.get("verbosity") not in (None, "medium"):
        raise ApiError(400, "'text.verbosity' is not built yet", "text.verbosity", "unsupported_parameter")
