"""A conversation as a file: the JSON that the web app exports and imports, so that each can go on with the other's."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strata.chat.conversation import Turn
from strata.core.errors import UsageError

FORM = "strata_conversation"
TITLE_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is kept of a conversation."""

    system: str
    turns: tuple[Turn, ...]


def write(path: Path, transcript: Transcript, again: bool) -> None:
    """Write the file; UsageError when it is there already (unless `again`), or cannot be written."""
    now_ms = int(time.time() * 1000)
    text = next((turn.content for turn in transcript.turns), "")
    value = {
        FORM: 1,
        "title": " ".join(text.split())[:TITLE_CHARACTERS] or "Conversation",
        "created": now_ms,
        "updated": now_ms,
        "settings": {"system": transcript.system} if transcript.system else {},
        "messages": [_message(turn) for turn in transcript.turns],
    }
    try:
        with path.open("w" if again else "x", encoding="utf-8") as file:
            file.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    except FileExistsError as error:
        raise UsageError(f"{path}: exists", "name another file, or remove this one") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def read(path: Path) -> Transcript:
    """The conversation in a file; UsageError for anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    turns = _turns(value.get("messages")) if isinstance(value, dict) and value.get(FORM) == 1 else None
    if turns is None:
        raise UsageError(f"{path}: not a conversation", "/save and the web app's export write such files")
    settings = value.get("settings")
    system = settings.get("system", "") if isinstance(settings, dict) else ""
    return Transcript(system if isinstance(system, str) else "", turns)


def _message(turn: Turn) -> dict[str, str]:
    thought = {"reasoning": turn.reasoning} if turn.reasoning else {}
    return {"role": turn.role, "content": turn.content, **thought}


def _turns(messages: Any) -> tuple[Turn, ...] | None:
    """The turns, from a user's on in turn; None when they are something else."""
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return None
    turns = []
    for number, message in enumerate(messages):
        role: Any = ("user", "assistant")[number % 2]
        if not isinstance(message, dict) or message.get("role") != role or not isinstance(message.get("content"), str):
            return None
        thought = message.get("reasoning")
        turns.append(Turn(role, message["content"], thought if isinstance(thought, str) and thought else None))
    return tuple(turns)
