"""Calls in both dialects of Qwen: written and read again, however the text is cut."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.chat.calls import Argued, Called, CallPart, Over, Said, Tool, ToolDialect
from strata.chat.dialects import DIALECTS, dialect_of
from strata.chat.tools import qwen_json, qwen_xml
from strata.core.errors import EngineError

Call = tuple[str, dict[str, Any]]
TOOLS = (
    Tool("look", parameters={"type": "object", "properties": {
        "text": {"type": "string"}, "count": {"type": "integer"}, "list": {"type": "array"}, "any": {},
    }}),
    Tool("now"),
)  # fmt: skip


def as_json(call: Call) -> str:
    """As Qwen's templates write it (by their `tojson`)."""
    name, arguments = call
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments, ensure_ascii=False)}}}\n</tool_call>'


def as_xml(call: Call) -> str:
    """As Qwen3-Coder's template writes it: text as it is, all else as JSON."""
    name, arguments = call
    parts = [
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
    ]
    return f"<tool_call>\n<function={name}>\n{''.join(parts)}</function>\n</tool_call>"


WRITERS: dict[str, Callable[[Call], str]] = {"qwen_json": as_json, "qwen_xml": as_xml}
BOTH = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


def read(dialect: ToolDialect, pieces: Sequence[str]) -> tuple[str, list[Call]]:
    """(text, calls)"""
    parser = dialect.parser(TOOLS)
    parts: list[CallPart] = [part for piece in pieces for part in parser.push(piece)] + parser.flush()
    text, calls, open_call = "", [], False
    for part in parts:
        match part:
            case Said(said):
                assert not open_call
                text += said
            case Called(name):
                assert not open_call
                calls.append((name, ""))
                open_call = True
            case Argued(said):
                assert open_call
                calls[-1] = (calls[-1][0], calls[-1][1] + said)
            case Over(whole):
                assert whole
                open_call = False
    return text, [(name, json.loads(made)) for name, made in calls]


def cut(text: str, places: Sequence[int]) -> list[str]:
    borders = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in pairwise(borders)]


ODD = st.text(st.sampled_from('ab "\\\n\t<>/={}[]漢😀</tool_call>'), max_size=30) | st.sampled_from(
    [
        "</tool_call>", "<tool_call>", "</parameter>", "\n</parameter>\n", '"}]', "\n\n", "", "<function=x>",
        "null", "12", "\\",
    ]
)  # fmt: skip
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "text": ODD,
        "count": st.integers(-10, 10**12),
        "list": st.lists(ODD | st.integers() | st.booleans() | st.none(), max_size=3),
        "any": st.booleans() | st.integers() | st.none() | st.dictionaries(ODD, st.integers(), max_size=2),
    },
)
CALLS = st.lists(st.tuples(st.sampled_from(["look", "now", "unknown_tool"]), VALUES), max_size=3)
PLACES = st.lists(st.integers(0, 10**6), max_size=6)
LOOKS = st.lists(st.sampled_from([*'a<>/=\n{"}', "<tool_call>", "<function=", "</tool_call>"]), max_size=25).map(
    "".join
)
PROSE = st.text(st.sampled_from("ab <>/tool_call\n."), max_size=20)


@BOTH
@settings(max_examples=150, deadline=None)
@given(
    calls=CALLS,
    before=PROSE,
    places=st.lists(st.integers(0, 10**6), max_size=6),
    gap=st.sampled_from(["\n", "", "\n\n"]),
)
def test_what_is_written_is_read(
    dialect: ToolDialect, calls: list[Call], before: str, places: list[int], gap: str
) -> None:
    typed = [(name, values if name == "look" else {}) for name, values in calls]
    text = before + "\n" + gap.join(WRITERS[dialect.name](call) for call in typed)
    found = read(dialect, cut(text, places))
    assert found[1] == typed
    assert found[0] == (before.rstrip("\n") if calls else text)


@BOTH
@settings(max_examples=150, deadline=None)
@given(text=LOOKS, places=PLACES)
def test_text_that_only_looks_like_a_call_stays_text(dialect: ToolDialect, text: str, places: list[int]) -> None:
    whole, pieces = read_parts(dialect, [text]), read_parts(dialect, cut(text, places))
    assert whole == pieces, "cuts change nothing"
    if "<function=" not in text:
        assert whole == (text, 0)


def read_parts(dialect: ToolDialect, pieces: Sequence[str]) -> tuple[str, int]:
    parser = dialect.parser(TOOLS)
    parts = [part for piece in pieces for part in parser.push(piece)] + parser.flush()
    return "".join(p.text for p in parts if isinstance(p, Said)), sum(isinstance(p, Called) for p in parts)


@BOTH
def test_arguments_come_before_the_call_is_complete(dialect: ToolDialect) -> None:
    parser = dialect.parser(TOOLS)
    text = WRITERS[dialect.name](("look", {"text": "word " * 20}))
    made = "".join(part.text for part in parser.push(text[: len(text) // 2]) if isinstance(part, Argued))
    assert made.startswith('{"text": "word word')


JSON_CASES = [
    ('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', [("f", {"a": 1})]),
    ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', [("f", {"a": 1})]),
    ('<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>', [("f", {"a": 1})]),
    ('<tool_call>{"name": "f"}</tool_call>', [("f", {})]),
    ('<tool_call>\n{"name": "f", "arguments": {"a": "x\ny"}}', [("f", {"a": "x\ny"})]),
    ('<tool_call>\n{"name": "f", "arguments": {"a": 1}\n</tool_call>', [("f", {"a": 1})]),
]


@pytest.mark.parametrize(("text", "calls"), JSON_CASES)
def test_forms_of_json_that_models_write(text: str, calls: list[Call]) -> None:
    assert read(qwen_json.DIALECT, [text]) == read(qwen_json.DIALECT, list(text)) == ("", calls)


def test_arguments_that_are_no_json_are_an_error() -> None:
    with pytest.raises(EngineError, match=r"called f with arguments that are no JSON"):
        read(qwen_json.DIALECT, ['<tool_call>\n{"name": "f", "arguments": {"a": nonsense}}\n</tool_call>'])


@pytest.mark.parametrize(
    "text", ["<tool_call>\n{nonsense}\n</tool_call>", "<tool_call>hm", '<tool_call>{"name": 3}</tool_call>']
)
def test_o_081_a_malformed_call_is_text(text: str) -> None:
    """O-081: finish_reason tool_calls with an empty list."""
    assert read(qwen_json.DIALECT, list(text)) == (text, [])


def test_values_have_the_types_of_the_schema() -> None:
    text = as_xml(("look", {"text": "12", "count": 12, "any": "plain"}))
    assert read(qwen_xml.DIALECT, list(text))[1] == [("look", {"text": "12", "count": 12, "any": "plain"})]


def test_the_template_tells_the_dialect() -> None:
    assert dialect_of('<tool_call>\n{"name": "f", "arguments": {}}') is qwen_json.DIALECT
    assert dialect_of("<tool_call>\n<function=f>") is qwen_xml.DIALECT
    assert dialect_of("{{ messages }}") is None
