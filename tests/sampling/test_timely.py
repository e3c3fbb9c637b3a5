"""Answers that end in time: whatever is drawn, and however short they have to be."""

import json
import random
from collections.abc import Sequence
from typing import Any

import jsonschema
import numpy as np
import pytest

from sampling.test_grammar import MAKER, PIECES, SIZE, STOP
from strata.chat.shapes import Thinking, constraint, of_schema
from strata.sampling.constraint import Constraint
from strata.sampling.mask import TokenMask
from strata.sampling.sizes import NEVER
from strata.sampling.smallest import Smallest

PART = {"type": "object", "properties": {"deep": {"type": "array", "minItems": 2, "items": {"type": "integer"}}},
        "required": ["deep"]}  # fmt: skip
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "required": ["b"]},
    {"type": "array", "items": PART, "minItems": 1},
    {"type": "object", "properties": {"part": PART, "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"}},
     "required": ["version"], "additionalProperties": False},
    {"type": "object", "properties": {"many": {"type": "string", "minLength": 30}, "kind": {"enum": ["one", "other"]}},
     "required": ["many", "kind"]},
    {"$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "leaf": {"type": "boolean"}},
                        "required": ["leaf"]}}, "$ref": "#/$defs/tree"},
    {"$defs": {"tree": {"anyOf": [  # the shorter name leads into itself
        {"type": "object", "properties": {"k": {"const": "in"}, "v": {"$ref": "#/$defs/tree"}}, "required": ["k", "v"]},
        {"type": "object", "properties": {"k": {"const": "leaf"}}, "required": ["k"]}]}}, "$ref": "#/$defs/tree"},
]  # fmt: skip


def asked(schema: dict[str, Any], most: int | None, thinking: Thinking = "no") -> Constraint:
    made = constraint(of_schema(schema, strict=True), thinking, None, most)
    assert made is not None
    return made


def shortest(schema: dict[str, Any]) -> int:
    found = MAKER.short_answer(asked(schema, 1))
    assert found is not None
    jsonschema.validate(json.loads(b"".join(PIECES[token] for token in found)), schema)
    return len(found)


def draw(mask: TokenMask, seed: int, most: int, back: bool = False) -> list[int]:
    """Any tokens that are allowed; with `back` some steps are made, taken back and made again."""
    chance, made = random.Random(seed), list[int]()
    while len(made) < most and made[-1:] != [STOP]:
        found = mask.mask()
        assert found is not None and found.shape == (SIZE,)
        token = int(chance.choice(np.flatnonzero(found)))
        if back and token != STOP:
            mask.advance(token)
            ahead = mask.mask()
            assert ahead is not None
            mask.advance(int(np.flatnonzero(ahead)[-1]))
            mask.rollback(2)
        assert mask.fitting([token]) == 1
        mask.advance(token)
        made.append(token)
    return made


def text(tokens: Sequence[int]) -> str:
    return b"".join(PIECES[token] for token in tokens if token != STOP).decode()


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("spare", [1, 9, 60])
def test_every_draw_ends_in_time_and_fits(schema: dict[str, Any], spare: int) -> None:
    most = shortest(schema) + spare
    for seed in range(3):
        made = draw(MAKER.make(asked(schema, most)), seed, most)
        assert made[-1] == STOP and len(made) <= most
        jsonschema.validate(json.loads(text(made), strict=False), schema)


def test_without_a_length_there_are_draws_without_an_end() -> None:
    """The test above is not blind."""
    ends = [draw(MAKER.make(asked(SCHEMAS[0], None)), seed, 60)[-1] for seed in range(6)]
    assert any(end != STOP for end in ends)


def test_what_was_taken_back_leaves_no_trace() -> None:
    for number, schema in enumerate(SCHEMAS):
        most = shortest(schema) + 12
        first = draw(MAKER.make(asked(schema, most)), number, most)
        assert draw(MAKER.make(asked(schema, most)), number, most, back=True) == first


def test_reasoning_ends_in_time_for_the_answer() -> None:
    most = shortest(SCHEMAS[0]) + 40
    for seed in range(4):
        made = text(draw(MAKER.make(asked(SCHEMAS[0], most, "open")), seed, most))
        jsonschema.validate(json.loads(made.rpartition("</think>")[2], strict=False), SCHEMAS[0])


def test_an_answer_longer_than_it_may_be_is_not_held_up() -> None:
    most = shortest(SCHEMAS[3]) - 5
    assert len(draw(MAKER.make(asked(SCHEMAS[3], most)), 1, most)) == most


@pytest.mark.parametrize(
    ("schema", "size", "choice"),
    [
        (True, 2, 2),
        ({"const": "abc"}, 5, 2),
        ({"enum": ["abcdef", 1]}, 1, 2),
        ({"type": "string", "minLength": 9}, 11, 2),
        ({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": "long"}}, "required": ["a"]}, 8, 6),
        ({"type": "array", "items": {"const": "abc"}, "minItems": 2}, 14, 5),
        ({"anyOf": [{"const": 12345}, {"const": 1}]}, 3, 5),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"const": "abc"}}}, 7, 2),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, NEVER, 2),
    ],
)
def test_sizes_of_the_smallest_instances(schema: Any, size: int, choice: int) -> None:
    assert Smallest(schema).of(schema) == size
    assert Smallest(schema).largest_choice() == choice
