"""Qwen's calls as JSON (also Hermes'): <tool_call>, an object with name and arguments, </tool_call>."""

import json
import re
from collections.abc import Sequence

from strata.chat.call_reader import CallReader
from strata.chat.calls import Argued, Called, CallPart, Tool, ToolDialect
from strata.chat.json_text import NO_PARAMETERS, ObjectScanner, spaced
from strata.core.errors import EngineError

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
LONGEST_HEAD = 1 << 16
"""Characters after which something that is no call yet is taken for text."""


class Body:
    """See CallBody. The arguments are handed out as they come when the name stands before them, else at the end."""

    def __init__(self) -> None:
        self.complete = False
        self.failed = False
        self.rest = ""
        self._held = ""
        self._name: str | None = None
        self._arguments = ObjectScanner()
        self._made = ""

    def push(self, text: str) -> list[CallPart]:
        """See CallBody."""
        if self._name is not None:
            return self._argue(text)
        self._held += text
        found = _HEAD.match(self._held)
        if found:
            self._name = _text(found.group(1))
            if self._name:
                return [Called(self._name), *self._argue(self._held[found.end() :])]
            self._fail()
        elif self._held.lstrip()[:1] not in ("", "{") or len(self._held) > LONGEST_HEAD:
            self._fail()
        elif CLOSE in self._held:
            return self._whole(*self._held.split(CLOSE, 1))
        return []

    def close(self) -> list[CallPart]:
        """See CallBody."""
        if self._name is None:
            return self._whole(self._held, "")
        self.complete = self._arguments.complete
        return []

    def _argue(self, text: str) -> list[CallPart]:
        parts: list[CallPart] = []
        if not self._arguments.complete:
            said, text = self._arguments.push(text)
            self._made += said
            if said:
                parts.append(Argued(said))
            if self._arguments.complete:
                self._check()
        if self._arguments.complete:
            # Whatever stands before the closing mark is the outer object's end, which models forget.
            self._held = text if parts else self._held + text
            before, close, rest = self._held.partition(CLOSE)
            if close:
                self.complete, self.rest = True, rest
            elif before.strip().strip("}").strip() and not CLOSE.startswith(before.strip().strip("}").strip()):
                self.complete, self.rest = True, before.lstrip().lstrip("}")
        return parts

    def _check(self) -> None:
        try:
            json.loads(self._made)
        except (ValueError, RecursionError) as error:
            raise EngineError(f"the model called {self._name} with arguments that are no JSON: {error}") from error

    def _whole(self, text: str, rest: str) -> list[CallPart]:
        """A call in another order of its keys, or with its arguments as text."""
        try:
            value = json.loads(text)
            arguments = value.get("arguments", value.get("parameters", {}))
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
            name = value["name"]
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
            self._fail()
            return []
        if not (isinstance(name, str) and name and isinstance(arguments, dict)):
            self._fail()
            return []
        self.complete, self.rest = True, rest
        return [Called(name), Argued(json.dumps(arguments, ensure_ascii=False))]

    def _fail(self) -> None:
        self.failed, self.rest = True, self._held


def _text(literal: str) -> str:
    try:
        return str(json.loads(literal))
    except ValueError:
        return ""


def parser(tools: Sequence[Tool]) -> CallReader:
    """A parser; the tools' schemas are not needed."""
    return CallReader(OPEN, Body)


def grammar(tools: Sequence[Tool], several: bool) -> str:
    """See ToolDialect."""
    rules = []
    for number, tool in enumerate(tools):
        head = f'{OPEN}\n{{"name": {json.dumps(tool.name)}, "arguments": '
        schema = json.dumps(spaced(tool.parameters or NO_PARAMETERS, tool.strict))
        rules.append(f"call_{number}: {json.dumps(head)} %json {schema} {json.dumps('}' + chr(10) + CLOSE)}")
    names = " | ".join(f"call_{number}" for number in range(len(tools)))
    more = f"({json.dumps(chr(10))} call)*" if several else ""
    return "\n".join([f"calls: call {more}", f"call: {names}", *rules])


DIALECT = ToolDialect("qwen_json", '"arguments"', OPEN, parser, grammar, after_name='"')
