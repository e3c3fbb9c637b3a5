"""`strata chat`: a conversation in the terminal."""

import contextlib
import sys
from typing import Annotated

import typer

from strata.assemble import load
from strata.chat.conversation import TemplateOptions, Turn, load_conversation
from strata.chat.defaults import defaults_from, recommended
from strata.chat.events import Done, ReasoningDelta, TextDelta
from strata.chat.reader import Reading
from strata.cli.flags import Given, with_settings
from strata.cli.output import figures, make_log, note, say
from strata.cli.talk import Talker
from strata.core.errors import RequestError
from strata.plan.wishes import Wishes

with contextlib.suppress(ImportError):  # line editing and history where the platform has them
    import readline  # noqa: F401

HELP = """/think       turn reasoning on or off
/reset       forget the conversation
/system TEXT set the system message (and forget the conversation)
/quit        leave (Ctrl-D too)
/help        this list
Ctrl-C stops an answer."""


class Chat:
    """The turns so far and what the next one does."""

    def __init__(self, talker: Talker, system: str = "") -> None:
        self.talker = talker
        self.system = system
        self.thinking: bool | None = None
        self.turns: list[Turn] = []

    def handle(self, line: str) -> bool:
        """Carry out one line of input; False to leave."""
        text = line.strip()
        if not text:
            return True
        if not text.startswith("/"):
            self.answer(text)
            return True
        word, _, rest = text.partition(" ")
        match word:
            case "/quit" | "/exit":
                return False
            case "/help":
                note(HELP)
            case "/reset":
                self.turns = []
                note("the conversation is forgotten")
            case "/system":
                self.system, self.turns = rest.strip(), []
                note("system message set" if self.system else "no system message")
            case "/think":
                self.thinking = not self.thinking
                note(f"reasoning is {'on' if self.thinking else 'off'}")
            case _:
                note(f"unknown command {word}; /help lists them")
        return True

    def answer(self, text: str) -> None:
        """Ask and show; an answer that was stopped stays in the conversation as far as it came."""
        turns = [*self.turns, Turn("user", text)]
        opening = [Turn("system", self.system)] if self.system else []
        said: list[str] = []
        thought: list[str] = []
        try:
            prompt = self.talker.conversation.prompt([*opening, *turns], TemplateOptions(self.thinking))
            for event in self.talker.answer(prompt, Reading(opened=prompt.opened)):
                if isinstance(event, ReasoningDelta):
                    thought.append(event.text)
                    say(event.text)
                elif isinstance(event, TextDelta):
                    if thought and not said:
                        say("\n---\n")
                    said.append(event.text)
                    say(event.text)
                elif isinstance(event, Done):  # no tools are offered here, so there are no calls
                    say("\n")
                    note(f"({figures(event)})")
        except KeyboardInterrupt:
            say("\n")
            note("(stopped)")
        except RequestError as error:
            note(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""))
            return
        self.turns = [*turns, Turn("assistant", "".join(said), "".join(thought) or None)]

    def loop(self) -> None:
        """Read lines until the end of input or /quit."""
        while True:
            try:
                if sys.stdin.isatty():
                    line = input("> ")
                else:
                    line = sys.stdin.readline()
                    if not line:
                        return
            except KeyboardInterrupt:
                note("\n(/quit or Ctrl-D leaves)")
                continue
            except EOFError:
                return
            if not self.handle(line):
                return


@with_settings(Wishes)
def chat(
    given: Given,
    model: Annotated[str | None, typer.Argument(help="A .gguf file or folder; none = the demo.")] = None,
    system: Annotated[str, typer.Option("--system", metavar="TEXT", help="The system message.")] = "",
) -> None:
    """Chat in the terminal; /help lists what else a line can do."""
    wishes = given.resolve(Wishes)
    log = make_log(wishes)
    loaded = load(model, wishes, log)
    conversation = load_conversation(loaded.checkpoint, log)
    talker = Talker(loaded.engine, conversation, defaults_from(wishes, recommended(loaded.checkpoint)), wishes, log)
    loaded.engine.start()
    try:
        note("/help lists commands")
        Chat(talker, system).loop()
    finally:
        loaded.engine.stop()
