"""Messages of OpenAI's chats as turns."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from strata.chat.conversation import Call, Turn
from strata.server.errors import ApiError


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One message as OpenAI writes it."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    audio: dict[str, Any] | None = None


def turns_of(messages: Sequence[Message]) -> list[Turn]:
    """Messages as turns; what no turn can hold is refused by its place and name."""
    return [_turn(f"messages[{i}]", message) for i, message in enumerate(messages)]


def _turn(where: str, message: Message) -> Turn:
    for name in ("function_call", "audio"):
        if getattr(message, name):
            raise ApiError(400, f"{where}.{name} is not built yet", "messages", "unsupported_parameter")
    content = _content(where, message)
    speaker = message.name
    match message.role:
        case "system" | "developer":
            return Turn("system", content, name=speaker)
        case "user":
            return Turn("user", content, name=speaker)
        case "assistant":
            thought = message.reasoning if message.reasoning_content is None else message.reasoning_content
            return Turn("assistant", content, thought, speaker, _calls(where, message.tool_calls or []))
        case "tool":
            if message.tool_call_id is None:
                raise ApiError(400, f"{where}.tool_call_id is missing", "messages", "invalid_value")
            return Turn("tool", content, name=speaker, call_id=message.tool_call_id)
        case "function":
            raise ApiError(400, f"{where}: role 'function' is not built, tool is", "messages", "unsupported_parameter")
    raise ApiError(400, f"{where}: unknown role {message.role[:40]!r}", "messages", "invalid_value")


def _calls(where: str, asked: Sequence[Any]) -> tuple[Call, ...]:
    """Calls that an assistant made; their arguments are JSON in text, but an object is taken too."""
    calls = []
    for number, item in enumerate(asked):
        place = f"{where}.tool_calls[{number}]"
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ApiError(400, f"{place}.function.name is missing", "messages", "invalid_value")
        made = function.get("arguments", {})
        try:
            made = json.loads(made or "{}") if isinstance(made, str) else made
        except (ValueError, RecursionError) as error:
            raise ApiError(
                400, f"{place}.function.arguments is not JSON: {error}", "messages", "invalid_value"
            ) from error
        if not isinstance(made, dict):
            raise ApiError(400, f"{place}.function.arguments must be an object", "messages", "invalid_value")
        calls.append(Call(str(item.get("id") or f"call_{number}"), function["name"], made))
    return tuple(calls)


def _content(where: str, message: Message) -> str:
    """The text; text parts are joined by line breaks, parts of other types refused by name."""
    if isinstance(message.content, str):
        return message.content
    if message.content is None:
        if message.role == "assistant":
            return ""
        raise ApiError(400, f"{where}.content is missing", "messages", "invalid_value")
    texts = []
    for number, part in enumerate(message.content):
        kind = part.get("type")
        if kind != "text":
            raise ApiError(
                400,
                f"{where}.content[{number}]: parts of type {kind!r:.40} are not built yet, text is",
                "messages",
                "unsupported_parameter",
            )
        if not isinstance(part.get("text"), str):
            raise ApiError(400, f"{where}.content[{number}].text must be text", "messages", "invalid_value")
        texts.append(part["text"])
    return "\n".join(texts)
