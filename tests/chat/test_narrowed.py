"""Narrowed schemas: what fits one fits the schema it was made of, and a grammar can follow it."""

import json
import random
from typing import Any

import jsonschema
import pytest
from llguidance import LLMatcher

from strata.chat import endings
from strata.chat.narrowed import known_draft, narrowed, without_patterns
from strata.chat.shapes import loosened, of_loose_schema

KIND = {"enum": ["a", "b", "c"]}
MEMBERS: dict[str, Any] = {"a": {"type": "integer"}, "b": {"type": "string"}, "c": KIND}


def objects(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": MEMBERS, **more}


def when(value: str, *needed: str) -> dict[str, Any]:
    return {"if": {"properties": {"c": {"const": value}}}, "then": {"required": list(needed)}}


SCHEMAS: dict[str, dict[str, Any]] = {
    "not required": objects(**{"not": {"required": ["a"]}}),
    "not any": objects(**{"not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}}),
    "not a value": objects(required=["c"], **{"not": {"properties": {"c": {"enum": ["a", "b"]}}}}),
    "not a type": {"not": {"type": "string"}},
    "not of a list": {"enum": ["a", "b", 1], "not": {"const": 1}},
    "dependencies": objects(dependencies={"a": ["b"], "b": {"required": ["c"]}}),
    "dependent": objects(dependentRequired={"a": ["b"]}, dependentSchemas={"b": {"required": ["c"]}}),
    "many dependencies": objects(dependencies={"a": ["b"], "b": ["c"], "c": ["a"]}, required=["c"]),
    "if by value": objects(allOf=[when("a", "a"), when("b", "b"), when("c", "a", "b")]),
    "if not a value": objects(**{"if": {"properties": {"c": {"not": {"const": "a"}}}}, "then": {"required": ["b"]}}),
    "if a member": objects(**{"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}),
    "ifs": objects(allOf=[{"if": {"required": [one]}, "then": {"required": [two]}} for one, two in ("ab", "bc", "ca")]),
    "names by pattern": objects(propertyNames={"pattern": "^[ab]"}),
    "names of a list": {"type": "object", "propertyNames": {"enum": ["a", "x"]}, "additionalProperties": KIND},
    "contains": {"type": "array", "contains": {"const": "a"}},
    "unique": {"type": "array", "items": KIND, "uniqueItems": True, "minItems": 1},
    "unique of a definition": {"$defs": {"k": KIND}, "type": "array", "items": {"$ref": "#/$defs/k"},
                               "uniqueItems": True},
    "unique of many": {"type": "array", "items": {"enum": [*"abcdefgh", *range(20)]}, "uniqueItems": True,
                       "minItems": 2},
    "one of endings": {"required": ["b"], "properties": MEMBERS, "oneOf": [
        {"properties": {"b": {"pattern": p}}} for p in (r"\.js$", r"\.(html|htm)$", r"\.less$|\.sass$")]},
    "two members": objects(minProperties=2, additionalProperties=False),
    "no more than two": objects(maxProperties=2, minProperties=1),
    "one of required": objects(oneOf=[{"required": ["a"]}, {"required": ["b"]}, {"required": ["a", "c"]}]),
    "one of by value": {"type": "object", "oneOf": [{"properties": {"c": {"const": v}}} for v in ("a", "b")]},
    "one of types": {"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]},
    "one of closed": {"oneOf": [objects(additionalProperties=False),
                                {"type": "object", "properties": {"x": {}}, "additionalProperties": False}]},
    "inner": {"type": "array", "items": objects(**{"not": {"required": ["b"]}}), "minItems": 1},
    "named like a keyword": {"type": "object", "properties": {"dependencies": KIND, "not": KIND, "if": KIND}},
}  # fmt: skip
VALUES = [0, 1, 2.5, "a", "b", "c", True, None, {}, [], ["a"], ["a", "a"], ["a", "b"], ["x"]]


def instances(seed: int) -> list[Any]:
    """Values, and objects and lists of them."""
    chance = random.Random(seed)
    names = ["a", "b", "c", "x", "dependencies", "not", "if"]
    made: list[Any] = list(VALUES)
    for chosen in ("a", "b", "c", "ab", "ac", "bc", "abc"):
        made += [{name: {"a": 1, "b": "b", "c": value}[name] for name in chosen} for value in "abc"]
    for _ in range(120):
        chosen = chance.sample(names, chance.randint(1, 4))
        likely = {"a": 1, "b": "b", "c": chance.choice("abc")}
        made.append({name: likely.get(name, chance.choice(VALUES)) for name in chosen})
        made.append({name: chance.choice(VALUES) for name in chosen})
    made += [{"b": f"x{ending}"} for ending in (".js", ".htm", ".sass", ".css", "js")]
    return [*made, *([each] for each in made[:60])]


def fits(schema: Any, value: Any) -> bool:
    older = "dependencies" in str(schema) or "additionalItems" in str(schema)
    kind = jsonschema.Draft7Validator if older else jsonschema.Draft202012Validator
    return bool(kind(schema).is_valid(value))


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_fits_the_narrow_schema_fits_the_whole_one(name: str) -> None:
    schema = SCHEMAS[name]
    forms = [narrowed(schema), without_patterns(narrowed(schema)), narrowed(schema, branches=False)]
    for number, form in enumerate(forms):
        found = [value for value in instances(len(name)) if fits(form, value)]
        assert found, "something fits"
        if number < 2 or "one of" not in name:
            assert [value for value in found if not fits(schema, value)] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_grammar_follows_it(name: str) -> None:
    for shape in of_loose_schema(SCHEMAS[name])[:1]:
        strict = {**shape.others[0]["json_schema"], "x-guidance": {"coerce_one_of": True}}
        failed, said = LLMatcher.validate_grammar_with_warnings(json.dumps({"grammars": [{"json_schema": strict}]}))
        assert not failed, said


def test_the_comparison_is_not_blind() -> None:
    schema = SCHEMAS["not required"]
    wide = {name: part for name, part in schema.items() if name != "not"}
    assert any(fits(wide, value) and not fits(schema, value) for value in instances(1))


def test_what_may_have_to_fail_stays_as_it_is() -> None:
    """Narrowing the condition of an `if` would let the rest hold less often."""
    condition = {"properties": {"a": {"not": {"const": 1}}}, "propertyNames": {"pattern": "^a"}}
    schema = {"type": "object", "not": condition}
    assert narrowed(schema) == schema


def test_a_dialect_that_nobody_knows_is_no_reason_to_refuse() -> None:
    known = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"}
    assert known_draft(known) == known
    assert known_draft({**known, "$schema": "http://json-schema.org/schema#"}) == {"type": "string"}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"\.css$", {".css"}),
        (r"^.*\.(html|htm)$", {".html", ".htm"}),
        (r"\.coffee$|\.litcoffee$", {".coffee", ".litcoffee"}),
        (r"(\.a|\.b)$", {".a", ".b"}),
        (r"[ab]c$", {"c"}),
        (r"a.c", None),
        (r"\dc$", None),
        (r"ab?$", None),
        (r"(a|b)*$", None),
        (r"$", None),
        (r"[a|b$", None),
    ],
)
def test_how_texts_end_is_read_from_patterns(pattern: str, found: set[str] | None) -> None:
    assert endings.endings(pattern) == found


def test_patterns_are_apart_when_no_ending_ends_another_one() -> None:
    assert endings.apart(r"\.css$", r"\.(html|htm)$")
    assert (
        not endings.apart(r"\.css$", r"s$") and not endings.apart(r"\.css$", r"\.js") and not endings.apart("a$", "a$")
    )


def test_a_reference_to_the_schemas_own_address_is_followed() -> None:
    home = "https://x.example/z.json"
    schema = {"$id": home, "$defs": {"k": KIND}, "type": "array", "items": {"$ref": f"{home}#/$defs/k"}}
    assert loosened(schema, home) == schema and loosened(schema, "https://x.example/")["items"] == {}
    assert narrowed({**schema, "uniqueItems": True})["enum"][1] == ["a"], "its values are found"
    made = of_loose_schema(schema)[0]
    failed, said = LLMatcher.validate_grammar_with_warnings(json.dumps({"grammars": [made.others[0]]}))
    assert not failed and home in str(made.others[0]["json_schema"]["items"]), said


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [(r"^\${.*?}$", r"^\$\{.*?}$"), (r"a{2}b{2,}c{1,3}", None), (r"\p{L}\{x", None), ("[{]", r"[\{]")],
)
def test_braces_that_repeat_nothing_are_braces(pattern: str, expected: str | None) -> None:
    assert loosened({"pattern": pattern}) == {"pattern": expected or pattern}
