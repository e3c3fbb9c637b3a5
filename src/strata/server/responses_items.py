"""Input items of OpenAI's responses as turns."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strata.chat.conversation import Call, Turn
from strata.server.errors import ApiError

_TEXTS = frozenset(("input_text", "output_text", "text"))
_ROLES = {"user": "user", "system": "system", "developer": "system"}
CARRIED = "strata:"
"""What encrypted_content begins with: the text itself, for clients that only give that back."""


def carried(text: str) -> str:
    """`text` in the form of encrypted_content."""
    return CARRIED + base64.b64encode(text.encode()).decode()


@dataclass(slots=True)
class _Spoken:
    """An assistant's turn in the making: reasoning, text and calls are items of their own."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    begun: bool = False

    def take(self) -> list[Turn]:
        """The turn, if one was begun; the next one starts anew."""
        if not self.begun:
            return []
        turn = Turn("assistant", "".join(self.texts), "\n".join(self.thoughts) or None, calls=tuple(self.calls))
        self.texts, self.thoughts, self.calls, self.begun = [], [], [], False
        return [turn]


def turns_of(asked: str | Sequence[Mapping[str, Any]]) -> list[Turn]:
    """Input as turns; what no turn can hold is refused by its place and name."""
    if isinstance(asked, str):
        return [Turn("user", asked)]
    turns: list[Turn] = []
    spoken = _Spoken()
    for number, item in enumerate(asked):
        place = f"input[{number}]"
        kind = item.get("type", "message")
        match kind:
            case "message" if item.get("role") == "assistant":
                spoken.texts.append(_content(place, item.get("content")))
            case "reasoning":
                spoken.thoughts.append(_thought(place, item))
            case "function_call":
                spoken.calls.append(_call(place, item))
            case "message":
                turns += spoken.take()
                turns.append(_message(place, item))
                continue
            case "function_call_output":
                turns += spoken.take()
                output = _content(f"{place}.output", item.get("output"))
                turns.append(Turn("tool", output, call_id=_string(place, item, "call_id")))
                continue
            case _:
                raise ApiError(
                    400, f"{place}: items of type {kind!r:.40} are not built", "input", "unsupported_parameter"
                )
        spoken.begun = True
    return [*turns, *spoken.take()]


def _message(place: str, item: Mapping[str, Any]) -> Turn:
    role = item.get("role")
    match _ROLES.get(role if isinstance(role, str) else ""):
        case "user":
            return Turn("user", _content(place, item.get("content")))
        case "system":
            return Turn("system", _content(place, item.get("content")))
    raise _wrong(f"{place}.role must be user, assistant, system or developer, found {role!r:.40}")


def _content(place: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _wrong(f"{place}.content must be text or a list of parts")
    return "\n".join(_part(f"{place}.content[{number}]", part) for number, part in enumerate(content))


def _part(place: str, part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "refusal":
        return _string(place, part, "refusal")
    if kind not in _TEXTS:
        raise ApiError(
            400, f"{place}: parts of type {kind!r:.40} are not built, text is", "input", "unsupported_parameter"
        )
    return _string(place, part, "text")


def _thought(place: str, item: Mapping[str, Any]) -> str:
    """What was thought: as text, else as it was carried; what somebody else encrypted stays unread."""
    parts = item.get("content") or item.get("summary") or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise _wrong(f"{place}.content must be a list of parts")
    if parts:
        return "\n".join(_string(place, part, "text") for part in parts)
    hidden = item.get("encrypted_content")
    if not (isinstance(hidden, str) and hidden.startswith(CARRIED)):
        return ""
    try:
        return base64.b64decode(hidden.removeprefix(CARRIED), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise _wrong(f"{place}.encrypted_content is damaged: {error}") from error


def _call(place: str, item: Mapping[str, Any]) -> Call:
    text = _string(place, item, "arguments")
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise _wrong(f"{place}.arguments is not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise _wrong(f"{place}.arguments must be an object")
    return Call(_string(place, item, "call_id"), _string(place, item, "name"), arguments)


def _string(place: str, item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise _wrong(f"{place}.{name} must be text")
    return value


def _wrong(text: str) -> ApiError:
    return ApiError(400, text, "input", "invalid_value")
