"""Requests in the shapes that coding agents and chat pages send, written after their public use of the interfaces."""

from collections.abc import Iterator
from typing import Any

import pytest

from chat.test_calls import WRITERS
from server.harness import Running, sse
from server.test_tools import CALLS, SCHEMA, TOOLS, calling

DRAFT = "http://json-schema.org/draft-07/schema#"
ANSWER = "I look.\n" + WRITERS["qwen_json"](CALLS[0])


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    with calling("qwen_json", ANSWER) as server:
        yield server


def test_claude_code() -> None:
    """Beta path, system as blocks with cache marks, adaptive thinking, edits of the context, a title beside it."""
    ask: dict[str, Any] = {
        "model": "tiny",
        "max_tokens": 300,
        "stream": True,
        "system": [
            {"type": "text", "text": "You are an agent."},
            {"type": "text", "text": "Rules.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"count": 1}},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "seen"}]},
        ],
        "tools": [{"name": "look", "description": "d", "input_schema": {"$schema": DRAFT, **SCHEMA}}],
        "metadata": {"user_id": "u"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium"},
        "context_management": {"edits": []},
    }  # fmt: skip
    headers = {"anthropic-beta": "a,b", "anthropic-version": "2023-06-01", "x-api-key": "k", "x-app": "cli"}
    count = {name: ask[name] for name in ("model", "messages", "tools", "system")}
    with calling("qwen_json", "hm\n</think>\n\n" + ANSWER) as up:
        events = sse(up.http.post("/v1/messages?beta=true", json=ask, headers=headers).text)
        assert up.http.post("/v1/messages/count_tokens?beta=true", json=count).json()["input_tokens"] > 50
    starts = [e["content_block"]["type"] for e in events if e["type"] == "content_block_start"]
    assert starts == ["thinking", "text", "tool_use"] and events[-1]["type"] == "message_stop"


def test_claude_code_beside_its_chat(up: Running) -> None:
    """The probe of its start, a title as JSON, and a side question that may call nothing."""
    headers = {"anthropic-version": "2023-06-01", "Authorization": "Bearer k"}
    probe = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}], "metadata": {}}
    said = up.http.post("/v1/messages?beta=true", json=probe, headers=headers).json()
    assert (said["type"], said["stop_reason"], said["usage"]["output_tokens"]) == ("message", "max_tokens", 1)
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"],
              "additionalProperties": False}  # fmt: skip
    title = probe | {"max_tokens": 64, "temperature": 1, "tools": [], "stream": True,
                     "output_config": {"format": {"type": "json_schema", "schema": schema}}}  # fmt: skip
    assert sse(up.http.post("/v1/messages?beta=true", json=title, headers=headers).text)[-1]["type"] == "message_stop"
    tool = {"name": "look", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}
    aside = probe | {"max_tokens": 200, "tool_choice": {"type": "none"}, "tools": [tool]}
    refused = up.http.post("/v1/messages", json=aside | {"tools": [{"type": "web_search_20250305", "name": "s"}]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")
    assert [b["type"] for b in up.http.post("/v1/messages", json=aside).json()["content"]] == ["text"]


def test_codex(up: Running) -> None:
    """Responses: instructions, items with ids, functions that are not strict, own types of tools, nothing stored."""
    ask = {
        "model": "tiny",
        "instructions": "You are an agent.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Permissions."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "opaque"},
            {"type": "function_call", "id": "fc_1", "name": "look", "arguments": "{}", "call_id": "c1"},
            {"type": "function_call_output", "call_id": "c1", "output": "seen"},
        ],
        "tools": [
            {"type": "function", "name": "look", "description": "d", "strict": False, "parameters": SCHEMA},
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "none", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "text": {"verbosity": "medium"},
        "client_metadata": {"a": "b"},
    }
    events = sse(up.http.post("/v1/responses", json=ask, headers={"session_id": "s", "originator": "x"}).text)
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["message", "function_call"]
    assert events[-1]["type"] == "response.completed" and events[-1]["response"]["usage"]["total_tokens"]


def test_codex_goes_on_with_what_it_was_given(up: Running) -> None:
    """Its next request repeats the items of the answer, ids and all, and then adds what its tools said."""
    ask: dict[str, Any] = {
        "model": "tiny", "instructions": "You are an agent.", "store": False, "stream": True,
        "parallel_tool_calls": True,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]}],
        "tools": [{"type": "function", "name": "look", "description": "d", "strict": False, "parameters": SCHEMA}],
        "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium", "summary": "auto"},
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
    }  # fmt: skip
    with calling("qwen_json", "hm\n</think>\n\n" + ANSWER) as thinker:
        events = sse(thinker.http.post("/v1/responses", json=ask).text)
        items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
        result = {"type": "function_call_output", "call_id": items[-1]["call_id"], "output": "seen"}
        again = ask | {"input": [*ask["input"], *items, result]}
        assert sse(thinker.http.post("/v1/responses", json=again).text)[-1]["type"] == "response.completed"
        odd = ask | {"input": [*ask["input"], {"type": "web_search_call", "id": "w", "status": "completed"}]}
        refused = thinker.http.post("/v1/responses", json=odd)
        assert refused.status_code == 400 and "input[1]" in refused.json()["error"]["message"]


def test_opencode(up: Running) -> None:
    """Chats, streamed with usage, tools with extra keywords in their schemas, calls and results in the history."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"count":1}'}}
    ask = {
        "model": "tiny",
        "max_tokens": 300,
        "temperature": 0.55,
        "top_p": 1,
        "messages": [
            {"role": "system", "content": "You are an agent."},
            {"role": "user", "content": [{"type": "text", "text": "Look."}]},
            {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "hm"},
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        ],
        "tools": TOOLS,
        "tool_choice": "auto",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    events = sse(up.http.post("/v1/chat/completions", json=ask).text)
    assert events[-1] == "[DONE]" and events[-2]["usage"]["completion_tokens"]
    assert events[-3]["choices"][0]["finish_reason"] == "tool_calls"
    several = [{"role": "system", "content": "A title."}, {"role": "system", "content": "Short."}, ask["messages"][1]]
    title = {"model": "tiny", "messages": several, "max_tokens": 32, "stream": True, "prompt_cache_key": "s"}
    assert sse(up.http.post("/v1/chat/completions", json=title).text)[-1] == "[DONE]"
    beyond = up.http.post("/v1/chat/completions", json=title | {"max_tokens": 32_000}).json()["error"]
    assert beyond["param"] == "max_tokens" and "32000" in beyond["message"], "never less than was asked for"


def test_open_webui(up: Running) -> None:
    """The list of models, then a streamed chat, then a title with a short limit; parameters as its page sets them."""
    assert [model["id"] for model in up.http.get("/v1/models").json()["data"]] == ["tiny"]
    chat = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "Hi"}], "seed": 0, "stop": []}
    assert sse(up.http.post("/v1/chat/completions", json=chat).text)[-1] == "[DONE]"
    title = chat | {"stream": False, "max_tokens": 50, "frequency_penalty": 0, "logit_bias": {}, "user": "u"}
    assert up.http.post("/v1/chat/completions", json=title).json()["choices"][0]["message"]["content"]
    tools = chat | {"tools": TOOLS, "stream_options": {"include_usage": True}, "params": None}
    refused = up.http.post("/v1/chat/completions", json=tools | {"params": {"temperature": 1}})
    assert refused.json()["error"]["param"] == "params", "its own fields stay with it"
    tools.pop("params")
    events = sse(up.http.post("/v1/chat/completions", json=tools).text)
    assert events[-2]["usage"]["total_tokens"] and events[-3]["choices"][0]["finish_reason"] == "tool_calls"
    assert up.http.get("/v1/models", headers={"Authorization": "Bearer none"}).status_code == 200
