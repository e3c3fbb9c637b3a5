"""What a chat request asks for in the project's own words, whatever its dialect, and the engine's requests for it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strata.chat.conversation import TemplateOptions, Turn
from strata.chat.reader import Reading
from strata.engine.request import Request
from strata.server.engine_process import EngineProcess
from strata.server.generate import Job
from strata.server.served import ServedModel


@dataclass(frozen=True, slots=True)
class Ask:
    """Some answers to one chat."""

    turns: Sequence[Turn]
    options: TemplateOptions
    sampling: Mapping[str, Any]
    """Fields of SamplingParams; None where nothing was asked for."""
    max_new: int | None
    names: Mapping[str, str]
    """What the dialect calls the fields that errors are about: max_new and messages."""
    stops: Sequence[str] = ()
    stop_ids: Sequence[int] = ()
    """Beside the model's own."""
    count: int = 1
    ignore_end: bool = False
    """Only stop strings and the length end an answer."""
    cached: bool = True
    terms: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Request that say when it is served."""


async def jobs_of(ask: Ask, served: ServedModel, engine: EngineProcess) -> list[Job]:
    """The answers to make."""
    conversation = served.conversation
    prompt = await asyncio.to_thread(conversation.prompt, ask.turns, ask.options)
    ends = () if ask.ignore_end else conversation.tokenizer.stop_ids
    sharing = conversation.sharing(prompt.tokens, ask.cached)
    reading = Reading(ask.stops, opened=prompt.opened)
    return [
        Job(
            Request(
                engine.new_id(),
                prompt.tokens,
                ask.max_new,
                served.params(ask.sampling, number),
                (*ends, *(token for token in ask.stop_ids if token not in ends)),
                sharing=sharing,
                **ask.terms,
            ),
            reading,
            ask.names,
        )
        for number in range(ask.count)
    ]
