"""Answers that must have a form, by the demo model over HTTP, with drafts, streamed and whole, several at once.

A small model writes nonsense; that it is well-formed nonsense is what is tested.
"""

import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import jsonschema
import openai
import pytest

from server.harness import QUICK, Running, process_of, serving
from strata.chat.conversation import load_conversation
from strata.checkpoint.demo import model_path
from strata.checkpoint.locate import open_checkpoint
from strata.core.log import Log
from strata.sampling.params import SamplingParams
from strata.server.served import ServedModel

pytestmark = pytest.mark.timeout(180)
ASK: list[Any] = [{"role": "user", "content": "Describe a cat."}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "likes": {"type": "array", "items": {"enum": ["fish", "milk", "sleep"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "description": 'Says "it" \\ </tool_call> 😀 ::= |',
                                      "parameters": {"type": "object", "properties": {
                                          "city": {"enum": ["Paris", "Ber\"lin\n"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "clock"}},
]  # fmt: skip


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    command = [sys.executable, "-m", "strata", "engine", "--parallel", "4", "--warm", "no", "--log-level", "warning"]
    with open_checkpoint(model_path(None)) as checkpoint:
        model = ServedModel("demo", load_conversation(checkpoint, Log()), SamplingParams(), created=1)
        with serving(process_of(command, QUICK), model=model) as server:
            server.http.timeout = 60
            yield server


def chat(up: Running, **fields: Any) -> Any:
    """The choice."""
    body = {"messages": ASK, "max_tokens": 200, "temperature": 1, "seed": 3, **fields}
    reply = up.http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]


def form(schema: dict[str, Any], strict: bool = True) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}


@pytest.mark.parametrize("temperature", [0, 1])
def test_an_answer_fits_its_schema_and_ends_by_itself(up: Running, temperature: int) -> None:
    found = chat(up, response_format=form(SCHEMA), temperature=temperature)
    jsonschema.validate(json.loads(found["message"]["content"]), SCHEMA)
    assert found["finish_reason"] == "stop"


def test_drafts_and_company_change_nothing(up: Running) -> None:
    asks = [{"response_format": form(SCHEMA), "seed": seed} for seed in range(3)]
    alone = [chat(up, **ask) for ask in asks]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda ask: chat(up, **ask), asks))
    assert [each["message"] for each in together] == [each["message"] for each in alone]
    assert len({each["message"]["content"] for each in alone}) > 1
    assert up.http.get("/v1/status").json()["engine"]["tokens"]["drafted"] > 0


def test_every_way_of_asking_for_a_form(up: Running) -> None:
    color = {"enum": ["red", "blue"]}
    wants: list[tuple[dict[str, Any], str]] = [
        ({"response_format": {"type": "json_object"}, "max_tokens": 40}, r"\{.*"),
        ({"json_schema": color}, r'"(red|blue)"'),
        ({"regex": r"(yes|no), \d{2}"}, r"(yes|no), \d{2}"),
        ({"grammar": 'root ::= "so " word+\nword ::= [a-c] "."'}, r"so ([a-c]\.)+"),
        ({"grammar": 'start: "so " /[a-c]/'}, r"so [a-c]"),
    ]
    for fields, pattern in wants:
        assert re.fullmatch(pattern, chat(up, **fields)["message"]["content"], re.DOTALL), fields
    text = up.http.post("/v1/completions", json={"prompt": "It is", "regex": " (red|blue)\\.", "max_tokens": 20}).json()
    assert text["choices"][0]["text"] in (" red.", " blue.") and text["choices"][0]["finish_reason"] == "stop"


def test_all_dialects_and_streams(up: Running) -> None:
    chunks = up.client(openai.OpenAI, "/v1").chat.completions.create(
        model="demo", messages=ASK, response_format=form(SCHEMA), stream=True, max_tokens=200  # type: ignore[call-overload]
    )  # fmt: skip
    jsonschema.validate(json.loads("".join(c.choices[0].delta.content or "" for c in chunks)), SCHEMA)
    text: Any = {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}}
    said = up.client(openai.OpenAI, "/v1").responses.create(
        model="demo", input="A cat.", text=text, max_output_tokens=200
    )
    jsonschema.validate(json.loads(said.output_text), SCHEMA)
    assert said.text is not None and said.text.format is not None and said.text.format.type == "json_schema"
    config: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
    told = up.client(anthropic.Anthropic).messages.create(
        model="demo", messages=ASK, max_tokens=200, output_config=config
    )
    jsonschema.validate(json.loads("".join(b.text for b in told.content if b.type == "text")), SCHEMA)


@pytest.mark.parametrize("stream", [False, True])
def test_o_086_reasoning_is_free_and_the_form_begins_after_it(up: Running, stream: bool) -> None:
    """O-086: the schema is applied to the thinking part: JSON lands in the reasoning, and the content is empty."""
    think = {"chat_template_kwargs": {"enable_thinking": True}, "response_format": form(SCHEMA)}
    if stream:
        reply = up.client(openai.OpenAI, "/v1").chat.completions.create(
            model="demo", messages=ASK, max_tokens=300, stream=True, response_format=form(SCHEMA),  # type: ignore[call-overload]
            extra_body={"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget": 20},
        )  # fmt: skip
        deltas = [chunk.choices[0].delta for chunk in reply]
        content = "".join(delta.content or "" for delta in deltas)
        thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    else:
        message = chat(up, **think, thinking_budget=20, max_tokens=300)["message"]
        content, thought = message["content"], message["reasoning_content"]
    jsonschema.validate(json.loads(content), SCHEMA)
    assert thought and not thought.startswith("{")
    closed = chat(up, **think, max_tokens=60)
    assert closed["finish_reason"] == "stop", "reasoning leaves room for the answer"
    jsonschema.validate(json.loads(closed["message"]["content"]), SCHEMA)
    free = {**think, "response_format": {"type": "text"}, "regex": "(yes|no)"}
    in_time = chat(up, **free, max_tokens=12)
    assert in_time["message"]["content"] in ("yes", "no") and in_time["finish_reason"] == "stop"
    cut = chat(up, **free, max_tokens=2)
    assert (cut["message"]["content"], cut["finish_reason"]) == ("", "length"), "too short for any answer"


def test_a_budget_of_reasoning_closes_it(up: Running) -> None:
    body = {"messages": ASK, "max_tokens": 60, "temperature": 0, "chat_template_kwargs": {"enable_thinking": True}}
    reply = up.http.post("/v1/chat/completions", json=body | {"thinking_budget": 7}).json()
    assert reply["choices"][0]["message"]["content"]
    assert 7 <= reply["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 12
    told = up.client(anthropic.Anthropic).messages.create(
        model="demo", messages=ASK, max_tokens=60, thinking={"type": "enabled", "budget_tokens": 5}
    )
    assert [block.type for block in told.content] == ["thinking", "text"]


@pytest.mark.parametrize("seed", range(2))
def test_o_082_o_084_a_call_is_forced(up: Running, seed: int) -> None:
    """O-082: a named choice is taken for auto. O-084: a description breaks the grammar of tools."""
    for choice, names in (
        ("required", {"weather", "clock"}),
        ({"type": "function", "function": {"name": "weather"}}, {"weather"}),
        ({"type": "function", "function": {"name": "clock"}}, {"clock"}),
    ):
        found = chat(up, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, seed=seed)
        (call,) = found["message"]["tool_calls"]
        assert call["function"]["name"] in names
        made = json.loads(call["function"]["arguments"])
        assert made == {} if call["function"]["name"] == "clock" else made["city"] in ("Paris", 'Ber"lin\n')
        assert found["finish_reason"] == "tool_calls"
    tools: Any = [{"name": "clock", "input_schema": {"type": "object", "properties": {}}}]
    for choice in ({"type": "any"}, {"type": "tool", "name": "clock"}):
        told = up.client(anthropic.Anthropic).messages.create(
            model="demo", messages=ASK, max_tokens=100, tools=tools,
            tool_choice={**choice, "disable_parallel_tool_use": True},  # type: ignore[arg-type]
        )  # fmt: skip
        assert [block.type for block in told.content] == ["tool_use"] and told.stop_reason == "tool_use"


WHERE = "response_format.json_schema.schema"
BAD: list[tuple[dict[str, Any], str]] = [
    ({"response_format": form({"properties": {"a": {"pattern": "("}}})}, f"{WHERE}.properties.a.pattern"),
    ({"response_format": form({"properties": {"a": {"not": {}}}})}, f"{WHERE}.properties.a.not"),
    ({"response_format": form({"$ref": "https://x.y/z"})}, f"{WHERE}.$ref"),
    ({"response_format": form({"type": "strin"})}, f"{WHERE}.type"),
    ({"response_format": form({"enum": ["x" * 60] * 30_000})}, WHERE),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, WHERE),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"regex": "("}, "regex"),
    ({"regex": "(?=a)b"}, "regex"),
    ({"grammar": "root ::= nowhere"}, "grammar"),
    ({"grammar": 'start: "x"', "regex": "y"}, "regex"),
    ({"regex": "a", "ignore_eos": True}, "ignore_eos"),
    ({"thinking_budget": -1}, "thinking_budget"),
    ({"response_format": form(SCHEMA), "max_tokens": 9}, "max_tokens"),
    ({"response_format": form(SCHEMA), "max_completion_tokens": 9}, "max_completion_tokens"),
    ({"tools": TOOLS, "tool_choice": "required", "max_tokens": 9}, "max_tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), BAD)
def test_o_085_what_cannot_be_enforced_is_a_400_that_names_the_place(
    up: Running, fields: dict[str, Any], param: str
) -> None:
    """O-085: a schema that fails to compile is ignored: 200 with free text."""
    for stream in (False, True):
        reply = up.http.post("/v1/chat/completions", json={"messages": ASK, "stream": stream} | fields)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), reply.text


@pytest.mark.parametrize("most", [24, 60])
def test_json_ends_before_the_length_cuts_it(up: Running, most: int) -> None:
    """Long strings, lists without an end, numbers, optional members that have members: all would go on."""
    part = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "string"}}, "required": ["x", "y"]}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"story": {"type": "string"}, "more": {"type": "array", "items": part}, "part": part},
        "required": ["story", "more"],
    }
    for seed in range(4):
        found = chat(up, response_format=form(schema), max_tokens=most, seed=seed)
        assert found["finish_reason"] == "stop"
        jsonschema.validate(json.loads(found["message"]["content"]), schema)
    text = {"prompt": "A cat:", "json_schema": schema, "max_tokens": most, "temperature": 1, "seed": 1}
    whole = up.http.post("/v1/completions", json=text).json()["choices"][0]
    assert whole["finish_reason"] == "stop" and json.loads(whole["text"])


LONG_CALL: list[Any] = [
    {"type": "function", "function": {"name": "note", "parameters": {"type": "object", "properties": {
        "text": {"type": "string"}, "marks": {"type": "array", "items": {"type": "string"}}}, "required": ["text"]}}},
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "note"}}])
def test_a_forced_call_ends_before_the_length_cuts_it(up: Running, choice: Any, stream: bool) -> None:
    """Text without an end, and calls without an end, several at once, with drafts, thinking first or not."""

    def ask(seed: int) -> tuple[str, list[Any], int]:
        made = up.client(openai.OpenAI, "/v1").chat.completions.create(
            model="demo", messages=ASK, tools=LONG_CALL, tool_choice=choice, seed=seed, temperature=1, stream=stream,
            max_tokens=60, extra_body={"chat_template_kwargs": {"enable_thinking": seed == 2}},
            **({"stream_options": {"include_usage": True}} if stream else {}),
        )  # fmt: skip
        if not stream:
            calls = [call.function for call in made.choices[0].message.tool_calls]
            return made.choices[0].finish_reason, calls, made.usage.completion_tokens
        chunks = list(made)
        parts = [call for chunk in chunks if chunk.choices for call in chunk.choices[0].delta.tool_calls or ()]
        calls = [part.function for part in parts if part.function.name]
        for call, index in zip(calls, sorted({part.index for part in parts}), strict=True):
            call.arguments = "".join(part.function.arguments or "" for part in parts if part.index == index)
        return chunks[-2].choices[0].finish_reason, calls, chunks[-1].usage.completion_tokens

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(ask, range(3)))
    for reason, calls, tokens in found:
        assert reason == "tool_calls" and calls and tokens <= 60
        for call in calls:
            jsonschema.validate(json.loads(call.arguments), LONG_CALL[0]["function"]["parameters"])
    assert found == [ask(seed) for seed in range(3)] or not stream, "company changes nothing"


def test_regular_expressions_and_grammars_end_in_time_where_an_end_is_found(up: Running) -> None:
    pattern = r"([a-z ]+, ){2}and [a-z ]+\."
    for seed in range(3):
        found = chat(up, regex=pattern, max_tokens=20, seed=seed)
        assert found["finish_reason"] == "stop" and re.fullmatch(pattern, found["message"]["content"])
    grammar = 'root ::= "(" part ("+" part)* ")"\npart ::= [0-9]+ | "(" part ")"'
    found = chat(up, grammar=grammar, max_tokens=20)
    assert found["finish_reason"] == "stop" and found["message"]["content"].count("(") == found["message"][
        "content"
    ].count(")")
    blind = r"[a-z]*([a-c][x-z]){4}[a-z]*\."
    assert chat(up, regex=blind, max_tokens=12)["finish_reason"] == "length", "no end is found: it is cut, and says so"


def test_without_strict_what_cannot_be_enforced_does_not_count(up: Running) -> None:
    schema = {**SCHEMA, "not": {"required": ["x"]}, "if": {}, "uniqueItems": True, "$ref": "https://x.y/z"}
    assert (
        up.http.post("/v1/chat/completions", json={"messages": ASK, "response_format": form(schema)}).status_code == 400
    )
    jsonschema.validate(json.loads(chat(up, response_format=form(schema, strict=False))["message"]["content"]), SCHEMA)
