"""What the OpenAI dialects cannot honour is refused by name, with the status and code that the client knows."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from server.harness import Running, ids, running
from strata.server.settings import ServerSettings

FAMILY = "A😀漢é🇨🇭 done"
HELLO = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(answers=[[*ids(FAMILY), 0]]) as up:
        yield up


def client(server: Running) -> openai.OpenAI:
    return server.client(openai.OpenAI, "/v1")


def chat(server: Running, **fields: Any) -> Any:
    return server.http.post("/v1/chat/completions", json={"messages": HELLO} | fields)


BAD = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x", "colour": 1}]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": None}]}]}, "messages"),
    ({"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "maybe"}, "tool_choice"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**64}, "seed"),
    ({"n": 0}, "n"),
    ({"n": 100}, "n"),
    ({"max_tokens": -5}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_tokens": 10**9}, "max_tokens"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"stop": ""}, "stop"),
    ({"logit_bias": {"999999": 5}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"abc": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 1e9}}, "logit_bias[5]"),
    ({"repetition_penalty": 0}, "repeat_penalty"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "logprobs"),
    ({"stream": False, "stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"colour": 1}}, "stream_options.colour"),
    ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"no_such_field": 1}, "no_such_field"),
    ({"reasoning_effort": "enormous"}, "reasoning_effort"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
    ({"chat_template_kwargs": {"no_such_switch": True}}, "chat_template_kwargs.no_such_switch"),
    ({"chat_template_kwargs": {"enable_thinking": "yes"}}, "chat_template_kwargs"),
]


@pytest.mark.parametrize(("fields", "param"), BAD)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_honoured_is_a_400_by_name(
    server: Running, fields: dict[str, Any], param: str, stream: bool
) -> None:
    """O-069: what is wrong with a streaming request is printed, and its stream never ends."""
    reply = chat(server, **({"stream": stream} | fields))
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [-1]}, "tokens"),
        ({"prompt": [10**6]}, "prompt"),
        ({"prompt": [[[1]]]}, "prompt[0][0]"),
        ({"prompt": ["x"] * 65}, "prompt"),
        ({}, "prompt"),
        ({"prompt": "x", "echo": True, "logprobs": 1}, "echo"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "best_of": 1, "n": 2}, "best_of"),
        ({"prompt": "x", "best_of": 21}, "best_of"),
        ({"prompt": "x", "best_of": 2, "stream": True}, "best_of"),
        ({"prompt": ["x"] * 4, "best_of": 20}, "prompt"),
        ({"prompt": "x", "stop_token_ids": [-1]}, "stop_token_ids"),
        ({"prompt": "x", "stop_token_ids": list(range(65))}, "stop_token_ids"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "logprobs": -1}, "logprobs"),
    ],
)
def test_bad_completions_are_400_by_name(server: Running, fields: dict[str, Any], param: str) -> None:
    reply = server.http.post("/v1/completions", json=fields)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_an_over_long_prompt_is_a_400_with_both_numbers(server: Running) -> None:
    reply = server.http.post("/v1/completions", json={"prompt": [5] * 600, "max_tokens": 1})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "600" in error["message"]
    assert "512" in error["message"]


def test_unknown_model_is_a_404(server: Running) -> None:
    assert chat(server, model="other").status_code == 404
    assert chat(server, model="other").json()["error"]["code"] == "model_not_found"
    assert server.http.get("/v1/models/other").status_code == 404


def test_errors_are_those_that_the_client_knows(server: Running) -> None:
    """Each by its class, with the field and the code."""
    api = client(server)

    def ask(api: openai.OpenAI = api, **fields: Any) -> openai.APIStatusError:
        with pytest.raises(openai.APIStatusError) as caught:
            api.chat.completions.create(**{"model": "tiny", "messages": HELLO, **fields})
        return caught.value

    wrong = ask(temperature=-1)
    assert isinstance(wrong, openai.BadRequestError)
    assert (wrong.param, wrong.code, wrong.type) == ("temperature", "invalid_value", "invalid_request_error")
    missing = ask(model="other")
    assert isinstance(missing, openai.NotFoundError) and missing.code == "model_not_found"
    with running(ServerSettings(api_key="k")) as up:
        locked = ask(client(up))
        assert isinstance(locked, openai.AuthenticationError) and locked.type == "authentication_error"
    with running(busy=True) as up:
        busy = ask(client(up), stream=True)
        assert isinstance(busy, openai.RateLimitError) and busy.code == "queue_full"
    with running(load_s=30, wait=False) as up:
        loading = ask(client(up))
        assert isinstance(loading, openai.InternalServerError) and loading.code == "engine_unavailable"
        assert (loading.status_code, loading.response.headers["retry-after"]) == (503, "2")


def test_a_busy_engine_is_a_429() -> None:
    with running(busy=True) as up:
        for stream in (False, True):
            reply = chat(up, stream=stream)
            assert reply.status_code == 429
            assert reply.headers["retry-after"]
