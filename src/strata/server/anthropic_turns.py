"""Anthropic's messages as turns: blocks of content, some of which are turns of their own."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from strata.chat.conversation import Call, Turn
from strata.server.errors import ApiError

Content: TypeAlias = str | list[dict[str, Any]]
"""Text, or blocks."""


def turns_of(messages: Sequence[tuple[str, Content]]) -> list[Turn]:
    """Messages (role, content) as turns; what no turn can hold is refused by its place and name."""
    turns: list[Turn] = []
    for number, (role, content) in enumerate(messages):
        where = f"messages.{number}"
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        match role:
            case "user":
                turns += _user(where, blocks)
            case "assistant":
                turns.append(_assistant(where, blocks))
            case "system":
                turns.append(Turn("system", system_text(f"{where}.content", content)))
            case _:
                raise _wrong(f"{where}.role", f"must be user, assistant or system, found {role[:40]!r}")
    return turns


def system_text(where: str, content: Content) -> str:
    """Text blocks, joined by line breaks."""
    if isinstance(content, str):
        return content
    return "\n".join(_text_block(f"{where}.{number}", block) for number, block in enumerate(content))


def _user(where: str, blocks: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """Results of tools are turns of their own, in their place."""
    turns: list[Turn] = []
    texts: list[str] = []

    def flush() -> None:
        if texts:
            turns.append(Turn("user", "\n".join(texts)))
            texts.clear()

    for number, block in enumerate(blocks):
        place = f"{where}.content.{number}"
        if block.get("type") == "tool_result":
            flush()
            turns.append(_result(place, block))
        else:
            texts.append(_text_block(place, block))
    flush()
    return turns or [Turn("user", "")]


def _result(place: str, block: Mapping[str, Any]) -> Turn:
    call = block.get("tool_use_id")
    if not isinstance(call, str):
        raise _wrong(f"{place}.tool_use_id", "is missing")
    content = block.get("content", "")
    text = content if isinstance(content, str) else ""
    if isinstance(content, list):
        text = "\n".join(_text_block(f"{place}.content.{i}", each) for i, each in enumerate(content))
    elif not isinstance(content, str):
        raise _wrong(f"{place}.content", "must be text or a list of blocks")
    return Turn("tool", f"Error: {text}" if block.get("is_error") is True else text, call_id=call)


def _assistant(where: str, blocks: Sequence[Mapping[str, Any]]) -> Turn:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Call] = []
    for number, block in enumerate(blocks):
        place = f"{where}.content.{number}"
        match block.get("type"):
            case "thinking":
                thoughts.append(_string(place, block, "thinking"))
            case "redacted_thinking":
                pass  # only whoever wrote it could read it
            case "tool_use":
                calls.append(_call(place, block))
            case _:
                texts.append(_text_block(place, block))
    return Turn("assistant", "".join(texts), "\n".join(thoughts) or None, calls=tuple(calls))


def _call(place: str, block: Mapping[str, Any]) -> Call:
    arguments = block.get("input", {})
    if not isinstance(arguments, dict):
        raise _wrong(f"{place}.input", "must be an object")
    return Call(_string(place, block, "id"), _string(place, block, "name"), arguments)


def _text_block(place: str, block: Mapping[str, Any]) -> str:
    if not isinstance(block, dict):
        raise _wrong(place, "must be an object with a type")
    kind = block.get("type")
    if kind != "text":
        raise ApiError(
            400, f"{place}: blocks of type {kind!r:.40} are not built, text is", place, "unsupported_parameter"
        )
    return _string(place, block, "text")


def _string(place: str, block: Mapping[str, Any], name: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise _wrong(f"{place}.{name}", "must be text")
    return value


def _wrong(param: str, text: str) -> ApiError:
    return ApiError(400, f"{param} {text}", param, "invalid_value")
