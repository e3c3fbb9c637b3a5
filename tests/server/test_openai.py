"""Both OpenAI dialects over a real socket, with the openai client and with plain HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from server.harness import Running, ids, running, served, sse
from strata.sampling.params import SamplingParams

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
