"""Tools and the choice among them, as each dialect writes them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from strata.chat.calls import Tool
from strata.server.errors import ApiError

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
MOST_TOOLS = 512
MODES = ("auto", "required")
"""Of a choice among some of the tools."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """What may be called, and whether it has to be."""

    tools: Sequence[Tool] = ()
    mode: Literal["auto", "required"] = "auto"
    named: Sequence[str] = ()
    """With `required`: the tools to choose from; none: any."""
    parallel: bool = True
    """Whether one answer may make several calls."""

    def forced(self) -> list[Tool]:
        """The tools of which one has to be called; none: nothing has to be."""
        if self.mode == "auto":
            return []
        return [tool for tool in self.tools if not self.named or tool.name in self.named]


def toolbox(
    tools: Sequence[Tool], choice: str, named: Sequence[str], parallel: bool, fields: tuple[str, str]
) -> Toolbox:
    """Tools with a choice of "auto", "none" or "required" (among `named`, if any); `fields` are named in errors.

    With "auto" only those that are `named` are offered, with "required" all are, and one of them is called.
    """
    where, chosen = fields
    names = [tool.name for tool in tools]
    if len(names) > MOST_TOOLS:
        raise ApiError(400, f"{where}: at most {MOST_TOOLS} tools, found {len(names)}", where, "invalid_value")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ApiError(400, f"{where}: two tools are called {twice!r}", where, "invalid_value")
    unknown = next((name for name in named if name not in names), None)
    if unknown is not None:
        raise ApiError(400, f"{chosen}: there is no tool {unknown[:60]!r}", chosen, "invalid_value")
    if choice == "required" and not tools:
        raise ApiError(400, f"{chosen} asks for a call, but {where} is empty", chosen, "invalid_value")
    if choice == "none":
        return Toolbox()
    if choice == "auto" and named:
        tools = [tool for tool in tools if tool.name in named]
    return Toolbox(tools, "required" if choice == "required" else "auto", named, parallel)


def tool_of(where: str, field: str, form: Mapping[str, Any], schema: str) -> Tool:
    """A function's name, description, parameters (in its field `schema`) and strictness."""
    name = form.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ApiError(400, f"{where}.name must be 1 to 128 letters, digits or _.:/-, found {name!r:.60}", field)
    description, parameters, strict = form.get("description"), form.get(schema), form.get("strict")
    if description is not None and not isinstance(description, str):
        raise ApiError(400, f"{where}.description must be text", field, "invalid_value")
    if parameters is not None and not isinstance(parameters, dict):
        raise ApiError(400, f"{where}.{schema} must be a JSON schema (an object)", field, "invalid_value")
    if strict is not None and not isinstance(strict, bool):
        raise ApiError(400, f"{where}.strict must be true or false", field, "invalid_value")
    return Tool(name, description, parameters, bool(strict))


def chosen_name(where: str, form: Mapping[str, Any]) -> str:
    """The name in a choice of one tool."""
    name = form.get("name")
    if not isinstance(name, str):
        raise ApiError(400, f"{where}.name is missing", where.partition(".")[0], "invalid_value")
    return name
