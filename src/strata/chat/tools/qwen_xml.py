"""Qwen's calls as tags (Qwen3-Coder and later): <function=name>, then <parameter=name> with each value as text."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from strata.chat.call_reader import CallReader
from strata.chat.calls import Argued, Called, CallPart, Tool, ToolDialect
from strata.chat.json_text import spaced

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>\n?")
_END = re.compile(r"\s*</function>\s*(?:</tool_call>)?")
_VALUE_END = re.compile(r"\n?</parameter>(?=\s*(?:<parameter=[^<>\n]+>|</function>))")
_CLOSED = re.compile(r"\n?</parameter>\s*$")
_TEXTS = frozenset(("string",))
_CLOSINGS = ("\n</parameter>", f"</function>\n{CLOSE}", f"/function>\n{CLOSE}")
"""The last where its bracket was all that could come."""
LONGEST_HEAD = 1 << 12
"""Characters after which something that is no call yet is taken for text."""
_TAIL = len("\n</parameter>\n\n\n\n<parameter=") + 256
"""Of a value held back: what may be the beginning of its end."""


class Body:
    """See CallBody. Values that are text go out as they come, others when they are complete."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        """`schemas`: of each tool's parameters."""
        self.complete = False
        self.failed = False
        self.rest = ""
        self._schemas = schemas
        self._held = ""
        self._properties: Mapping[str, Any] | None = None
        self._count = 0
        self._value: str | None = None
        """Name of the parameter whose value is being read."""
        self._begun = False
        """Its text has begun to go out."""

    def push(self, text: str) -> list[CallPart]:
        """See CallBody."""
        self._held += text
        parts: list[CallPart] = []
        while not (self.complete or self.failed):
            before = (len(self._held), self._value, self._properties is None)
            self._step(parts)
            if (len(self._held), self._value, self._properties is None) == before:
                break
        return parts

    def close(self) -> list[CallPart]:
        """See CallBody."""
        if self._properties is None:
            self._fail()
            return []
        parts: list[CallPart] = []
        if self._value is not None:
            ended = _CLOSED.search(self._held)
            if ended is None:  # cut within a value
                return [Argued(("" if self._begun else '"') + _escaped(self._held))] if self._streams() else []
            self._end_value(self._held[: ended.start()], parts)
        self._over("", parts)
        return parts

    def _step(self, parts: list[CallPart]) -> None:
        if self._properties is None:
            self._function(parts)
        elif self._value is not None:
            self._read_value(parts)
        elif found := _PARAMETER.match(self._held):
            # The line break after the tag may still be on its way.
            if found.end() == len(self._held) and not found.group().endswith("\n"):
                return
            self._value, self._held = found.group(1).strip(), self._held[found.end() :]
            parts.append(
                Argued(("{" if not self._count else ", ") + json.dumps(self._value, ensure_ascii=False) + ": ")
            )
            self._count += 1
        else:
            self._finish(parts)

    def _function(self, parts: list[CallPart]) -> None:
        if found := _FUNCTION.match(self._held):
            name, self._held = found.group(1).strip(), self._held[found.end() :]
            self._properties = self._schemas.get(name, {}).get("properties") or {}
            parts.append(Called(name))
        else:
            start = self._held.lstrip()
            begins = start.startswith("<function=") or "<function=".startswith(start)
            if not begins or ">" in start or "\n" in start or len(start) > LONGEST_HEAD:
                self._fail()

    def _finish(self, parts: list[CallPart]) -> None:
        found = _END.match(self._held)
        if found and found.group().endswith(CLOSE):
            self._over(self._held[found.end() :], parts)
            return
        left = self._held.strip()
        if not any(mark.startswith(left) for mark in ("</function>", CLOSE, "<parameter=")) and not _begins(left):
            self._over(self._held[found.end() :] if found else self._held, parts)

    def _over(self, rest: str, parts: list[CallPart]) -> None:
        parts.append(Argued("}" if self._count else "{}"))
        self.complete, self.rest, self._held = True, rest, ""

    def _read_value(self, parts: list[CallPart]) -> None:
        found = _VALUE_END.search(self._held)
        if found:
            value, self._held = self._held[: found.start()], self._held[found.end() :]
            self._end_value(value, parts)
        elif self._streams() and (certain := self._certain()):
            text, self._held = self._held[:certain], self._held[certain:]
            parts.append(Argued(("" if self._begun else '"') + _escaped(text)))
            self._begun = True

    def _certain(self) -> int:
        """How much of the value cannot be part of its end."""
        at = self._held.find("\n</parameter>", max(0, len(self._held) - _TAIL))
        if at < 0:
            at = self._held.find("</parameter>", max(0, len(self._held) - _TAIL))
        if at >= 0:
            return at
        for length in range(min(len(self._held), len("\n</parameter>")), 0, -1):
            end = self._held[-length:]
            if "\n</parameter>".startswith(end) or "</parameter>".startswith(end):
                return len(self._held) - length
        return len(self._held)

    def _streams(self) -> bool:
        """Whether the schema says that the value is text and nothing else."""
        return self._schema().get("type") in _TEXTS

    def _schema(self) -> Mapping[str, Any]:
        found = (self._properties or {}).get(self._value or "", {})
        return found if isinstance(found, Mapping) else {}

    def _end_value(self, value: str, parts: list[CallPart]) -> None:
        if self._streams():
            parts.append(Argued(("" if self._begun else '"') + _escaped(value) + '"'))
        else:
            parts.append(Argued(_typed(value, self._schema())))
        self._value, self._begun = None, False

    def _fail(self) -> None:
        self.failed, self.rest = True, self._held


def _begins(left: str) -> bool:
    """Whether a parameter's tag, or the end, is on its way."""
    if left.startswith("<parameter="):
        return ">" not in left and "\n" not in left and len(left) < LONGEST_HEAD
    if left.startswith("</function>"):
        return CLOSE.startswith(left.removeprefix("</function>").strip())
    return False


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _typed(value: str, schema: Mapping[str, Any]) -> str:
    """JSON of a value whose schema is not text alone: what it says if that is JSON of an allowed type, else text."""
    kinds = schema.get("type")
    allowed = kinds if isinstance(kinds, list) else [kinds] if kinds else []
    try:
        made = json.loads(value)
    except (ValueError, RecursionError):
        lower = value.strip().lower()
        if lower in {"true", "false", "none"} and ("boolean" in allowed or "null" in allowed):
            return {"none": "null"}.get(lower, lower)
        return json.dumps(value, ensure_ascii=False)
    if isinstance(made, str) or ("string" in allowed and _kind(made) not in allowed):
        return json.dumps(value, ensure_ascii=False)
    return value.strip()


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    kinds = {type(None): "null", int: "integer", float: "number", dict: "object", list: "array"}
    return kinds.get(type(value), "string")


def parser(tools: Sequence[Tool]) -> CallReader:
    """A parser that knows the types of the tools' parameters."""
    schemas = {tool.name: tool.parameters or {} for tool in tools}
    return CallReader(OPEN, lambda: Body(schemas))


def grammar(tools: Sequence[Tool], several: bool) -> str:
    """See ToolDialect. Required parameters come first, in the schema's order; text is free up to its end."""
    rules = [r"text_value[suffix=/\n<\/parameter>/]: /(?s:.*)/"]
    for number, tool in enumerate(tools):
        schema = tool.parameters or {}
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        items = []
        for place, (name, kind) in enumerate(sorted(properties.items(), key=lambda item: item[0] not in required)):
            rule = f"parameter_{number}_{place}"
            head = json.dumps(f"<parameter={name}>\n")
            if isinstance(kind, Mapping) and kind.get("type") == "string" and "enum" not in kind:
                rules.append(f'{rule}: {head} text_value "\\n"')
            else:
                value = json.dumps(spaced(_inlined(kind, schema), tool.strict))
                rules.append(f'{rule}: {head} %json {value} "\\n</parameter>\\n"')
            items.append(rule if name in required else f"{rule}?")
        head = json.dumps(f"{OPEN}\n<function={tool.name}>\n")
        rules.append(f"call_{number}: {head} {' '.join(items)} {json.dumps(f'</function>{chr(10)}{CLOSE}')}")
    names = " | ".join(f"call_{number}" for number in range(len(tools)))
    more = '("\\n" call)*' if several else ""
    return "\n".join([f"calls: call {more}", f"call: {names}", *rules])


def _inlined(kind: Any, schema: Mapping[str, Any]) -> Any:
    """A property's schema as a schema of its own, with the definitions that it may refer to."""
    shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    return {**shared, **kind} if shared and isinstance(kind, Mapping) else kind


DIALECT = ToolDialect("qwen_xml", "<function=", OPEN, parser, grammar, ">", _CLOSINGS, "<>\n")
