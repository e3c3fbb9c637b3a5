"""Both OpenAI dialects over a real socket, with the openai client and with plain HTTP."""
# ruff: noqa: E501

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from server.harness import Running, ids, running, served, sse
from strata.sampling.params import SamplingParams
from strata.server.engine_process import State
from strata.server.settings import ServerSettings

FAMILY = "A😀漢é🇨🇭 done"
HELLO = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(answers=[[*ids(FAMILY), 0]]) as up:
        yield up


@pytest.fixture(scope="module")
def seeds() -> Iterator[Running]:
    with running(answers=[ids("zero"), ids("one"), ids("two")]) as up:
        yield up


def client(server: Running) -> openai.OpenAI:
    return server.client(openai.OpenAI, "/v1")


def chat(server: Running, **fields: Any) -> Any:
    return server.http.post("/v1/chat/completions", json={"messages": HELLO} | fields)


def test_chat_through_the_openai_client(server: Running) -> None:
    answer = client(server).chat.completions.create(model="tiny", messages=HELLO, temperature=0.5)  # type: ignore[call-overload]
    assert answer.choices[0].message.content == FAMILY
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == len(ids(FAMILY))
    assert answer.usage.prompt_tokens_details.cached_tokens == 2
    assert answer.timings["predicted_n"] == len(ids(FAMILY))
    assert answer.timings["predicted_ms"] == 500


def test_an_answer_goes_on_past_the_end_of_text(server: Running) -> None:
    """The id that ends the text is a token like any other when it is asked for."""
    end = len(ids(FAMILY))
    for path, prompt in (("chat/completions", {"messages": HELLO}), ("completions", {"prompt": "Hi"})):
        asked = {**prompt, "max_tokens": end + 1}
        for ignored in (False, True):
            reply = server.http.post(f"/v1/{path}", json=asked | {"ignore_eos": ignored}).json()
            assert reply["usage"]["completion_tokens"] == end + ignored


def test_streaming_through_the_openai_client(server: Running) -> None:
    stream = client(server).chat.completions.create(
        model="default", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )  # type: ignore[call-overload]
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == FAMILY
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == chunks[-1].usage.prompt_tokens + len(ids(FAMILY))


def test_completions_through_the_openai_client(server: Running) -> None:
    api = client(server)
    assert api.completions.create(model="tiny", prompt="x").choices[0].text == FAMILY
    streamed = api.completions.create(model="tiny", prompt=[5, 6, 7], stream=True)
    assert "".join(c.choices[0].text for c in streamed) == FAMILY
    many = api.completions.create(model="tiny", prompt=["a", "b"], n=2)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    assert many.usage is not None
    assert many.usage.completion_tokens == 4 * len(ids(FAMILY))


def test_usage_chunk_only_when_asked_for(server: Running) -> None:
    for options in ({}, {"stream_options": {"include_usage": False}}):
        events = sse(chat(server, stream=True, **options).text)
        assert events[-1] == "[DONE]"
        assert all(e["choices"] and "usage" not in e for e in events[:-1])
    events = sse(chat(server, stream=True, stream_options={"include_usage": True}).text)
    assert [bool(e["choices"]) for e in events[:-1]] == [True] * (len(events) - 2) + [False]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_over_borders(path: str, stream: bool) -> None:
    answer = ids("The quick brown fox jumps over")
    prompt: dict[str, Any] = {"messages": HELLO} if "chat" in path else {"prompt": "x"}
    with running(answers=[answer]) as up:
        for stop in ("own fox", ["own cat", "own fox"], ["n f", "own fox"]):
            reply = up.http.post(path, json=prompt | {"stop": stop, "stream": stream})
            if stream:
                choices = [e["choices"][0] for e in sse(reply.text)[:-1]]
                text = "".join(c["delta"].get("content", "") if "delta" in c else c["text"] for c in choices)
            else:
                choices = reply.json()["choices"]
                text = choices[0]["message"]["content"] if "chat" in path else choices[0]["text"]
            assert text == ("The quick brow" if isinstance(stop, list) and "n f" in stop else "The quick br")
            assert choices[-1]["finish_reason"] == "stop"
            if not stream:
                assert reply.json()["usage"]["completion_tokens"] < len(answer)


def test_n_answers_with_consecutive_seeds(seeds: Running) -> None:
    body = chat(seeds, n=3, seed=3, temperature=1).json()
    assert [c["message"]["content"] for c in body["choices"]] == ["zero", "one", "two"]
    assert [c["index"] for c in body["choices"]] == [0, 1, 2]
    total = sum(len(ids(t)) for t in ("zero", "one", "two"))
    assert body["usage"]["completion_tokens"] == total
    texts = {0: "", 1: "", 2: ""}
    for event in sse(chat(seeds, n=3, seed=3, stream=True).text)[:-1]:
        choice = event["choices"][0]
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == {0: "zero", 1: "one", 2: "two"}


def test_unseeded_answers_differ_by_seed_and_seeded_ones_do_not(tmp_path: Path) -> None:
    log = tmp_path / "lines"
    with running(log=str(log)) as up:
        for fields in ({}, {}, {"seed": 5}, {"seed": 5}):
            chat(up, temperature=1, **fields)
    seeds = [w for line in log.read_text().splitlines() for w in line.split() if w.startswith("seed=")]
    assert len(set(seeds[:2])) == 2
    assert seeds[2:] == ["seed=5", "seed=5"]


def test_every_setting_reaches_the_engine(tmp_path: Path) -> None:
    log = tmp_path / "lines"
    settings = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.05,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "repeat_penalty": 1.1,
        "seed": 9,
    }
    with running(log=str(log)) as up:
        assert chat(up, **settings, logit_bias={"5": -100}, max_completion_tokens=4, max_tokens=9).status_code == 200
    words = log.read_text().splitlines()[0].split()
    assert words[2] == "4"
    assert {f"{k}={v}" for k, v in settings.items()} <= set(words)
    assert "logit_bias=5:-100.0" in words
    assert "stop=0,2" in words


def test_defaults_hold_where_nothing_is_asked(tmp_path: Path) -> None:
    log = tmp_path / "lines"
    model = served(max_tokens=11, seed=4)
    model = type(model)(**{f: getattr(model, f) for f in model.__slots__} | {"defaults": SamplingParams(top_k=3)})
    with running(model=model, log=str(log)) as up:
        chat(up)
        chat(up, top_k=0)
    first, second = [line for line in log.read_text().splitlines() if line.startswith("GEN")]
    assert first.split()[2] == "11"
    assert "top_k=3" in first
    assert "seed=4" in first
    assert "top_k" not in second


def test_reasoning_is_split_off() -> None:
    opened = ids("hm\n</think>\n\nHello")
    with running(answers=[opened]) as up:
        for fields in (
            {"reasoning_effort": "high"},
            {"chat_template_kwargs": {"enable_thinking": True}},
        ):
            message = chat(up, **fields).json()["choices"][0]["message"]
            assert (message["reasoning_content"], message["content"]) == ("hm", "Hello")
        deltas = [e["choices"][0]["delta"] for e in sse(chat(up, reasoning_effort="low", stream=True).text)[:-1]]
        assert "".join(d.get("reasoning_content", "") for d in deltas) == "hm"
        assert "".join(d.get("content", "") for d in deltas) == "Hello"
        message = chat(up, reasoning_effort="none").json()["choices"][0]["message"]
        assert message["content"].startswith("hm\n</think>")


def test_logprobs(server: Running) -> None:
    content = chat(server, logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
    assert len(content) == len(ids(FAMILY))
    assert bytes(b for item in content for b in item["bytes"]).decode() == FAMILY
    assert [len(item["top_logprobs"]) for item in content] == [2] * len(content)
    events = sse(chat(server, logprobs=True, stream=True).text)[:-1]
    streamed = [i for e in events if e["choices"][0]["logprobs"] for i in e["choices"][0]["logprobs"]["content"]]
    assert [i["bytes"] for i in streamed] == [i["bytes"] for i in content]
    old = server.http.post("/v1/completions", json={"prompt": "x", "logprobs": 1}).json()["choices"][0]["logprobs"]
    assert len(old["tokens"]) == len(old["token_logprobs"]) == len(old["text_offset"]) == len(content)
    assert chat(server).json()["choices"][0]["logprobs"] is None


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


def test_fields_that_ask_for_nothing_are_accepted(server: Running) -> None:
    harmless = {
        "user": "u",
        "metadata": {},
        "store": True,
        "tools": [],
        "response_format": {"type": "text"},
        "seed": None,
        "prediction": {"type": "content", "content": "x"},
    }
    assert chat(server, **harmless, model="tiny").status_code == 200


def test_text_parts_and_developer_turns(tmp_path: Path) -> None:
    log = tmp_path / "lines"
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": ""},
    ]
    with running(log=str(log)) as up:
        assert up.http.post("/v1/chat/completions", json={"messages": messages}).status_code == 200
    text = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
    )
    words = log.read_text().splitlines()[0].split()
    assert [word for word in words[3:] if "=" not in word][: len(ids(text))] == [str(i) for i in ids(text)]


def test_where_prompts_may_part_is_told_to_the_engine_unless_nothing_is_to_be_kept(tmp_path: Path) -> None:
    log = tmp_path / "lines"
    chat = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}
    prompt = ids("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    end, opener = ids("<|im_end|>")[0], ids("<tool_call>")[0]
    with running(log=str(log)) as up:
        for body in (chat, chat | {"cache_prompt": False}):
            assert up.http.post("/v1/chat/completions", json=body).status_code == 200
        for body in ({"prompt": prompt}, {"prompt": prompt, "cache_prompt": False}):
            assert up.http.post("/v1/completions", json=body).status_code == 200
    sent = [line.split() for line in log.read_text().splitlines() if line.startswith("GEN")]
    marks = ",".join(str(place + 1) for place, token in enumerate(prompt) if token == end)
    for words in sent[::2]:
        assert f"marks={marks}" in words and f"openers={opener}" in words and "cache=0" not in words
    for words in sent[1::2]:
        assert "cache=0" in words and not any(word.startswith(("marks", "openers")) for word in words)


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


@pytest.mark.parametrize("ending", ["crash_after", "fatal_after", "error_after"])
def test_a_failure_in_a_stream_is_an_error_event(ending: str) -> None:
    with running(answers=[ids(FAMILY)], token_s=0.01, **{ending: 3}) as up:
        events = sse(chat(up, stream=True).text)
        assert events[-1] != "[DONE]"
        assert events[-1]["error"]["message"]
        up.until(State.READY)
        with pytest.raises(openai.APIError):
            for _ in client(up).chat.completions.create(model="tiny", messages=HELLO, stream=True):  # type: ignore[call-overload]
                pass
        up.until(State.READY)
        assert chat(up).status_code in {500, 503}


def test_after_a_crash_the_next_request_is_served(tmp_path: Path) -> None:
    with running(answers=[ids(FAMILY)], crash_after=2, crash_once=str(tmp_path / "crashed")) as up:
        assert chat(up).status_code == 503
        up.until(State.READY)
        assert chat(up).json()["choices"][0]["message"]["content"] == FAMILY
        assert up.http.get("/v1/status").json()["restarts"] == 1


def raw_request(server: Running, fields: dict[str, Any]) -> socket.socket:
    body = json.dumps({"messages": HELLO} | fields).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("moment", ["at once", "while the prompt is read", "in the answer"])
def test_a_client_that_leaves_ends_its_request(stream: bool, moment: str, tmp_path: Path) -> None:
    log = tmp_path / "lines"
    prompt_s = 30.0 if moment == "while the prompt is read" else 0.0
    with running(answers=[[65] * 500], token_s=0.05, prompt_s=prompt_s, log=str(log)) as up:
        connection = raw_request(up, {"stream": stream})
        if moment != "at once":
            while not log.exists():
                time.sleep(0.01)
        if moment == "in the answer" and stream:
            assert b"200 OK" in connection.recv(65536)
        connection.close()
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            status = up.http.get("/v1/status").json()
            if log.exists() and "STOP" in log.read_text() and not status["engine"]["running"]:
                break
            if moment == "at once" and not log.exists() and not status["requests"] and time.monotonic() > deadline - 14:
                break
            time.sleep(0.02)
        assert up.http.get("/v1/status").json()["requests"] == 0
        assert up.http.get("/v1/status").json()["engine"]["running"] == 0


def test_silence_gets_keep_alive_comments() -> None:
    with running(ServerSettings(keep_alive_s=0.05), prompt_s=1.0) as up:
        text = chat(up, stream=True).text
        assert text.count(": keep-alive") >= 2
        assert sse(text)[-1] == "[DONE]"
