"""What keeps an instance out of a JSON schema: the opposite of one, as far as a grammar can follow it."""

from collections.abc import Mapping, Sequence
from typing import Any

from strata.chat import endings

KINDS = ("string", "integer", "number", "boolean", "object", "array", "null")
DEPTH = 16
"""References that are followed, one to the next."""


def required_of(node: Any) -> list[str]:
    """Names that a part says itself to be needed."""
    names = node.get("required") if isinstance(node, Mapping) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def home_of(root: Any) -> str:
    """The address that a schema gives itself, by which it may refer to its own parts; empty: it has none."""
    found = root.get("$id") if isinstance(root, Mapping) else None
    return found.partition("#")[0] if isinstance(found, str) else ""


class Lookup:
    """Reads parts of one schema, references within it followed."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._home = home_of(root)

    def follow(self, part: Any) -> Any:
        """The part that a reference leads to; one that is none, or leads elsewhere, is itself."""
        for _ in range(DEPTH):
            if not isinstance(part, Mapping) or set(part) - {"description", "title", "$comment"} != {"$ref"}:
                return part
            found = self._target(part["$ref"])
            if found is None:
                return part
            part = found
        return part

    def _target(self, reference: Any) -> Any:
        if self._home and isinstance(reference, str):
            reference = reference.removeprefix(self._home) or "#"
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return self._root if reference == "#" else None
        found: Any = self._root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def values(self, part: Any) -> list[Any] | None:
        """All values of a part that has but some; None: they are not listed."""
        found = self.follow(part)
        if not isinstance(found, Mapping):
            return None
        if "const" in found:
            return [found["const"]]
        if isinstance(found.get("enum"), list):
            return list(found["enum"])
        return [False, True] if found.get("type") == "boolean" else None

    def named(self, part: Any) -> list[Any]:
        """Values that a part speaks of, whether it allows them or not."""
        found = self.follow(part)
        if not isinstance(found, Mapping):
            return []
        inner = [found.get("not"), *(each for name in ("anyOf", "oneOf") for each in found.get(name) or ())]
        return [*(self.values(found) or ()), *(value for each in inner for value in self.named(each))]

    def holds(self, part: Any, value: Any) -> bool | None:
        """Whether a value fits a part of values alone; None: it is about more."""
        found = self.follow(part)
        if not isinstance(found, Mapping):
            return found if isinstance(found, bool) else None
        if found.keys() - {"const", "enum", "not", "anyOf", "oneOf", "type", "$comment"}:
            return None
        judged: list[bool | None] = [value in listed] if (listed := self.values(found)) is not None else []
        judged += [_kind(value) in self.kinds(found)] if "type" in found else []
        if "not" in found:
            inner = self.holds(found["not"], value)
            judged.append(None if inner is None else not inner)
        for name in ("anyOf", "oneOf"):
            if name in found:
                each = [self.holds(branch, value) for branch in found[name]]
                judged.append(None if None in each else any(each) if name == "anyOf" else sum(map(bool, each)) == 1)
        return None if None in judged else all(judged)

    def kinds(self, part: Any) -> set[str]:
        """Types that instances of a part may have."""
        kinds = set(KINDS)
        for each in self._all(part, 0):
            listed = self.values(each)
            if listed is not None:
                kinds &= {_kind(value) for value in listed}
            elif (asked := each.get("type")) is not None:
                named = {asked} if isinstance(asked, str) else set(asked)
                kinds &= named | {"integer"} if "number" in named else named
        return kinds

    def members(self, part: Any, depth: int = 0) -> dict[str, Any]:
        """Members that a part names, with those of all that it has to fit besides."""
        return {name: inner for each in self._all(part, depth) for name, inner in _properties(each).items()}

    def member(self, part: Any, name: str) -> Any:
        """All that a member has to fit."""
        found = [_properties(each)[name] for each in self._all(part, 0) if name in _properties(each)]
        return found[0] if len(found) == 1 else {"allOf": found}

    def needed(self, part: Any) -> set[str]:
        """Names of members that it has to have."""
        return {name for each in self._all(part, 0) for name in required_of(each)}

    def closed(self, part: Any) -> bool:
        """Whether it has no members but those it names."""
        return any(
            each.get("additionalProperties") is False and not each.get("patternProperties")
            for each in self._all(part, 0)
        )

    def _all(self, part: Any, depth: int) -> list[Mapping[str, Any]]:
        """A part, and all parts that an instance of it has to fit as well."""
        found = self.follow(part)
        if not isinstance(found, Mapping) or depth > DEPTH:
            return []
        more = found.get("allOf") if isinstance(found.get("allOf"), list) else []
        return [found, *(each for inner in more or () for each in self._all(inner, depth + 1))]

    def apart(self, one: Any, other: Any) -> bool:
        """Whether it is certain that no instance fits both."""
        if not self.kinds(one) & self.kinds(other):
            return True
        first, second = self.values(one), self.values(other)
        if first is not None and second is not None:
            return not any(value in second for value in first)
        for a, b in ((one, other), (other, one)):
            if self.kinds(a) == {"object"} and self.closed(a) and self.needed(b) - self.members(a).keys():
                return True
        both = self.needed(one) & self.needed(other) if self.kinds(one) & self.kinds(other) == {"object"} else set()
        return any(self._differ(self.member(one, name), self.member(other, name)) for name in both)

    def apart_within(self, whole: Any, one: Any, other: Any) -> bool:
        """Whether it is certain that no instance of the whole part fits both."""
        return self.apart(one, other) or self.apart({"allOf": [whole, one]}, {"allOf": [whole, other]})

    def _differ(self, one: Any, other: Any) -> bool:
        first, second = self.values(one), self.values(other)
        if first is not None and second is not None:
            return not any(value in second for value in first)
        kinds = self.kinds(one) & self.kinds(other)
        if kinds != {"string"}:
            return not kinds
        return any(endings.apart(a, b) for a in self._patterns(one) for b in self._patterns(other))

    def _patterns(self, part: Any) -> list[str]:
        """All that a text has to fit."""
        return [each["pattern"] for each in self._all(part, 0) if isinstance(each.get("pattern"), str)]


def _properties(part: Mapping[str, Any]) -> Mapping[str, Any]:
    found = part.get("properties")
    return found if isinstance(found, Mapping) else {}


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    kinds = {type(None): "null", int: "integer", float: "number", dict: "object", list: "array"}
    return kinds.get(type(value), "string")


def exclusion(part: Any, node: Mapping[str, Any], lookup: Lookup) -> Any:
    """What an instance of `node` has to fit beside it, so that it does not fit `part`; None: it cannot be said."""
    found = lookup.follow(part)
    if not isinstance(found, Mapping):
        return True if found is False else None
    if "not" in found and len(found) == 1:
        return found["not"]
    for name in ("anyOf", "oneOf"):
        if isinstance(found.get(name), list):
            each = [exclusion(branch, node, lookup) for branch in found[name]]
            return None if any(one is None for one in each) else {"allOf": each}
    by_value = _other_value(found, node, lookup)
    if by_value is not None:
        return by_value
    members = lookup.members(node)
    absent = sorted(lookup.needed(found) - lookup.needed(node), key=lambda name: (name in members, name))
    if absent and "object" in lookup.kinds(node):
        return {"type": "object", "properties": {absent[0]: False}}
    own = [name for name, inner in members.items() if name not in lookup.members(found) and inner is not False]
    if own and lookup.closed(found) and "object" in lookup.kinds(node):
        return {"type": "object", "required": own[:1]}
    return _other_kind(found, node, lookup)


def _other_value(part: Mapping[str, Any], node: Mapping[str, Any], lookup: Lookup) -> Any:
    """Another value: of the instance itself, or of a member that `part` has something to say about."""
    listed, own = lookup.values(part), lookup.values(node)
    if listed is not None and own is not None and (left := _left(own, listed)):
        return {"enum": left}
    members = lookup.members(node)
    for name, inner in lookup.members(part).items():
        listed, own = lookup.values(inner), lookup.values(members.get(name))
        if listed is not None and own is not None and (left := _left(own, listed)):
            return {"type": "object", "properties": {name: {"enum": left}}, "required": [name]}
    return None


def _left(own: Sequence[Any], listed: Sequence[Any]) -> list[Any]:
    return [value for value in own if value not in listed]


def _other_kind(part: Mapping[str, Any], node: Mapping[str, Any], lookup: Lookup) -> Any:
    if not part.keys() & {"type", "const", "enum"}:
        return None
    left = sorted(lookup.kinds(node) - lookup.kinds(part) - ({"number"} if "integer" in lookup.kinds(part) else set()))
    return {"type": left} if left else None
