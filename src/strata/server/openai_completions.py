"""OpenAI's text completions: a prompt as it stands, without a chat template."""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from strata.chat.events import CallStart, Delta, Done, Event, TokenLogprob
from strata.chat.reader import Reading
from strata.chat.shapes import constraint
from strata.chat.tokenizer import Tokenizer
from strata.engine.request import Request
from strata.sampling.constraint import Constraint
from strata.server.body import read_fields
from strata.server.dialect import Work
from strata.server.errors import ApiError
from strata.server.fields import CommonFields, answer_tokens, choices, form_of, include_usage, sampling, stops, terms
from strata.server.formats import Format, check_length
from strata.server.job import Job
from strata.server.logprobs import LOWEST
from strata.server.served import ServedModel
from strata.server.sse import DONE, data
from strata.server.usage import ending, timings, usage

MAX_ANSWERS = 64
"""Prompts times n of one request."""

UNBUILT: Mapping[str, tuple[Any, ...]] = {
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
}
"""Understood, but not built; with the values that ask for nothing."""


class CompletionFields(CommonFields, kw_only=True):
    """A completion request."""

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None


async def read(value: Mapping[str, Any], served: ServedModel, context: int | None) -> Work:
    """The work of POST /v1/completions."""
    fields = read_fields(value, CompletionFields, UNBUILT)
    served.check_name(fields.model)
    with_usage = include_usage(fields)
    prompts = await asyncio.to_thread(prompts_of, fields, served.conversation.tokenizer)
    writer = CompletionWriter(served, fields, int(time.time()), with_usage)
    most = answer_tokens(fields.max_tokens, "max_tokens", served.max_tokens)
    if most is None and context is not None:
        most = max(1, context - max(map(len, prompts)))
    jobs = jobs_of(fields, prompts, served, await constraint_of(form_of(fields), served, most))
    return Work(jobs, writer, fields.stream)


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
    made = None if form is None else constraint(form.shape, "no", None, most)
    if form is not None and made is not None:
        checked = await served.grammars.check(made)
        if checked.complaint:
            raise form.refused(checked.complaint)
        check_length(checked.short, served.conversation.tokenizer, most, "max_tokens")
    return made


def jobs_of(
    fields: CompletionFields,
    prompts: Sequence[tuple[int, ...]],
    served: ServedModel,
    must: Constraint | None,
) -> list[Job]:
    """The answers to make: n for every prompt, prompt by prompt."""
    count = choices(fields)
    if count * len(prompts) > MAX_ANSWERS:
        raise ApiError(400, f"{len(prompts)} prompts times n {count}: at most {MAX_ANSWERS} answers", "prompt")
    if fields.logprobs is not None and fields.logprobs < 0:
        raise ApiError(400, f"logprobs must be 0 or more, found {fields.logprobs}", "logprobs", "invalid_value")
    if must is not None and fields.ignore_eos:
        raise ApiError(400, "ignore_eos cannot be combined with a form of the answer", "ignore_eos", "invalid_value")
    asked = {**sampling(fields, fields.logprobs), "constraint": must}
    max_new = answer_tokens(fields.max_tokens, "max_tokens", served.max_tokens)
    reading = Reading(stops(fields), split_reasoning=False)
    stop_ids = () if fields.ignore_eos else served.conversation.tokenizer.stop_ids
    shared = [served.conversation.sharing(tokens, fields.cache_prompt) for tokens in prompts]
    return [
        Job(
            Request(
                served.new_id(),
                tokens,
                max_new,
                served.params(asked, i),
                stop_ids,
                sharing=sharing,
                **terms(fields),
            ),
            reading,
            {"max_new": "max_tokens", "tokens": "prompt"},
        )
        for tokens, sharing in zip(prompts, shared, strict=True)
        for i in range(count)
    ]


def _text(event: Delta) -> str:
    assert not isinstance(event, CallStart), "a plain text has no calls"
    return event.text


def logprob_lists(items: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
    """Likelihoods in the completions form; `offset` characters of the answer came before."""
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for item in items:
        text = item.piece.decode(errors="replace")
        lists["tokens"].append(text)
        lists["token_logprobs"].append(max(item.logprob, LOWEST))
        lists["top_logprobs"].append({p.decode(errors="replace"): max(v, LOWEST) for p, v in item.top})
        lists["text_offset"].append(offset)
        offset += len(text)
    return lists


class CompletionWriter:
    """Writes one request's answers."""

    def __init__(self, served: ServedModel, fields: CompletionFields, created: int, with_usage: bool) -> None:
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": created,
            "model": served.name,
        }
        self._per_prompt = fields.n
        self._logprobs = fields.logprobs is not None
        self._with_usage = with_usage
        self._dones: dict[int, Done] = {}
        self._offsets: list[int] = []
        """Characters of every answer that were written."""

    def whole(self, answers: Sequence[tuple[Sequence[Delta], Done]]) -> dict[str, Any]:
        """The object of a request without streaming."""
        dones = [done for _, done in answers]
        return self._head | {
            "choices": [self._choice(i, events, done) for i, (events, done) in enumerate(answers)],
            "usage": usage(self._groups(dones)),
            "timings": timings(dones),
        }

    def _groups(self, dones: Sequence[Done]) -> list[Sequence[Done]]:
        return [dones[i : i + self._per_prompt] for i in range(0, len(dones), self._per_prompt)]

    def failed(self, error: ApiError) -> bytes:
        """See Writer."""
        return data(error.body())

    def _choice(self, index: int, events: Sequence[Delta], done: Done) -> dict[str, Any]:
        likely = logprob_lists([i for e in events for i in e.logprobs], 0) if self._logprobs else None
        return {
            "index": index,
            "text": "".join(_text(e) for e in events),
            "logprobs": likely,
            **ending(done),
        }

    def _chunk(self, index: int, text: str, **more: Any) -> dict[str, Any]:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": None} | more
        chunk = self._head | {"choices": [choice]}
        return chunk | {"usage": None} if self._with_usage else chunk

    def begin(self, count: int) -> bytes:
        """See Writer."""
        self._offsets = [0] * count
        return b""

    def event(self, number: int, event: Event) -> bytes:
        """See Writer."""
        if isinstance(event, Done):
            self._dones[number] = event
            last = self._chunk(number, "", **ending(event))
            if len(self._dones) == len(self._offsets):
                last["timings"] = timings(list(self._dones.values()))
            return data(last)
        text = _text(event)
        likely = logprob_lists(event.logprobs, self._offsets[number]) if self._logprobs else None
        self._offsets[number] += len(text)
        return data(self._chunk(number, text, logprobs=likely))

    def end(self) -> bytes:
        """See Writer."""
        if not self._with_usage:
            return DONE
        counts = usage(self._groups([self._dones[i] for i in range(len(self._offsets))]))
        return data(self._head | {"choices": [], "usage": counts}) + DONE
