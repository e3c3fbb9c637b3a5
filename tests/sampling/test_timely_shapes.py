"""Forced calls, regular expressions and grammars that end in time, whatever is drawn."""

import json
import re
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest

from sampling.test_grammar import MAKER, STOP
from sampling.test_timely import draw, text
from strata.chat.calls import Argued, Called, Over, Tool, ToolDialect
from strata.chat.dialects import DIALECTS
from strata.chat.shapes import Shape, constraint, either, of_calls, of_grammar, of_regex, of_schema, of_strict_calls
from strata.sampling.constraint import Constraint, read_constraint
from strata.sampling.lark import of_grammar as size_of
from strata.sampling.sizes import NEVER, of_pattern

PLACE = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "array", "minItems": 3,
         "items": {"type": "integer"}}}, "required": ["city"], "additionalProperties": False}  # fmt: skip
SAID = {"type": "object", "properties": {"more": {"type": "string"}, "text": {"type": "string"}}, "required": ["text"]}
TOOLS = [Tool("weather", None, PLACE, strict=True), Tool("clock"), Tool("say", None, SAID)]


def asked(shape: Shape, most: int | None) -> Constraint:
    made = constraint(shape, "no", None, most)
    assert made is not None
    return made


def shortest(shape: Shape) -> int:
    found = MAKER.short_answer(asked(shape, 1))
    assert found is not None
    return len(found)


def called(dialect: ToolDialect, tools: list[Tool], written: str) -> list[tuple[str, Any]]:
    """(name, arguments) of every call; nothing else may be there."""
    parser = dialect.parser(tools)
    names, arguments = list[str](), list[str]()
    for part in (*parser.push(written), *parser.flush()):
        match part:
            case Called(name):
                names.append(name)
                arguments.append("")
            case Argued(more):
                arguments[-1] += more
            case Over(whole):
                assert whole
    return [(name, json.loads(made)) for name, made in zip(names, arguments, strict=True)]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("spare", [1, 70])
@pytest.mark.parametrize("several", [False, True])
def test_forced_calls_end_in_time_and_are_whole(dialect: ToolDialect, spare: int, several: bool) -> None:
    shape = of_calls(dialect, TOOLS, several)
    most = shortest(shape) + spare
    for seed in range(2):
        made = draw(MAKER.make(asked(shape, most)), seed, most, back=seed == 1)
        assert made[-1] == STOP and len(made) <= most
        for name, arguments in called(dialect, TOOLS, text(made)):
            jsonschema.validate(arguments, next(tool for tool in TOOLS if tool.name == name).parameters or {})


def test_the_shortest_call_is_that_of_the_tool_that_needs_least() -> None:
    for dialect in DIALECTS:
        found = MAKER.short_answer(asked(of_calls(dialect, TOOLS, True), 1))
        assert found is not None and called(dialect, TOOLS, text(found)) == [("clock", {})]


PATTERNS = [r"(yes|no), \d{2}", r"[a-z]*foo[a-z]*bar[a-z]*", r"\d{3}-[a-f]{4,9}(?: and more)?", r"([^.]+\. ){2}end",
            r"((north|south)-)+(east|west)"]  # fmt: skip
GRAMMARS = [
    'root ::= "so " word+ "end"\nword ::= [a-c]+ "."',
    'start: sum ";"\nsum: part ("+" part)*\npart: /[0-9]+/ | "(" sum ")"',
    'start: "<" name ">" text\nname: /[a-z]+/\ntext[suffix="</>"]: /(?s:.*)/',
    'start: "select " what " from " /[a-z]+/ (" where " cond)?\nwhat: "*" | /[a-z]+/ ("," /[a-z]+/)*\n'
    'cond: /[a-z]+/ " = " value | "not (" cond ")"\nvalue: /[0-9]+/ | "\'" /[^\']*/ "\'"',
]


@pytest.mark.parametrize("shape", [*map(of_regex, PATTERNS), *map(of_grammar, GRAMMARS)])
@pytest.mark.parametrize("spare", [1, 6, 40])
def test_regular_expressions_and_grammars_end_in_time(shape: Shape, spare: int) -> None:
    most = shortest(shape) + spare
    for seed in range(3):
        made = draw(MAKER.make(asked(shape, most)), seed, most, back=seed == 2)
        assert made[-1] == STOP and len(made) <= most, text(made)


def test_without_a_length_the_same_draws_have_no_end() -> None:
    """The tests above are not blind."""
    for shape in (of_calls(DIALECTS[0], TOOLS, True), of_regex(PATTERNS[1]), of_grammar(GRAMMARS[2])):
        most = shortest(shape) + 60
        assert any(draw(MAKER.make(asked(shape, None)), seed, most)[-1] != STOP for seed in range(6))


def test_a_choice_is_left_free_as_long_as_each_way_ends_in_time() -> None:
    """An answer of one word of several is the model's, however short it has to be."""
    words = of_regex("abc|abcabc|bc")
    for most, expected in ((2, {"abc", "bc"}), (3, {"abc", "abcabc", "bc"})):
        drawn = {text(draw(MAKER.make(asked(words, most)), seed, most)) for seed in range(40)}
        assert drawn == expected
    kinds = of_schema({"enum": ["a", "b", "long and longer"]}, strict=True)
    drawn = {text(draw(MAKER.make(asked(kinds, 6)), seed, 6)) for seed in range(40)}
    assert drawn == {'"a"', '"b"'}


def test_what_can_never_end_in_time_is_not_narrowed() -> None:
    """One token, for a classifier: no stop fits behind it, and the model chooses all the same."""
    mask, free = (MAKER.make(asked(of_regex("yes|no"), most)).mask() for most in (1, None))
    assert mask is not None and free is not None and np.array_equal(mask, free)


def test_an_end_that_nobody_finds_leaves_the_answer_alone() -> None:
    """What no word of the grammar leads out of: the length cuts it, and the draws are those without a length."""
    blind = of_regex(r"[a-z]*([a-c][x-z]){4}[a-z]*\.")
    assert MAKER.short_answer(asked(blind, 1)) is None
    assert draw(MAKER.make(asked(blind, 20)), 1, 20) == draw(MAKER.make(asked(blind, None)), 1, 20)


def test_either_ends_in_time_and_free_text_with_strict_tools_does_not() -> None:
    both = either(of_calls(DIALECTS[1], TOOLS[:1], False), of_schema({"type": "array", "minItems": 2}, strict=True))
    most = shortest(both) + 30
    for seed in range(4):
        assert draw(MAKER.make(asked(both, most)), seed, most)[-1] == STOP
    assert asked(of_strict_calls(DIALECTS[1], TOOLS, True), 9).most is None


def test_a_constraint_survives_its_line() -> None:
    made = asked(of_calls(DIALECTS[0], TOOLS, True), 50)
    assert read_constraint(made.written()) == made and made.closings and made.names[0] == "clock>"
    with pytest.raises(ValueError, match="texts"):
        read_constraint(replace(made, names=(1,)).written())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "least", "choice"),
    [
        ("abc", 3, 0),
        (r"a|bcd", 1, 3),
        (r"(?:abc)?\d{2,4}", 2, 3),
        (r"[^\]a[b-c]]+\.x{3}", 5, 1),
        (r"(?s:.*)\p{L}\x41", 2, 1),
        (r"\bcat\b|dog{2,}", 3, 4),
    ],
)
def test_sizes_of_regular_expressions(pattern: str, least: int, choice: int) -> None:
    found = of_pattern(pattern)
    assert (found.least, found.choice) == (least, choice)
    if not pattern.startswith("(?s") and r"\b" not in pattern:
        assert re.compile(pattern)


@pytest.mark.parametrize(
    ("grammar", "least", "choice"),
    [
        ('start: "ab" c?\nc: "xyz"', 2, 3),
        ('start: a | "12"\na: "(" a ")" | /x+/', 1, 3),
        ('start: a ~ 2..4\na: "0".."9" "ab"{3}', 14, 7),
        ('start: t\nt[suffix="END"]: /.*/', 3, 1),
        ("start: a\na: a /x/", NEVER, 0),
        ('start: @other | %json {"const": "abcdef"}', 8, NEVER),
        ("start: (", 0, 0),
    ],
)
def test_sizes_of_grammars(grammar: str, least: int, choice: int) -> None:
    found = size_of(grammar)
    assert found.least == least and found.choice <= choice
