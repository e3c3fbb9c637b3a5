"""Field reports about streams and interfaces, each on every dialect that it is about; numbers as in the reports."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from server.harness import Running, ids, running, sse
from server.test_messages import prompt_of
from server.test_openai import HELLO

TEXT = "A😀漢é🇨🇭👨‍👩‍👧"
PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 100},
    "/v1/responses": {"input": "Hi"},
}
LIMITS = {"/v1/messages": "max_tokens", "/v1/responses": "max_output_tokens"}
EVERY = pytest.mark.parametrize("path", PATHS)
STREAM = pytest.mark.parametrize("stream", [False, True])


def ask(up: Running, path: str, stream: bool = False, **fields: Any) -> tuple[str, str]:
    """(text, why it ended in the dialect's word)"""
    reply = up.http.post(path, json={**PATHS[path], "stream": stream, **fields})
    assert reply.status_code == 200, reply.text
    if path == "/v1/responses":
        events = sse(reply.text) if stream else []
        whole = events[-1]["response"] if stream else reply.json()
        deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"] if stream else None
        text = "".join(part["text"] for item in whole["output"] for part in item.get("content", ()))
        assert deltas is None or "".join(deltas) == text
        return text, whole["status"]
    if path == "/v1/messages":
        if not stream:
            return "".join(b.get("text", "") for b in reply.json()["content"]), reply.json()["stop_reason"]
        events = sse(reply.text)
        text = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
        return text, next(e["delta"]["stop_reason"] for e in events if e["type"] == "message_delta")
    choices = [e["choices"][0] for e in sse(reply.text)[:-1]] if stream else reply.json()["choices"]
    parts = [c.get("delta") or c.get("message") or {"content": c.get("text")} for c in choices]
    return "".join(part.get("content") or "" for part in parts), choices[-1]["finish_reason"]


@EVERY
@STREAM
def test_o_062_characters_of_several_tokens(path: str, stream: bool) -> None:
    """O-062: they stream as replacement marks."""
    with running(answers=[[*ids(TEXT), 0], ids(TEXT)[:2]]) as up:
        assert ask(up, path, stream, seed=0)[0] == TEXT
        cut = ask(up, path, stream, seed=1)[0]
        assert TEXT.startswith(cut.rstrip("�")), "only a tail that was truly cut is marked"


@EVERY
@STREAM
def test_o_064_a_stop_string_over_borders(path: str, stream: bool) -> None:
    """O-064: its first part is already sent."""
    name = "stop_sequences" if path == "/v1/messages" else "stop"
    with running(answers=[ids("The quick brown fox jumps 😀 over")]) as up:
        if path == "/v1/responses":
            assert up.http.post(path, json=PATHS[path] | {"stop": ["x"]}).status_code == 400, "it has no such field"
            return
        for stops in (["own fox"], ["own fox", "own cat"], ["own fox", "n f", "wn fo"], ["😀"]):
            text, reason = ask(up, path, stream, **{name: stops})
            cuts = ["The quick brown fox jumps 😀 over".find(stop) for stop in stops]
            assert text == "The quick brown fox jumps 😀 over"[: max(cuts)] or text == "The quick brow"
            assert reason in ("stop", "stop_sequence")


@pytest.mark.parametrize("path", list(PATHS)[:2])
def test_o_065_counts_come_only_where_they_are_asked_for(path: str) -> None:
    """O-065: a chunk without choices, with the counts, is sent to clients that did not ask for it."""
    with running(answers=[ids("one two")]) as up:
        whole = up.http.post(path, json=PATHS[path]).json()["usage"]
        for options in ({}, {"stream_options": {"include_usage": False}}, {"stream_options": None}):
            events = sse(up.http.post(path, json={**PATHS[path], "stream": True, **options}).text)
            assert events[-1] == "[DONE]" and all(e["choices"] and "usage" not in e for e in events[:-1])
        asked = {**PATHS[path], "stream": True, "stream_options": {"include_usage": True}}
        *others, last, end = sse(up.http.post(path, json=asked).text)
        assert (last["choices"], last["usage"], end) == ([], whole, "[DONE]")
        assert all(e["choices"] and e["usage"] is None for e in others)
        api, made = up.client(openai.OpenAI, "/v1"), []
        if "chat" in path:
            for chunk in api.chat.completions.create(model="tiny", messages=HELLO, stream=True):  # type: ignore[call-overload]
                made.append(chunk.choices[0].delta.content or "")
        else:
            made = [chunk.choices[0].text for chunk in api.completions.create(model="tiny", prompt="Hi", stream=True)]
        assert "".join(made) == "one two"


@EVERY
@STREAM
def test_o_071_limits(path: str, stream: bool) -> None:
    """O-071: a limit is dropped, or reported as a stop."""
    name = LIMITS.get(path, "max_tokens")
    with running(answers=[ids("a b c d e f g h i j k l")]) as up:
        text, reason = ask(up, path, stream, **{name: 5})
        assert ids(text) == ids("a b c d e f g h i j k l")[:5]
        assert reason == {"/v1/messages": "max_tokens", "/v1/responses": "incomplete"}.get(path, "length")
        for wrong in (0, -5, 10**9, "many"):
            reply = up.http.post(path, json=PATHS[path] | {name: wrong, "stream": stream})
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, name), reply.text
        if path == "/v1/chat/completions":
            both = ask(up, path, stream, max_completion_tokens=5, max_tokens=9)[0]
            assert both == text, "max_completion_tokens wins"


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    with running(answers=[ids("ok")]) as server:
        yield server


@STREAM
def test_o_072_histories_without_a_question(up: Running, stream: bool) -> None:
    """O-072: a template demands a user's turn; what it cannot write is a 400 with its reason."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tool = [{"role": "system", "content": "s"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    tool.append({"role": "tool", "tool_call_id": "c", "content": "r"})
    alone = [{"role": "assistant", "content": "a"}]
    empty = [{"role": "user", "content": ""}]
    for messages, status in ((tool, 200), (alone, 200), ([], 400), (empty, 200)):
        reply = up.http.post("/v1/chat/completions", json={"messages": messages, "stream": stream})
        assert reply.status_code == status, reply.text


def test_o_074_an_answer_that_is_begun_goes_on(tmp_path: Path) -> None:
    """O-074: a prefix as a list of parts is dropped. The prefix is not repeated in the answer."""
    log = tmp_path / "lines"
    with running(answers=[ids(" is 42")], log=str(log)) as server:
        prompts = []
        for content in ("The answer", [{"type": "text", "text": "The answer"}]):
            begun = [*HELLO, {"role": "assistant", "content": content}]
            for path, more in (("/v1/chat/completions", {}), ("/v1/messages", {"max_tokens": 9})):
                reply = server.http.post(path, json={"messages": begun, **more})
                assert reply.status_code == 200 and " is 42" in reply.text
                prompts.append(prompt_of(log))
    assert prompts[1:] == prompts[:1] * 3
    assert prompts[0][-len(ids("The answer")) :] == ids("The answer")


@pytest.mark.parametrize("url", [None, "", "data:image/png;base64,!!", "http://127.0.0.1:9/x.png"])
def test_o_075_images_are_refused_by_name(up: Running, url: str | None) -> None:
    """O-075: an image on a text-only model gives a 500; nothing is ever fetched."""
    text = {"type": "text", "text": "What?"}
    parts: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"type": "image_url", "image_url": {"url": url}}),
        ("/v1/messages", {"type": "image", "source": {"type": "url", "url": url}}),
        ("/v1/responses", {"type": "input_image", "image_url": url}),
    ]
    for path, part in parts:
        name = "input" if "responses" in path else "messages"
        first = {**text, "type": "input_text"} if "responses" in path else text
        body = PATHS[path] | {name: [{"role": "user", "content": [first, part]}]}
        reply = up.http.post(path, json=body)
        assert reply.status_code == 400 and part["type"] in reply.json()["error"]["message"], reply.text


VALUES: list[dict[str, Any]] = [
    {"logit_bias": {"999999": 5}}, {"logit_bias": {"-1": 1}}, {"logit_bias": {"abc": 1}}, {"logit_bias": {"5": 1e9}},
    {"top_k": -1}, {"top_p": 1.5}, {"min_p": 2}, {"top_logprobs": 10**6}, {"seed": -1}, {"seed": 2**64},
    {"temperature": -1}, {"temperature": 1e30}, {"repetition_penalty": 0}, {"repetition_penalty": -1},
    {"repetition_penalty": 1e-30}, {"repetition_penalty": 1e30}, {"frequency_penalty": 1000},
]  # fmt: skip


@pytest.mark.parametrize("fields", VALUES)
@STREAM
def test_o_076_o_077_values_out_of_range(up: Running, fields: dict[str, Any], stream: bool) -> None:
    """O-076, O-077: a bad value crashes the engine for everybody, or makes numbers that are none."""
    reply = up.http.post("/v1/chat/completions", json={"messages": HELLO, "stream": stream, **fields})
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")
    assert ask(up, "/v1/chat/completions")[0] == "ok"


@pytest.mark.parametrize(
    ("text", "thinking", "expected"),
    [
        ("abc</think>\n\nHi", True, ("abc", "Hi")),
        ("abc", True, ("abc", "")),
        ("<think>abc</think>Hi", False, ("abc", "Hi")),
        ("Hi", False, ("", "Hi")),
        ("Hi <think>x</think>", False, ("", "Hi <think>x</think>")),
    ],
)
def test_o_087_a_closing_tag_alone(text: str, thinking: bool, expected: tuple[str, str]) -> None:
    """O-087: the prompt has opened <think>, so all of the answer goes to the content."""
    pieces = [token for letter in text for token in ids(letter)]
    for tokens in (ids(text), pieces):
        with running(answers=[tokens]) as server:
            body = {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": thinking}}
            message = server.http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
            assert (message.get("reasoning_content", ""), message["content"]) == expected
            events = sse(server.http.post("/v1/chat/completions", json=body | {"stream": True}).text)[:-1]
            deltas = [event["choices"][0]["delta"] for event in events]
            streamed = ["".join(d.get(name, "") for d in deltas) for name in ("reasoning_content", "content")]
            assert tuple(streamed) == expected
            switch = {"type": "enabled", "budget_tokens": 90} if thinking else {"type": "disabled"}
            told = server.http.post("/v1/messages", json=PATHS["/v1/messages"] | {"thinking": switch}).json()
            assert "".join(b.get("thinking", "") for b in told["content"]) == expected[0]
