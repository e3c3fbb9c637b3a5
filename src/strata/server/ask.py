"""What a chat request asks for in the project's own words, whatever its dialect, and the engine's requests for it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from strata.chat.conversation import TemplateOptions, Turn
from strata.chat.dialects import dialect_of
from strata.chat.reader import Reading
from strata.engine.request import Request
from strata.server.engine_process import EngineProcess
from strata.server.errors import ApiError
from strata.server.generate import Job
from strata.server.served import ServedModel
from strata.server.thinking import source_of
from strata.server.tools import Toolbox


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
    toolbox: Toolbox = field(default=Toolbox())


async def jobs_of(ask: Ask, served: ServedModel, engine: EngineProcess) -> list[Job]:
    """The answers to make."""
    conversation = served.conversation
    tools = ask.toolbox.tools
    options = replace(ask.options, tools=[tool.written() for tool in tools]) if tools else ask.options
    prompt = await asyncio.to_thread(conversation.prompt, ask.turns, options)
    ends = () if ask.ignore_end else conversation.tokenizer.stop_ids
    sharing = conversation.sharing(prompt.tokens, ask.cached)
    reading = Reading(ask.stops, opened=prompt.opened)
    if tools:
        dialect = dialect_of(source_of(served))
        if dialect is None:
            raise ApiError(
                400, "this model's chat template writes calls in a way that is not built", "tools", "unsupported"
            )
        if ask.toolbox.mode == "required":
            raise ApiError(400, "a forced call is not built yet", "tool_choice", "unsupported_parameter")
        reading = replace(reading, calls=partial(dialect.parser, tools), most_calls=None if ask.toolbox.parallel else 1)
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
