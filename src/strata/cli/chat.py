"""`strata chat`: a conversation in the terminal."""

import sys
from typing import Annotated

import typer

from strata.assemble import load
from strata.chat.conversation import load_conversation
from strata.chat.defaults import defaults_from, recommended
from strata.cli.arguments import ModelArgument
from strata.cli.chat_commands import COMPLETIONS, WITH_FILE, Chat, show_error
from strata.cli.chat_input import Input, Piped, Typed, history_file, open_history
from strata.cli.flags import Given, with_settings
from strata.cli.messages import message
from strata.cli.output import make_log, note
from strata.cli.talk import Talker
from strata.core.errors import UsageError
from strata.plan.wishes import Wishes


@with_settings(Wishes)
def chat(
    given: Given,
    model: ModelArgument = None,
    system: Annotated[str, typer.Option("--system", metavar="TEXT", help="The system message.")] = "",
    no_history: Annotated[
        bool,
        typer.Option(
            "--no-history", help="Remember nothing that is typed; else ~/.local/state/strata/chat-history does."
        ),
    ] = False,
) -> None:
    """Chat in the terminal.

    Enter sends; a line that ends with a backslash goes on, and so does a message that begins with three quotation
    marks, to the next three. Ctrl-C stops an answer, Ctrl-D leaves, /help lists what else a line can do. Lines of
    a pipe are messages, too.
    """
    wishes = given.resolve(Wishes)
    log = make_log(wishes)
    loaded = load(model, wishes, log)
    conversation = load_conversation(loaded.checkpoint, log)
    talker = Talker(loaded.engine, conversation, defaults_from(wishes, recommended(loaded.checkpoint)), wishes, log)
    loaded.engine.start()
    try:
        talk(Chat(talker, system), messages_from(given, no_history))
    finally:
        loaded.engine.stop()


def messages_from(given: Given, no_history: bool) -> Input:
    """The terminal, or whatever else standard input is."""
    if not sys.stdin.isatty():
        return Piped(sys.stdin)
    note("/help lists commands")
    try:
        history = open_history(None if no_history else history_file(given.environ))
    except UsageError as error:
        show_error(error)
        history = open_history(None)
    return Typed(history, COMPLETIONS, WITH_FILE)


def talk(chat: Chat, messages: Input) -> None:
    """Carry out messages until the end of input or /quit."""
    while True:
        try:
            text = messages.read()
        except KeyboardInterrupt:
            note("(/quit or Ctrl-D leaves)")
            continue
        if text is None or not chat.handle(message(text)):
            return
