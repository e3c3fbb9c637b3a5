"""`strata run`: one prompt, one answer."""

import json
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from strata.assemble import load
from strata.chat.conversation import Conversation, Prompt, TemplateOptions, Turn, load_conversation
from strata.chat.defaults import defaults_from, recommended
from strata.chat.events import Done, Event, ReasoningDelta, TextDelta
from strata.chat.reader import Reading
from strata.cli.arguments import ModelArgument
from strata.cli.flags import Given, with_settings
from strata.cli.output import figures, make_log, note, say
from strata.cli.piped import prompt_of
from strata.cli.talk import Talker
from strata.core.errors import UsageError
from strata.plan.wishes import Wishes


@with_settings(Wishes)
def run(
    given: Given,
    model: ModelArgument = None,
    prompt: Annotated[
        str, typer.Option("--prompt", "-p", metavar="TEXT", help="The prompt; - or none: what a pipe brings.")
    ] = "",
    no_stdin: Annotated[
        bool, typer.Option("--no-stdin", help="Leave a pipe unread; else its text goes before the prompt, as context.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The prompt as it stands, without the chat template.")] = False,
    system: Annotated[str, typer.Option("--system", metavar="TEXT", help="A system message before it.")] = "",
    think: Annotated[
        bool | None, typer.Option("--think/--no-think", help="Ask the model to reason first, or not to.")
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", metavar="TEXT", help="Ends the answer; repeat it.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="The answer and its figures as one JSON object.")] = False,
) -> None:
    """Answer one prompt: the answer goes to stdout, reasoning and figures to stderr.

    What a pipe or a file brings on stdin is read with the prompt, as its context.
    """
    wishes = given.resolve(Wishes)
    text = prompt_of(prompt, no_stdin)
    if not text:
        raise UsageError("no prompt", hint="give one with -p TEXT, or -p - to read it from stdin")
    if raw and (system or think is not None):
        raise UsageError("--raw has no chat template: --system, --think and --no-think need one")
    if any(not word for word in stop or []):
        raise UsageError("--stop: expected text, found an empty one")
    log = make_log(wishes)
    loaded = load(model, wishes, log)
    conversation = load_conversation(loaded.checkpoint, log)
    asked = _prompt(conversation, text, raw, system, think)
    reading = Reading(tuple(stop or ()), split_reasoning=not raw, opened=asked.opened)
    talker = Talker(loaded.engine, conversation, defaults_from(wishes, recommended(loaded.checkpoint)), wishes, log)
    loaded.engine.start()
    try:
        show = show_json if json_ else show_text
        show(talker.answer(asked, reading))
    finally:
        loaded.engine.stop()


def _prompt(conversation: Conversation, text: str, raw: bool, system: str, think: bool | None) -> Prompt:
    if raw:
        return Prompt(tuple(conversation.tokenizer.encode(text)), opened=False)
    turns = [Turn("system", system)] if system else []
    return conversation.prompt([*turns, Turn("user", text)], TemplateOptions(think))


def show_text(events: Iterable[Event]) -> None:
    """The answer as it comes."""
    thinking = False
    for event in events:
        if isinstance(event, ReasoningDelta):
            thinking = True
            sys.stderr.write(event.text)
            sys.stderr.flush()
        elif isinstance(event, TextDelta):
            if thinking:
                thinking = False
                note("")
            say(event.text)
        elif isinstance(event, Done):  # no tools are offered here, so there are no calls
            say("\n")
            note(figures(event))


def show_json(events: Iterable[Event]) -> None:
    """Everything as one object."""
    kept = list(events)
    done = kept[-1]
    assert isinstance(done, Done)
    counts = done.counts
    value = {
        "text": "".join(e.text for e in kept if isinstance(e, TextDelta)),
        "reasoning": "".join(e.text for e in kept if isinstance(e, ReasoningDelta)),
        "finish_reason": done.reason.value,
        "stop": done.stop,
        "prompt_tokens": counts.prompt,
        "cached_tokens": counts.reused,
        "answer_tokens": done.tokens,
        "prompt_s": counts.prompt_s,
        "answer_s": counts.decode_s,
        "first_token_s": counts.queue_s + counts.prompt_s,
        "drafted_tokens": counts.drafted,
        "accepted_tokens": counts.accepted,
    }
    say(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
