"""Calls of tools in every dialect, streamed and whole, in both ways that Qwen models write them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chat.test_calls import WRITERS
from chat.tiny_tokenizer import tiny
from server.harness import TEMPLATE, Running, ids, running
from server.test_messages import client as anthropic_client
from server.test_openai import HELLO, client
from strata.chat.calls import Tool
from strata.chat.conversation import Conversation
from strata.chat.dialects import DIALECTS
from strata.chat.template import ChatTemplate
from strata.sampling.params import SamplingParams
from strata.server.served import ServedModel
from strata.server.tools import toolbox

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("look", {"text": 'é "漢😀"\n</tool_call>', "count": 2}),
    ("look", {"text": ""}),
    ("now", {}),
]
TOOLS: Any = [
    {"type": "function", "function": {"name": "look", "description": "d", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now"}},
]
ANTHROPIC_TOOLS: Any = [{"name": "look", "input_schema": SCHEMA}, {"name": "now", "input_schema": {"type": "object"}}]
RESPONSE_TOOLS: Any = [{"type": "function", **tool["function"]} for tool in TOOLS]


def model(dialect: str) -> ServedModel:
    """Its template teaches `dialect`."""
    mark = next(each.mark for each in DIALECTS if each.name == dialect)
    source = f"{{# <tool_call> {mark} #}}{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}" + TEMPLATE
    return ServedModel("tiny", Conversation(tiny(), ChatTemplate(source, "test")), SamplingParams(), created=1)


@contextmanager
def calling(dialect: str, text: str) -> Iterator[Running]:
    with running(model=model(dialect), answers=[[*ids(text), 0]], context=1024) as up:
        yield up


def answer(dialect: str) -> str:
    return "I look.\n" + "\n".join(WRITERS[dialect](call) for call in CALLS)


def chat(up: Running, stream: bool, **more: Any) -> tuple[str, list[tuple[str, Any]], str]:
    """(text, calls, why it ended)"""
    made = client(up).chat.completions.create(model="tiny", messages=HELLO, tools=TOOLS, stream=stream, **more)  # type: ignore[call-overload]
    if not stream:
        message = made.choices[0].message
        calls = message.tool_calls or []
        assert len({call.id for call in calls}) == len(calls)
        said = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
        return message.content or "", said, made.choices[0].finish_reason
    text, streamed, reason = "", [], ""
    for chunk in made:
        choice = chunk.choices[0]
        text += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            if call.id:
                assert call.index == len(streamed)
                streamed.append([call.function.name, ""])
            streamed[call.index][1] += call.function.arguments or ""
        reason = choice.finish_reason or reason
    return text, [(name, json.loads(made)) for name, made in streamed], reason


def messages(up: Running, stream: bool, **more: Any) -> tuple[str, list[tuple[str, Any]], str]:
    ask: dict[str, Any] = {"model": "tiny", "max_tokens": 400, "messages": HELLO, "tools": ANTHROPIC_TOOLS, **more}
    if stream:
        with anthropic_client(up).messages.stream(**ask) as events:
            said = events.get_final_message()
    else:
        said = anthropic_client(up).messages.create(**ask)  # type: ignore[assignment]
    calls = [(block.name, block.input) for block in said.content if block.type == "tool_use"]
    return "".join(b.text for b in said.content if b.type == "text"), calls, said.stop_reason or ""


def responses(up: Running, stream: bool, **more: Any) -> tuple[str, list[tuple[str, Any]], str]:
    ask: dict[str, Any] = {"model": "tiny", "input": "Hi", "tools": RESPONSE_TOOLS, **more}
    if stream:
        with client(up).responses.stream(**ask) as events:
            said: Any = events.until_done().get_final_response()
    else:
        said = client(up).responses.create(**ask)
    calls = [(item.name, json.loads(item.arguments)) for item in said.output if item.type == "function_call"]
    return said.output_text, calls, said.status


ALL = {"chat": (chat, "tool_calls"), "messages": (messages, "tool_use"), "responses": (responses, "completed")}


@pytest.mark.parametrize("dialect", ["qwen_json", "qwen_xml"])
def test_three_calls_in_one_answer(dialect: str) -> None:
    """O-063, O-083: only the first call is recognised, or characters of several tokens break its arguments."""
    with calling(dialect, answer(dialect)) as up:
        for ask, reason in ALL.values():
            for stream in (False, True):
                assert ask(up, stream) == ("I look.", CALLS, reason), (ask, stream)


def test_one_call_where_several_are_not_wanted() -> None:
    with calling("qwen_json", answer("qwen_json")) as up:
        for stream in (False, True):
            assert chat(up, stream, parallel_tool_calls=False)[1] == CALLS[:1]
            assert responses(up, stream, parallel_tool_calls=False)[1] == CALLS[:1]
            assert messages(up, stream, tool_choice={"type": "auto", "disable_parallel_tool_use": True})[1] == CALLS[:1]


def test_o_081_a_call_after_reasoning_and_a_malformed_one() -> None:
    """O-081: finish_reason tool_calls with an empty list after reasoning."""
    for dialect in ("qwen_json", "qwen_xml"):
        with calling(dialect, "hm\n</think>\n\n" + WRITERS[dialect](CALLS[0])) as up:
            for stream in (False, True):
                assert chat(up, stream, reasoning_effort="low") == ("", CALLS[:1], "tool_calls")
        broken = "<tool_call>\nnonsense\n</tool_call>"
        with calling(dialect, broken) as up:
            for stream in (False, True):
                assert chat(up, stream) == (broken, [], "stop")


def test_a_call_that_the_length_cuts() -> None:
    with calling("qwen_json", answer("qwen_json")) as up:
        for stream in (False, True):
            text, calls, reason = messages(
                up, stream, max_tokens=len(ids("I look.\n" + WRITERS["qwen_json"](CALLS[0]))) - 12
            )
            assert (text, [name for name, _ in calls], reason) == ("I look.", ["look"], "max_tokens")


def test_a_call_that_breaks_off_is_an_error() -> None:
    whole = WRITERS["qwen_json"](CALLS[0])
    with calling("qwen_json", whole[: len(whole) // 2]) as up:
        reply = up.http.post("/v1/chat/completions", json={"messages": HELLO, "tools": TOOLS})
        assert reply.status_code == 500 and "in the middle of a call" in reply.text


def test_without_tools_calls_are_text() -> None:
    text = WRITERS["qwen_json"](CALLS[0])
    with calling("qwen_json", text) as up:
        for ask in ({}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}):
            reply = up.http.post("/v1/chat/completions", json={"messages": HELLO} | ask).json()
            assert reply["choices"][0]["message"]["content"] == text


def test_a_choice_among_some_offers_those_or_forces_one_of_them() -> None:
    tools = [Tool("look"), Tool("now"), Tool("go")]

    def offered(mode: str) -> tuple[list[str], list[str]]:
        box = toolbox(tools, mode, ["now", "go"], True, ("tools", "tool_choice"))
        return [tool.name for tool in box.tools], [tool.name for tool in box.forced()]

    assert offered("auto") == (["now", "go"], [])
    assert offered("required") == (["look", "now", "go"], ["now", "go"])
    some = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "other"}}]}
    with calling("qwen_json", "x") as up:
        body = {"messages": HELLO, "tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": some}}
        refused = up.http.post("/v1/chat/completions", json=body)
        assert refused.status_code == 400 and "other" in refused.json()["error"]["message"]
        some["tools"] = [TOOLS[0]]
        assert up.http.post("/v1/chat/completions", json=body).status_code == 200


def test_what_cannot_be_called_is_refused_by_name() -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 3}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
    ]
    with calling("qwen_json", "x") as up:
        for fields, param in bad:
            for stream in (False, True):
                body = {"messages": HELLO, "stream": stream} | fields
                reply = up.http.post("/v1/chat/completions", json=body)
                assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), fields
    with running(answers=[ids("x")]) as up:
        reply = up.http.post("/v1/chat/completions", json={"messages": HELLO, "tools": TOOLS})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tools"), "its template knows none"


@pytest.mark.parametrize(
    "content", [None, "", [{"type": "text", "text": "a"}], "absent"], ids=["null", "empty", "parts", "absent"]
)
def test_o_073_turns_that_agents_send_back(content: Any) -> None:
    """O-073: a turn that has neither text nor calls makes the server refuse the whole chat."""
    turn: dict[str, Any] = {"role": "assistant"} if content == "absent" else {"role": "assistant", "content": content}
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"count": 1}'}}
    objects = {"id": "c", "type": "function", "function": {"name": "look", "arguments": {"count": 1}}}
    broken = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{"}}
    with calling("qwen_json", "x") as up:

        def ask(*more: Any) -> Any:
            turns = [*HELLO, *more, {"role": "user", "content": "?"}]
            return up.http.post("/v1/chat/completions", json={"messages": turns, "tools": TOOLS})

        assert ask(turn).status_code == 200
        for result in ("r", "", [{"type": "text", "text": "r"}]):
            made = {"role": "tool", "tool_call_id": "c", "content": result}
            assert ask(turn | {"tool_calls": [call]}, made).status_code == 200
        assert ask(turn | {"tool_calls": [objects]}).status_code == 200
        refused = ask(turn | {"tool_calls": [call, broken]})
        assert refused.status_code == 400 and "messages[1].tool_calls[1]" in refused.text


def test_o_079_tools_of_hosted_services_are_left_out_of_responses() -> None:
    """O-079: a client's own types of tools make the whole request fail."""
    with calling("qwen_json", WRITERS["qwen_json"](CALLS[0])) as up:
        ask = {
            "input": "Hi",
            "tools": [*RESPONSE_TOOLS, {"type": "web_search"}, {"type": "namespace", "name": "x"}],
            "client_metadata": {"a": "b"},
            "include": ["reasoning.encrypted_content"],
            "store": False,
            "prompt_cache_key": "k",
        }
        said = up.http.post("/v1/responses", json=ask).json()
        assert [tool["name"] for tool in said["tools"]] == ["look", "now"]
        assert [item["type"] for item in said["output"]] == ["function_call"]
        refused = up.http.post("/v1/responses", json=ask | {"previous_response_id": "x"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "previous_response_id")
        assert up.http.post("/v1/responses", json={}).status_code == 200, "the empty probe"
