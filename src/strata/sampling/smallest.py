"""How much text the smallest instances of a JSON schema take: what an answer may commit itself to with one token."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strata.sampling.sizes import NEVER

PASSES = 32
"""How often sizes are carried outwards: through so many references, one within the other."""
_KINDS: Mapping[str, int] = {"null": 4, "boolean": 4, "integer": 1, "number": 1, "string": 2, "array": 2, "object": 2}
_FORMATS: Mapping[str, int] = {"date-time": 20, "date": 10, "time": 9, "duration": 3, "email": 6, "ipv4": 7, "uuid": 36}
_INNER = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_BRANCHES = ("anyOf", "oneOf", "allOf", "prefixItems")


class Smallest:
    """Characters of the smallest instance of every part of one schema. Estimates: a part is looked at by itself."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._parts = self._reached()
        self._known: dict[int, int] = {}
        for _ in range(PASSES):  # from the innermost parts outwards
            before = dict(self._known)
            for part in reversed(self._parts):
                self._known[id(part)] = min(NEVER, self._of(part))
            if self._known == before:
                break

    def largest_choice(self) -> int:
        """Of the part whose smallest instance is the largest one, of all that an answer may go into or not."""
        choices = [self.of(choice) for part in self._parts for choice in choices_in(part)]
        return max((size for size in choices if size < NEVER), default=2)

    def of(self, schema: Any) -> int:
        """Of one part."""
        if not isinstance(schema, Mapping):
            return NEVER if schema in (False, None) else 2
        return self._known.get(id(schema), NEVER)

    def _reached(self) -> list[Mapping[str, Any]]:
        """All parts, those that only references lead to included."""
        found: dict[int, Mapping[str, Any]] = {}
        left = [self._root]
        while left:
            for part in subschemas(left.pop()):
                if id(part) in found:
                    continue
                found[id(part)] = part
                if "$ref" in part:
                    left.append(self._target(part["$ref"]))
        return list(found.values())

    def _of(self, schema: Mapping[str, Any]) -> int:
        if "const" in schema:
            return len(json.dumps(schema["const"]))
        if isinstance(schema.get("enum"), list):
            return min((len(json.dumps(value)) for value in schema["enum"]), default=NEVER)
        size = self._own(schema)
        for name in ("anyOf", "oneOf"):
            if isinstance(schema.get(name), list):
                size += min(map(self.of, schema[name]), default=0)
        size += sum(map(self.of, schema["allOf"])) if isinstance(schema.get("allOf"), list) else 0
        return size + (self.of(self._target(schema["$ref"])) if "$ref" in schema else 0)

    def _own(self, schema: Mapping[str, Any]) -> int:
        asked = schema.get("type")
        if asked is None:
            asked = "object" if "required" in schema else "array" if "minItems" in schema else "string"
        kinds = [asked] if isinstance(asked, str) else asked if isinstance(asked, list) else []
        return min((self._of_kind(kind, schema) for kind in kinds), default=2)

    def _of_kind(self, kind: Any, schema: Mapping[str, Any]) -> int:
        size = _KINDS.get(kind, 2) if isinstance(kind, str) else 2
        match kind:
            case "string":
                size += max(_count(schema.get("minLength")), _width(schema.get("pattern")))
                size = max(size, 2 + _FORMATS.get(str(schema.get("format")), 0))
            case "integer" | "number":
                size = max(size, len(str(schema.get("minimum", ""))), len(str(schema.get("maximum", ""))))
            case "array":
                items = schema.get("items", True)
                size += _count(schema.get("minItems")) * (1 + self.of(items if not isinstance(items, list) else True))
            case "object":
                inner = schema.get("properties")
                members = inner if isinstance(inner, Mapping) else {}
                for name in required_of(schema):
                    size += len(json.dumps(name)) + 2 + self.of(members.get(name, True))
        return size

    def _target(self, reference: Any) -> Any:
        """What a reference within the schema refers to; True where it cannot be followed."""
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return self._root if reference == "#" else True
        found = self._root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                return True
            found = found[name]
        return found


def _count(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < NEVER else 0


def _width(pattern: Any) -> int:
    """Characters that a match has at least; of what is no pattern here, those it is written with."""
    if not isinstance(pattern, str):
        return 0
    plain = re.sub(r"\\p\{[^}]*\}", ".", pattern)
    plain = re.sub(r"(?<!\\)(\[[^\]]*\]|\\?.)(?:\*|\?)", "", re.sub(r"\(\?[=!<][^)]*\)", "", plain))
    return len(plain)


def least_of(schema: Any) -> int:
    """Characters of the smallest instance of a whole schema."""
    return Smallest(schema).of(schema)


def required_of(schema: Mapping[str, Any]) -> list[str]:
    """Names that an object must have, as far as they are a list of names."""
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def example_of(schema: Mapping[str, Any]) -> list[str]:
    """A string that its pattern may match: the pattern itself, without anchors and escapes."""
    pattern = schema.get("pattern")
    return [re.sub(r"\\(.)", r"\1", pattern.strip("^$"))] if isinstance(pattern, str) and len(pattern) <= 64 else []


def choices_in(schema: Mapping[str, Any]) -> Iterator[Any]:
    """What an instance may have or not: optional members, further items, one branch or another."""
    needed = set(required_of(schema))
    members = schema.get("properties")
    yield from (part for name, part in members.items() if name not in needed) if isinstance(members, Mapping) else ()
    patterns = schema.get("patternProperties")
    yield from patterns.values() if isinstance(patterns, Mapping) else ()
    for name in ("items", "additionalItems", "additionalProperties", "prefixItems", "anyOf", "oneOf"):
        found = schema.get(name)
        yield from found if isinstance(found, list) else (found,)


def subschemas(schema: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """A schema and all within it."""
    if not isinstance(schema, Mapping) or depth > 64:
        return
    yield schema
    for name, value in schema.items():
        inner: Sequence[Any] = ()
        if name in _INNER and isinstance(value, Mapping):
            inner = list(value.values())
        elif name in _BRANCHES and isinstance(value, list):
            inner = value
        elif name in ("items", "additionalItems", "additionalProperties"):
            inner = value if isinstance(value, list) else [value]
        for each in inner:
            yield from subschemas(each, depth + 1)
