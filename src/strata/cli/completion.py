"""What could come next on a command line, for the shells' completion.

The commands' flags are read from `completion.json`, which scripts/reference writes from the commands themselves:
loading a command would load torch, and a Tab must not take seconds.
"""

import importlib
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("completion.json")
TOP_WORDS = {
    "--help": "The commands.",
    "--version": "The version.",
    "--show-completion": "What a shell needs to complete strata.",
    "--install-completion": "The same, put where the shell looks for it.",
}
MARKS = ":="
"""bash takes what is behind these for a word of its own."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A word that could stand here, and what it is."""

    word: str
    help: str = ""


def complete(shell: str, words: Sequence[str]) -> list[str]:
    """Lines for `shell`. `words` are those behind `strata`, the last one as far as it is typed; bash gives its line."""
    typed = list(words) or [""]
    if shell == "bash":
        typed = split(typed[0])[1:] or [""]
    last = typed[-1]
    found = [each for each in candidates(typed) if each.word.startswith(last)]
    if shell == "bash":
        cut = max(last.rfind(mark) for mark in MARKS) + 1
        return [each.word[cut:].replace(" ", "\\ ") for each in found]
    return [f"{each.word}\t{each.help}" if each.help else each.word for each in found]


def split(line: str) -> list[str]:
    """The words of a line that may end amid one: the last one is "" behind a space."""
    for closing in ("", '"', "'"):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return words if words and not closing and not line[-1:].isspace() else [*words, *([] if closing else [""])]
    return line.split(" ")


def candidates(words: Sequence[str]) -> Iterator[Candidate]:
    """What could stand in the place of the last word."""
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    *before, last = words[1:] if words[0] == "help" and len(words) > 1 else words
    name = next((n for n in (" ".join(before[:2]), " ".join(before[:1])) if n in table), "")
    if not name:
        yield from _names(table, before, last)
        return
    command = table[name]
    behind = before[len(name.split()) :]
    flags = {word: flag for flag in command["flags"] for word in flag["names"]}
    option, equals, _ = last.partition("=")
    if equals and option in flags:
        for each in values(flags[option]["value"], last[len(option) + 1 :]):
            yield Candidate(f"{option}={each.word}", each.help)
    elif behind and flags.get(behind[-1], {}).get("value"):
        yield from values(flags[behind[-1]]["value"], last)
    elif last.startswith("-"):
        yield from (Candidate(word, flag["help"]) for word, flag in flags.items())
    else:
        place = sum(1 for at, word in enumerate(behind) if not _belongs_to_flag(behind, at, flags, word))
        kinds = command["arguments"]
        yield from values(kinds[min(place, len(kinds) - 1)] if kinds else "", last)


def _belongs_to_flag(behind: Sequence[str], at: int, flags: dict[str, Any], word: str) -> bool:
    return word.startswith("-") or (at > 0 and bool(flags.get(behind[at - 1], {}).get("value")))


def _names(table: dict[str, Any], before: Sequence[str], last: str) -> Iterator[Candidate]:
    """Commands, the second words of those that have two, and what stands without a command."""
    if len(before) == 1:
        for name, command in table.items():
            if name.startswith(f"{before[0]} "):
                yield Candidate(name.partition(" ")[2], command["help"])
        if before[0].endswith("-completion"):
            yield from map(Candidate, ("bash", "zsh", "fish"))
    elif not before:
        seen: dict[str, str] = {}
        for name, command in table.items():
            first, space, _ = name.partition(" ")
            seen.setdefault(first, f"strata {first} --help lists them" if space else command["help"])
        seen |= {"help": "A command's flags."} | (TOP_WORDS if last.startswith("-") else {})
        yield from (Candidate(word, text) for word, text in seen.items())


def values(kind: str, typed: str) -> Iterator[Candidate]:
    """Words for a value: `model`, `held`, `file`, `folder`, or choices as `a|b`, N and TEXT standing for others."""
    if kind in {"model", "held"}:
        yield from held()
    if kind in {"model", "file", "folder"}:
        yield from paths(kind, typed)
    elif "|" in kind:
        yield from (Candidate(word) for word in kind.split("|") if not word.isupper())


def held() -> Iterator[Candidate]:
    """Models that the cache holds; the hub's client is loaded for this only."""
    hub: Any = importlib.import_module("strata.hub.hub").Hub()
    for model in importlib.import_module("strata.hub.cached").held(hub.cache):
        yield Candidate(model.name, f"{model.nbytes / 1e9:.1f} GB")


def paths(kind: str, typed: str) -> Iterator[Candidate]:
    """Folders, and files that `kind` takes; of models those whose name ends with .gguf."""
    head, slash, start = typed.rpartition("/")
    folder = Path(head + slash).expanduser() if slash else Path()
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return
    for path in found:
        if path.name.startswith(".") and not start.startswith("."):
            continue
        if path.is_dir():
            yield Candidate(f"{head}{slash}{path.name}/")
        elif kind == "file" or (kind == "model" and path.suffix == ".gguf"):
            yield Candidate(f"{head}{slash}{path.name}")
