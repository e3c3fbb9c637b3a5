"""What a chat request asks for in the project's own words, whatever its dialect, and the engine's requests for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from strata.chat.calls import ToolDialect
from strata.chat.conversation import Conversation, Prompt, TemplateOptions, Turn
from strata.chat.dialects import dialect_of
from strata.chat.reader import Reading
from strata.chat.shapes import Shape, Thinking, constraint, either, of_calls, of_strict_calls
from strata.engine.request import Request
from strata.sampling.constraint import Constraint
from strata.server.aside import aside
from strata.server.errors import ApiError
from strata.server.formats import Format, check_length
from strata.server.grammars import Checked
from strata.server.job import Job
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
    form: Format | None = None
    """What the answer has to look like."""
    budget: int | None = None
    """Tokens of reasoning at most."""


async def jobs_of(ask: Ask, served: ServedModel, context: int | None) -> list[Job]:
    """The answers to make, in a `context` of so many tokens (None: not known yet)."""
    conversation = served.conversation
    box = ask.toolbox
    dialect = _dialect(ask, served)
    options = replace(ask.options, tools=[tool.written() for tool in box.tools]) if box.tools else ask.options
    prompt = await prompt_of(conversation, ask.turns, options)
    room = None if context is None else max(1, context - len(prompt.tokens))
    asked = {**ask.sampling, "constraint": await _constraint(ask, served, prompt, dialect, room)}
    if asked["constraint"] is not None and ask.ignore_end:
        raise ApiError(400, "ignore_eos cannot be combined with a form of the answer", "ignore_eos", "invalid_value")
    ends = () if ask.ignore_end else conversation.tokenizer.stop_ids
    sharing = conversation.sharing(prompt.tokens, ask.cached)
    reading = Reading(ask.stops, opened=prompt.opened)
    if dialect is not None:
        calls = partial(dialect.parser, box.tools)
        reading = replace(reading, calls=calls, most_calls=None if box.parallel else 1)
    return [
        Job(
            Request(
                served.new_id(),
                prompt.tokens,
                ask.max_new,
                served.params(asked, number),
                (*ends, *(token for token in ask.stop_ids if token not in ends)),
                sharing=sharing,
                **ask.terms,
            ),
            reading,
            ask.names,
        )
        for number in range(ask.count)
    ]


async def prompt_of(conversation: Conversation, turns: Sequence[Turn], options: TemplateOptions) -> Prompt:
    """What the engine reads of `turns`, however long they are."""
    characters = sum(len(turn.content) for turn in turns) + sum(len(str(tool)) for tool in options.tools)
    return await aside(characters, conversation.prompt, turns, options)


def _dialect(ask: Ask, served: ServedModel) -> ToolDialect | None:
    """How the model writes calls; None when it is offered no tools."""
    if not ask.toolbox.tools:
        return None
    dialect = dialect_of(source_of(served))
    if dialect is None:
        why = "this model's chat template knows no tools, or writes calls in a way that is not built"
        raise ApiError(400, why, "tools", "unsupported_parameter")
    return dialect


async def _constraint(
    ask: Ask, served: ServedModel, prompt: Prompt, dialect: ToolDialect | None, room: int | None
) -> Constraint | None:
    """What the answer has to look like from its first token on, in a context that has `room` for so many; 400 when it
    cannot be compiled, or is longer than it may be.
    """
    shapes: Sequence[Shape | None] = (None,) if ask.form is None else ask.form.shapes
    if dialect is not None:
        shapes = [_with_tools(ask.toolbox, shape, dialect) for shape in shapes]
    thinking = thinking_after(prompt, served.conversation)
    most = room if ask.max_new is None else ask.max_new
    made, checked = None, Checked("")
    for shape in shapes:
        made = constraint(shape, thinking, ask.budget, most)
        if shape is None or made is None:
            return made
        checked = await served.grammars.check(made, shape.ends == "surely")
        if not checked.complaint:
            break
    if checked.complaint and ask.form is not None and not ask.toolbox.forced():
        raise ask.form.refused(checked.complaint)
    if checked.complaint:
        raise ApiError(400, f"tools: {' '.join(checked.complaint.split())[:600]}", "tools", "invalid_schema")
    check_length(checked.short, served.conversation.tokenizer, most, ask.names["max_new"])
    return made


def _with_tools(box: Toolbox, shape: Shape | None, dialect: ToolDialect) -> Shape | None:
    if forced := box.forced():
        return of_calls(dialect, forced, box.parallel)
    if shape is not None:
        return either(of_calls(dialect, box.tools, box.parallel), shape)
    if any(tool.strict for tool in box.tools):
        return of_strict_calls(dialect, box.tools, box.parallel)
    return None


def thinking_after(prompt: Prompt, conversation: Conversation) -> Thinking:
    """Whether the answer to a prompt reasons first."""
    if prompt.opened:
        return "open"
    return "may" if conversation.thinks and not prompt.thought else "no"
