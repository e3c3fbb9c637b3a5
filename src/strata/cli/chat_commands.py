"""What a message in `strata chat` does: a question, or a /command."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from strata.chat.conversation import TemplateOptions, Turn
from strata.chat.events import Done, ReasoningDelta, TextDelta
from strata.chat.reader import Reading
from strata.cli import transcript
from strata.cli.interrupts import noticed
from strata.cli.output import figures, note, say
from strata.cli.talk import Talker
from strata.cli.transcript import Transcript
from strata.core.errors import RequestError, StrataError, UsageError


class Chat:
    """The turns so far and what the next one does."""

    def __init__(self, talker: Talker, system: str = "") -> None:
        self.talker = talker
        self.system = system
        self.thinking: bool | None = None
        self.turns: list[Turn] = []
        self.file: Path | None = None
        """Where this conversation is kept."""

    def handle(self, text: str) -> bool:
        """Carry out one message; False to leave."""
        if not text.startswith("/"):
            if text:
                self.answer(text)
            return True
        word, _, rest = text.partition(" ")
        if word in LEAVE:
            return False
        command = COMMANDS.get(word)
        if command is None:
            note(f"unknown command {word}; /help lists them")
            return True
        try:
            command.run(self, rest.strip())
        except StrataError as error:
            show_error(error)
        return True

    def answer(self, text: str) -> None:
        """Ask and show; an answer that was stopped stays in the conversation as far as it came."""
        turns = [*self.turns, Turn("user", text)]
        opening = [Turn("system", self.system)] if self.system else []
        said: list[str] = []
        thought: list[str] = []
        try:
            prompt = self.talker.conversation.prompt([*opening, *turns], TemplateOptions(self.thinking))
            with noticed() as check:
                for event in self.talker.answer(prompt, Reading(opened=prompt.opened)):
                    check()
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
            show_error(error)
            return
        self.turns = [*turns, Turn("assistant", "".join(said), "".join(thought) or None)]

    def help(self, _: str) -> None:
        """List the commands."""
        note(HELP)

    def think(self, wish: str) -> None:
        """Reasoning on, off, or the other way."""
        known = {"": not self.thinking, "on": True, "off": False}
        if wish not in known:
            raise UsageError(f"/think: expected on, off or nothing, found {wish!r:.40}")
        self.thinking = known[wish]
        note(f"reasoning is {'on' if self.thinking else 'off'}")

    def reset(self, _: str) -> None:
        """Forget the turns."""
        self.turns, self.file = [], None
        note("the conversation is forgotten")

    def instruct(self, text: str) -> None:
        """Another system message, and a new conversation."""
        self.system, self.turns, self.file = text, [], None
        note("system message set" if self.system else "no system message")

    def retry(self, _: str) -> None:
        """The last question once more."""
        if not self.turns:
            raise UsageError("/retry: nothing was asked yet")
        *self.turns, question, _answer = self.turns
        self.answer(question.content)

    def save(self, name: str) -> None:
        """Keep the conversation in a file; again in the same one when none is named."""
        path = Path(name).expanduser() if name else self.file
        if path is None:
            raise UsageError("/save: expected the name of a file")
        transcript.write(path, Transcript(self.system, tuple(self.turns)), again=path == self.file)
        self.file = path
        note(f"{len(self.turns)} messages are in {path}")

    def load(self, name: str) -> None:
        """Go on with a conversation that was saved, here or in the browser."""
        if not name:
            raise UsageError("/load: expected the name of a file")
        path = Path(name).expanduser()
        found = transcript.read(path)
        self.system, self.turns, self.file = found.system, list(found.turns), path
        note(f"{len(self.turns)} messages from {path}")

    def image(self, _: str) -> None:
        """Refused by name."""
        raise UsageError("/image: images are not built, models read text only")


class Command(NamedTuple):
    """A word that begins with a slash."""

    argument: str
    help: str
    run: Callable[[Chat, str], None]


COMMANDS: Mapping[str, Command] = {
    "/think": Command("[on|off]", "reason before answers, or not; alone: the other way", Chat.think),
    "/retry": Command("", "ask the last question again (at a temperature of 0 the answer is the same)", Chat.retry),
    "/reset": Command("", "forget the conversation", Chat.reset),
    "/system": Command("[TEXT]", "set the system message, or none, and forget the conversation", Chat.instruct),
    "/save": Command(
        "[FILE]", "keep the conversation, in a form that the web app reads; alone: in its file", Chat.save
    ),
    "/load": Command("FILE", "go on with a conversation that was saved, or exported by the web app", Chat.load),
    "/image": Command("FILE", "not built: models read text only", Chat.image),
    "/help": Command("", "this list", Chat.help),
}
LEAVE = ("/quit", "/exit")
WITH_FILE = ("/save", "/load")


def _help() -> str:
    words = [(f"{name} {command.argument}".strip(), command.help) for name, command in COMMANDS.items()]
    words.append(("/quit", "leave (Ctrl-D too)"))
    width = max(len(word) for word, _ in words)
    return "\n".join(
        [
            *(f"{word.ljust(width)}  {text}" for word, text in words),
            'A line that ends with \\ goes on, a message within """ and """ has as many as it likes;',
            "Alt-Enter is a new line, Up what was typed before, Ctrl-R searches it, Tab completes.",
            "Ctrl-C stops an answer.",
        ]
    )


HELP = _help()
COMPLETIONS: Mapping[str, str] = {**{name: c.help for name, c in COMMANDS.items()}, "/quit": "leave"}


def show_error(error: StrataError) -> None:
    """What could not be done; the conversation goes on."""
    note(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""))
