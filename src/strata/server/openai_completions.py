"""OpenAI's text completions: a prompt as it stands, without a chat template."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from strata.chat.reader import Reading
from strata.chat.shapes import constraint
from strata.chat.tokenizer import Tokenizer
from strata.engine.request import Request
from strata.sampling.constraint import Constraint
from strata.server.aside import aside
from strata.server.body import read_fields
from strata.server.completions_writer import CompletionWriter, Shown
from strata.server.dialect import Work
from strata.server.errors import ApiError
from strata.server.fields import (
    CommonFields,
    answer_tokens,
    choices,
    form_of,
    include_usage,
    sampling,
    stop_ids,
    stops,
    terms,
)
from strata.server.formats import Format, check_length
from strata.server.grammars import Checked
from strata.server.job import Job
from strata.server.served import ServedModel

MAX_ANSWERS = 64
"""Prompts times `n`, or `best_of`, of one request."""

MOST_MADE = 20
"""`best_of`, as with OpenAI."""

UNBUILT: Mapping[str, tuple[Any, ...]] = {}
"""Understood, but not built; with the values that ask for nothing."""

FILLING = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
"""Tokens between which models learn to fill in what is missing: what is before, what is after, what is between."""


class CompletionFields(CommonFields, kw_only=True):
    """A completion request. `echo` puts the prompt before its answers; the text goes on between it and `suffix`; of
    `best_of` answers the `n` likeliest are given.
    """

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool = False
    suffix: str | None = None
    best_of: int | None = None


async def read(value: Mapping[str, Any], served: ServedModel, context: int | None) -> Work:
    """The work of POST /v1/completions."""
    fields = read_fields(value, CompletionFields, UNBUILT)
    served.check_name(fields.model)
    shown = _shown(fields)
    tokenizer = served.conversation.tokenizer
    parts = [fields.prompt] if isinstance(fields.prompt, str) else fields.prompt
    characters = sum(1 if isinstance(part, int) else len(part) for part in parts)
    prompts = await aside(characters, prompts_of, fields, tokenizer)
    if fields.echo:
        shown = replace(shown, echoes=[tokenizer.decode(prompt, control=True) for prompt in prompts])
    if fields.suffix:
        suffix = await aside(len(fields.suffix), tokenizer.encode, fields.suffix, bos=False)
        prompts = [around(prompt, suffix, tokenizer) for prompt in prompts]
    must = await constraint_of(form_of(fields), served, _most(fields, served, context, prompts))
    jobs = jobs_of(fields, prompts, served, must)
    return Work(jobs, CompletionWriter(served.name, int(time.time()), shown), fields.stream)


def _shown(fields: CompletionFields) -> Shown:
    """What the answers are to show; 400 for what does not go together."""
    best = choices(fields)
    made = best if fields.best_of is None else fields.best_of
    if not best <= made <= MOST_MADE:
        raise ApiError(400, f"best_of must be from n ({best}) to {MOST_MADE}, found {made}", "best_of", "invalid_value")
    if made > best and fields.stream:
        why = "best_of above n cannot be streamed: the likeliest answers are known when all are there"
        raise ApiError(400, why, "best_of", "invalid_value")
    if fields.echo and fields.logprobs is not None:
        why = "echo cannot be combined with logprobs: the prompt's own likelihoods are not computed"
        raise ApiError(400, why, "echo", "unsupported_parameter")
    return Shown(made, best, logprobs=fields.logprobs is not None, usage=include_usage(fields))


def _new_tokens(fields: CompletionFields, served: ServedModel) -> int | None:
    """See answer_tokens; none at all where only the prompt is to be seen."""
    if fields.echo and fields.max_tokens == 0:
        return 0
    return answer_tokens(fields.max_tokens, "max_tokens", served.max_tokens)


def _most(
    fields: CompletionFields, served: ServedModel, context: int | None, prompts: Sequence[tuple[int, ...]]
) -> int | None:
    """Tokens that every answer may have; None: it is not known."""
    asked = _new_tokens(fields, served)
    return max(1, context - max(map(len, prompts))) if asked is None and context is not None else asked


def around(before: Sequence[int], after: Sequence[int], tokenizer: Tokenizer) -> tuple[int, ...]:
    """The prompt to which the text between both is the answer; 400 for a model that has no tokens for it."""
    marks = [tokenizer.ids.get(name) for name in FILLING]
    found = [mark for mark in marks if mark is not None]
    if len(found) < len(FILLING):
        why = f"suffix: this model cannot fill in text, its vocabulary lacks {FILLING[marks.index(None)]}"
        raise ApiError(400, why, "suffix", "unsupported_parameter")
    return (found[0], *before, found[1], *after, found[2])


def prompts_of(fields: CompletionFields, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """Token ids of every prompt: a text, a list of texts, token ids, or a list of those."""
    asked = fields.prompt
    if isinstance(asked, str):
        asked = [asked]
    if asked and all(isinstance(item, int) for item in asked):
        return [tuple(item for item in asked if isinstance(item, int))]
    prompts = []
    for number, item in enumerate(asked):
        if isinstance(item, int):
            raise ApiError(400, f"prompt[{number}]: token ids and texts are mixed", "prompt", "invalid_value")
        prompts.append(tuple(tokenizer.encode(item)) if isinstance(item, str) else tuple(item))
    if not prompts or not all(prompts):
        raise ApiError(400, "prompt is empty", "prompt", "invalid_value")
    return prompts


async def constraint_of(form: Format | None, served: ServedModel, most: int | None) -> Constraint | None:
    """What an answer of at most `most` tokens has to look like; 400 when it cannot be compiled, or is too long."""
    if form is None:
        return None
    complaint = ""
    for shape in form.shapes:
        made = constraint(shape, "no", None, most)
        checked = await served.grammars.check(made, shape.ends == "surely") if made is not None else Checked("")
        if not checked.complaint:
            check_length(checked.short, served.conversation.tokenizer, most, "max_tokens")
            return made
        complaint = checked.complaint
    raise form.refused(complaint)


def jobs_of(
    fields: CompletionFields,
    prompts: Sequence[tuple[int, ...]],
    served: ServedModel,
    must: Constraint | None,
) -> list[Job]:
    """The answers to make: n for every prompt, prompt by prompt."""
    count = fields.n if fields.best_of is None else fields.best_of
    if count * len(prompts) > MAX_ANSWERS:
        raise ApiError(400, f"{len(prompts)} prompts times {count}: at most {MAX_ANSWERS} answers", "prompt")
    if fields.logprobs is not None and fields.logprobs < 0:
        raise ApiError(400, f"logprobs must be 0 or more, found {fields.logprobs}", "logprobs", "invalid_value")
    if must is not None and fields.ignore_eos:
        raise ApiError(400, "ignore_eos cannot be combined with a form of the answer", "ignore_eos", "invalid_value")
    compared = 0 if count > fields.n else None
    asked = {**sampling(fields, compared if fields.logprobs is None else fields.logprobs), "constraint": must}
    max_new = _new_tokens(fields, served)
    reading = Reading(stops(fields), split_reasoning=False)
    ends = () if fields.ignore_eos else served.conversation.tokenizer.stop_ids
    shared = [served.conversation.sharing(tokens, fields.cache_prompt) for tokens in prompts]
    return [
        Job(
            Request(
                served.new_id(),
                tokens,
                max_new,
                served.params(asked, i),
                (*ends, *(token for token in stop_ids(fields) if token not in ends)),
                sharing=sharing,
                **terms(fields),
            ),
            reading,
            {"max_new": "max_tokens", "tokens": "prompt"},
        )
        for tokens, sharing in zip(prompts, shared, strict=True)
        for i in range(count)
    ]
