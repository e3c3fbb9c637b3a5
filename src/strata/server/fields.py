"""Request fields that both OpenAI dialects share."""

from collections.abc import Mapping
from typing import Any

import msgspec

from strata.server.errors import ApiError
from strata.server.formats import Format, of_response_format, of_schema_field, of_text, only_one

MAX_CHOICES = 8
MAX_STOPS = 4
LONGEST_STOP = 1024
MAX_STOP_IDS = 64


class CommonFields(msgspec.Struct, kw_only=True):
    """Sampling, limits and streaming. None = not asked for.

    A lower `priority` is served first (vLLM's rule). `deadline_s` seconds after its arrival a request is over, with
    what is there of its answer. `max_completion_tokens` wins over `max_tokens` when both are given;
    `repetition_penalty` is another name of `repeat_penalty`. Without `cache_prompt` the prompt is read whole, and
    nothing of it is kept for others. `stop_token_ids` end an answer like the model's own. With `ignore_eos` it ends by
    its length, a stop string or one of those alone.
    """

    model: str | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    n: int = 1
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    cache_prompt: bool = True
    priority: int = 0
    deadline_s: float | None = None
    ignore_eos: bool = False
    response_format: dict[str, Any] | None = None
    json_schema: dict[str, Any] | bool | None = None
    grammar: str | None = None
    regex: str | None = None


def form_of(fields: CommonFields) -> Format | None:
    """What the answer has to look like: `response_format`, or one of llama.cpp's and vLLM's fields for the same."""
    schema = fields.json_schema
    return only_one(
        of_response_format(fields.response_format, "response_format"),
        None if schema is None else of_schema_field("json_schema", schema, strict=False),
        of_text("grammar", fields.grammar),
        of_text("regex", fields.regex),
    )


def budget(asked: int | None, name: str) -> int | None:
    """Tokens of reasoning at most."""
    if asked is not None and asked < 0:
        raise ApiError(400, f"{name} must be 0 or more, found {asked}", name, "invalid_value")
    return asked


def sampling(fields: CommonFields, logprobs: int | None) -> Mapping[str, Any]:
    """SamplingParams fields as asked for; None where nothing was."""
    both = fields.repeat_penalty is not None and fields.repetition_penalty is not None
    if both and fields.repeat_penalty != fields.repetition_penalty:
        raise ApiError(400, "repeat_penalty and repetition_penalty differ", "repetition_penalty", "invalid_value")
    return {
        "temperature": fields.temperature,
        "top_p": fields.top_p,
        "top_k": fields.top_k,
        "min_p": fields.min_p,
        "presence_penalty": fields.presence_penalty,
        "frequency_penalty": fields.frequency_penalty,
        "repeat_penalty": fields.repetition_penalty if fields.repeat_penalty is None else fields.repeat_penalty,
        "logit_bias": _bias(fields.logit_bias),
        "seed": fields.seed,
        "logprobs": logprobs,
    }


def _bias(asked: Mapping[str, float] | None) -> tuple[tuple[int, float], ...] | None:
    if asked is None:
        return None
    for token in asked:
        if not (token.isascii() and token.isdecimal() and len(token) < 12):
            raise ApiError(400, f"logit_bias: token ids are whole numbers, found {token[:40]!r}", "logit_bias")
    return tuple((int(token), bias) for token, bias in asked.items())


def terms(fields: CommonFields) -> dict[str, Any]:
    """Request fields that say when it is served."""
    return {"priority": fields.priority, "deadline_s": fields.deadline_s}


def stops(fields: CommonFields) -> tuple[str, ...]:
    """Stop strings: at most four, none empty."""
    asked = [fields.stop] if isinstance(fields.stop, str) else fields.stop or []
    if len(asked) > MAX_STOPS:
        raise ApiError(400, f"stop: at most {MAX_STOPS} strings, found {len(asked)}", "stop", "invalid_value")
    if any(not 0 < len(stop) <= LONGEST_STOP for stop in asked):
        raise ApiError(400, f"stop: strings of 1 to {LONGEST_STOP} characters", "stop", "invalid_value")
    return tuple(asked)


def stop_ids(fields: CommonFields) -> tuple[int, ...]:
    """Tokens that end an answer beside the model's own; like those they are no part of it."""
    asked = fields.stop_token_ids or []
    if len(asked) > MAX_STOP_IDS or any(not 0 <= token < 1 << 31 for token in asked):
        why = f"stop_token_ids: at most {MAX_STOP_IDS} token ids of 0 or more"
        raise ApiError(400, why, "stop_token_ids", "invalid_value")
    return tuple(dict.fromkeys(asked))


def choices(fields: CommonFields) -> int:
    """How many answers per prompt."""
    if not 1 <= fields.n <= MAX_CHOICES:
        raise ApiError(400, f"n must be from 1 to {MAX_CHOICES}, found {fields.n}", "n", "invalid_value")
    return fields.n


def answer_tokens(asked: int | None, name: str, default: int | None) -> int | None:
    """Answer tokens at most; None = up to the end of the context."""
    if asked is None:
        return default
    if asked < 1:
        raise ApiError(400, f"{name} must be 1 or more, found {asked}", name, "invalid_value")
    return asked


def include_usage(fields: CommonFields) -> bool:
    """Whether a stream ends with a usage chunk."""
    options = fields.stream_options
    if options is None:
        return False
    if not fields.stream:
        raise ApiError(400, "stream_options needs stream: true", "stream_options", "invalid_value")
    unknown = options.keys() - {"include_usage", "include_obfuscation"}
    if unknown:
        name = f"stream_options.{min(unknown)}"
        raise ApiError(400, f"unknown field {name!r}", name, "unknown_parameter")
    if options.get("include_obfuscation") not in (None, False):
        name = "stream_options.include_obfuscation"
        raise ApiError(400, f"{name!r} is not built yet", name, "unsupported_parameter")
    wanted = options.get("include_usage", False)
    if not isinstance(wanted, bool):
        raise ApiError(400, "stream_options.include_usage must be true or false", "stream_options", "invalid_value")
    return wanted
