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


def test_open_webui(up: Running) -> None:
    """The list of models, then a streamed chat, then a title with a short limit; parameters as its page sets them."""
    assert [model["id"] for model in up.http.get("/v1/models").json()["data"]] == ["tiny"]
    chat = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "Hi"}], "seed": 0, "stop": []}
    assert sse(up.http.post("/v1/chat/completions", json=chat).text)[-1] == "[DONE]"
    title = chat | {"stream": False, "max_tokens": 50, "frequency_penalty": 0, "logit_bias": {}, "user": "u"}
    assert up.http.post("/v1/chat/completions", json=title).json()["choices"][0]["message"]["content"]
