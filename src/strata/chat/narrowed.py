"""JSON schemas with keywords that a grammar cannot follow replaced by some that it can.

Whatever fits the new schema fits the old one, not the other way round: an answer loses choices, never its validity.
What cannot be replaced stays as it is.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from strata.chat.excluded import Lookup, exclusion, required_of

Node: TypeAlias = dict[str, Any]
Rule: TypeAlias = Callable[[Node, Lookup], None]
DEEPEST = 128
BRANCHES = 24
"""Of one choice at most; a grammar of more would be large."""
PLACES = 6
"""Items of a list whose values have to differ, where there are many values."""
CHOICES = 2
"""Conditions of one object that are left open: each doubles what there is to compile."""
_MAPS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependencies", "dependentSchemas"))
_PARTS = frozenset(
    (
        "items", "prefixItems", "additionalItems", "additionalProperties", "contains", "propertyNames", "anyOf",
        "oneOf", "allOf",
    )
)  # fmt: skip
_DRAFTS = re.compile(r"(http://json-schema\.org/draft-0[4-7]|https://json-schema\.org/draft/20(19-09|20-12))/schema#?")


def narrowed(root: Any, branches: bool = True) -> Any:
    """The schema with all such replacements; without `branches` an instance may fit several branches of `oneOf`."""
    rules = [rule for rule in RULES if branches or rule is not _one_of]
    return _inner(root, Lookup(root), rules, 0) if isinstance(root, Mapping) else root


def known_draft(schema: Any) -> Any:
    """The schema without the name of a dialect that nobody knows."""
    if not isinstance(schema, Mapping) or "$schema" not in schema or _DRAFTS.fullmatch(str(schema["$schema"])):
        return schema
    return {name: item for name, item in schema.items() if name != "$schema"}


def without_patterns(schema: Any) -> Any:
    """The schema without members whose names fit patterns, which a grammar has to tell apart."""
    if isinstance(schema, list):
        return [without_patterns(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {name: without_patterns(item) for name, item in schema.items()}
    patterns = made.get("patternProperties")
    if isinstance(patterns, Mapping) and patterns and not isinstance(made.get("type"), Mapping):
        members = _members(made)
        made["properties"] = {
            name: {"allOf": [part, *(other for pattern, other in patterns.items() if _matches(pattern, name))]}
            for name, part in members.items()
        }
        made["additionalProperties"] = False
        made.pop("patternProperties")
    return made


def _inner(value: Any, lookup: Lookup, rules: Sequence[Rule], depth: int) -> Any:
    """A part, and then the parts of what it became. What may have to fail (`not`, `if`) must not become narrower."""
    if isinstance(value, list):
        return [_inner(item, lookup, rules, depth + 1) for item in value]
    if not isinstance(value, Mapping) or depth > DEEPEST:
        return value
    node = dict(value)
    for rule in rules:
        rule(node, lookup)
    for name, item in node.items():
        if name in _MAPS and isinstance(item, Mapping):
            node[name] = {key: _inner(part, lookup, rules, depth + 1) for key, part in item.items()}
        elif name in _PARTS:
            node[name] = _inner(item, lookup, rules, depth + 1)
    return node


def _add(node: Node, *parts: Any) -> None:
    """More that an instance has to fit."""
    found = node.get("allOf")
    node["allOf"] = [*(found if isinstance(found, list) else ()), *parts]


def _contains(node: Node, lookup: Lookup) -> None:
    """All items are of the kind of which one has to be."""
    if isinstance(node.get("contains"), Mapping) and isinstance(node.get("items", True), Mapping | bool):
        items, asked = node.get("items", True), node.pop("contains")
        node["items"] = asked if items is True else {"allOf": [items, asked]}
        node["minItems"] = max(1, node.pop("minContains", 1), node.get("minItems", 0))
        node.pop("maxContains", None)


def _names(node: Node, lookup: Lookup) -> None:
    """Names by a pattern or a list: members by those."""
    asked = lookup.follow(node.get("propertyNames"))
    if not isinstance(asked, Mapping) or "patternProperties" in node:
        return
    others, members = node.get("additionalProperties", True), _members(node)
    if isinstance(names := asked.get("enum"), list):
        node["properties"] = {str(name): members.get(name, others) for name in names}
    elif isinstance(pattern := asked.get("pattern"), str):
        node["patternProperties"] = {pattern: others}
        node["properties"] = {name: part for name, part in members.items() if _matches(pattern, name)}
    else:
        return
    node["additionalProperties"] = False
    node.pop("propertyNames")


def _members(node: Mapping[str, Any]) -> Mapping[str, Any]:
    found = node.get("properties")
    return found if isinstance(found, Mapping) else {}


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def _dependencies(node: Node, lookup: Lookup) -> None:
    """A member that asks for others comes with them, or not at all."""
    found: list[tuple[str, Any]] = []
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        if isinstance(node.get(keyword), Mapping):
            found += node.pop(keyword).items()
    needed, choices = required_of(node), 0
    for name, asked in found:
        part = {"required": asked} if isinstance(asked, list) else asked
        if isinstance(part, Mapping) and part.get("required") == []:
            continue
        if name in needed:
            _add(node, part)
        elif name in _members(node) or not _members(node):
            both = {"allOf": [part], "required": [name]}
            choices += 1
            _add(node, {"anyOf": [_without(name), both]} if choices <= CHOICES else _without(name))


def _without(name: str) -> Node:
    return {"properties": {name: False}}


def _conditions(node: Node, lookup: Lookup) -> None:
    """`if`, `then` and `else`, of the object itself and of the parts that have nothing else."""
    found = list(_taken(node))
    if not found:
        return
    by_value = _by_value(node, lookup, found)
    if by_value is not None:
        _add(node, {"anyOf": by_value})
        return
    choices = 0
    for condition, then, other in found:
        both: Node = {"allOf": [condition, then]}
        excluded = exclusion(condition, node, lookup)
        if excluded is None:
            _add(node, both)
        elif choices < CHOICES:
            choices += 1
            _add(node, {"anyOf": [{"allOf": [excluded, other]}, both]})
        else:
            _add(node, excluded, other)


def _taken(node: Node) -> Iterator[tuple[Any, Any, Any]]:
    """(condition, then, else), which the node has no more."""
    if "if" in node:
        condition, parts = node.pop("if"), [node.pop(name, True) for name in ("then", "else")]
        if parts != [True, True]:
            yield condition, parts[0], parts[1]
    kept = []
    for part in node.get("allOf", ()) if isinstance(node.get("allOf"), list) else ():
        if isinstance(part, Mapping) and part.keys() & {"if"} and not part.keys() - {"if", "then", "else", "$comment"}:
            yield part["if"], part.get("then", True), part.get("else", True)
        else:
            kept.append(part)
    if isinstance(node.get("allOf"), list):
        node["allOf"] = kept
        if not kept:
            node.pop("allOf")


def _by_value(node: Node, lookup: Lookup, found: Sequence[tuple[Any, Any, Any]]) -> list[Node] | None:
    """A branch for every value of the one member that all conditions are about; None: there is no such member."""
    asked: list[Any] = []
    names = set[str]()
    for condition, _, _ in found:
        parts = _members(condition) if isinstance(condition, Mapping) else {}
        if len(parts) != 1 or condition.keys() - {"properties", "required", "type", "$comment"}:
            return None
        names |= parts.keys()
        asked += parts.values()
    if len(names) != 1:
        return None
    (name,) = names
    own = lookup.values(_members(node).get(name))
    values = [value for part in asked for value in lookup.named(part)] if own is None else own
    branches = []
    for value in values[:BRANCHES]:
        held = [lookup.holds(part, value) for part in asked]
        if None in held:
            return None
        chosen = [then if holds else other for holds, (_, then, other) in zip(held, found, strict=True)]
        branches.append({"properties": {name: {"const": value}}, "required": [name], "allOf": chosen})
    return branches or None


def _negation(node: Node, lookup: Lookup) -> None:
    """`not`, where what it forbids can be left out."""
    if isinstance(node.get("not"), Mapping):
        excluded = exclusion(node["not"], {name: part for name, part in node.items() if name != "not"}, lookup)
        if excluded is not None:
            node.pop("not")
            _add(node, excluded)


def _one_of(node: Node, lookup: Lookup) -> None:
    """Each branch with what keeps an instance out of the others; only those for which that can be said, if any.

    Branches that tell objects apart may all hold for what is none: then it has to be one.
    """
    branches = node.get("oneOf")
    if not isinstance(branches, list) or not 1 < len(branches) <= BRANCHES:
        return
    whole = {name: part for name, part in node.items() if name != "oneOf"}
    kinds = lookup.kinds(whole)
    made = _apart(whole, branches, lookup)
    if not made and "object" in kinds and len(kinds) > 1:
        made = _apart({**whole, "type": "object"}, branches, lookup)
        node.update({"type": "object"} if made else {})
    if made:
        node["oneOf"] = made


def _apart(node: Node, branches: Sequence[Any], lookup: Lookup) -> list[Any]:
    """Branches of an instance of `node` that cannot fit any other one."""
    made = []
    for number, branch in enumerate(branches):
        others = [*branches[:number], *branches[number + 1 :]]
        near = [other for other in others if not lookup.apart_within(node, branch, other)]
        parts = [exclusion(other, {"allOf": [node, branch]}, lookup) for other in near]
        if None not in parts:
            made.append({"allOf": [branch, *parts]} if parts else branch)
    return made


def _counts(node: Node, lookup: Lookup) -> None:
    """So many members: those that are needed, and the first of the others."""
    members, needed = _members(node), required_of(node)
    optional = [name for name, part in members.items() if name not in needed and part is not False]
    least, most = node.get("minProperties"), node.get("maxProperties")
    if not optional:
        return
    if isinstance(least, int) and least > 1 and least <= len(needed) + len(optional):
        more = optional[: max(0, least - len(needed))]
        node["required"] = [*needed, *more]
        needed, optional = node["required"], optional[len(more) :]
        node.pop("minProperties")
    if isinstance(most, int) and most > 1 and len(needed) <= most:
        kept = {*needed, *optional[: most - len(needed)]}
        node["properties"] = {name: part for name, part in members.items() if name in kept}
        node["additionalProperties"] = False
        node.pop("patternProperties", None)
        node.pop("maxProperties")


def _unique(node: Node, lookup: Lookup) -> None:
    """Different items of a few values: lists of one or two of them. Of many: each item is of values of its own."""
    listed = lookup.values(node.get("items"))
    if node.get("uniqueItems") is not True or listed is None or "enum" in node:
        return
    values = list({json.dumps(value, sort_keys=True): value for value in listed}.values())
    least, most = node.get("minItems", 0), node.get("maxItems", len(values))
    if len(values) > BRANCHES:
        places = max(least, min(PLACES, most))
        node["items"] = [{"enum": values[place::places]} for place in range(min(places, len(values)))]
        node["additionalItems"] = False
        for name in ("maxItems", "uniqueItems"):
            node.pop(name, None)
        return
    pairs = [[one, other] for number, one in enumerate(values) for other in values[number + 1 :]]
    lists = [[], *([value] for value in values), *pairs, values]
    fitting = [each for each in lists if least <= len(each) <= most]
    if fitting:
        for name in ("items", "minItems", "maxItems", "uniqueItems", "type"):
            node.pop(name, None)
        node["enum"] = fitting


RULES: Sequence[Rule] = (_contains, _names, _dependencies, _conditions, _negation, _one_of, _counts, _unique)
