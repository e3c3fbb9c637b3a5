"""Anthropic's messages over a real socket, with the anthropic client and with plain HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from server.harness import Running, ids, running
from server.test_openai import FAMILY, HELLO
from strata.server.settings import ServerSettings

ASK: dict[str, Any] = {"model": "tiny", "max_tokens": 64, "messages": HELLO}
THOUGHT = "hm\n</think>\n\nHello"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(answers=[[*ids(FAMILY), 0]]) as up:
        yield up


@pytest.fixture(scope="module")
def thinker() -> Iterator[Running]:
    with running(answers=[[*ids(THOUGHT), 0]]) as up:
        yield up


def client(server: Running) -> anthropic.Anthropic:
    return server.client(anthropic.Anthropic)


def post(server: Running, path: str = "/v1/messages", **fields: Any) -> Any:
    return server.http.post(path, json=ASK | fields)


def test_a_message_through_the_client(server: Running) -> None:
    said = client(server).messages.create(**ASK, system="Be brief.", extra_body={"temperature": 0.5, "top_k": 4})
    assert [block.text for block in said.content if block.type == "text"] == [FAMILY]
    assert (said.role, said.model, said.stop_reason, said.stop_sequence) == ("assistant", "tiny", "end_turn", None)
    assert said.usage.output_tokens == len(ids(FAMILY))
    assert said.usage.cache_read_input_tokens == 2
    asked = client(server).messages.count_tokens(model="tiny", messages=HELLO, system="Be brief.")  # type: ignore[arg-type]
    assert asked.input_tokens == said.usage.input_tokens + 2


def test_a_stream_through_the_client_is_put_together_to_the_same(server: Running) -> None:
    whole = client(server).messages.create(**ASK)
    with client(server).messages.stream(**ASK) as stream:
        texts = list(stream.text_stream)
        said = stream.get_final_message()
    assert "".join(texts) == FAMILY
    assert all("�" not in text for text in texts)
    assert told(said) == told(whole)


def test_the_beta_path_is_the_same(server: Running) -> None:
    said = client(server).beta.messages.create(**ASK, betas=["interleaved-thinking-2025-05-14"])
    assert [block.text for block in said.content if block.type == "text"] == [FAMILY]
    assert post(server, "/v1/messages?beta=true").status_code == 200
    counted = client(server).beta.messages.count_tokens(model="tiny", messages=HELLO)  # type: ignore[arg-type]
    assert counted.input_tokens > 2


def told(said: Any) -> Any:
    """What does not depend on how a message came."""
    blocks = [block.model_dump(exclude={"parsed_output"}) for block in said.content]
    return blocks, said.stop_reason, said.usage.output_tokens, said.usage.input_tokens


def events_of(server: Running, **fields: Any) -> list[Any]:
    return list(client(server).messages.create(**ASK, stream=True, **fields))


def test_blocks_come_one_after_the_other(thinker: Running) -> None:
    """O-078: thinking is sent into a block of text, and clients reject the stream."""
    events = events_of(thinker, thinking={"type": "enabled", "budget_tokens": 32})
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    open_block, seen = None, []
    for event in events[1:-2]:
        if event.type == "content_block_start":
            assert open_block is None and event.index == len(seen)
            open_block = event.content_block.type
            seen.append(open_block)
        elif event.type == "content_block_stop":
            assert open_block is not None and event.index == len(seen) - 1
            open_block = None
        else:
            allowed = {"thinking": {"thinking_delta", "signature_delta"}, "text": {"text_delta"}}
            assert event.type == "content_block_delta" and event.delta.type in allowed[open_block or ""]
    assert (open_block, seen) == (None, ["thinking", "text"])
    assert (events[-2].delta.stop_reason, events[-2].usage.output_tokens) == ("end_turn", len(ids(THOUGHT)))


@pytest.mark.parametrize("display", ["summarized", "omitted"])
def test_thinking_is_a_block_of_its_own(thinker: Running, display: str) -> None:
    thinking: Any = {"type": "enabled", "budget_tokens": 32, "display": display}
    said = client(thinker).messages.create(**ASK, thinking=thinking)
    thought, text = said.content
    assert thought.type == "thinking" and text.type == "text"
    assert thought.thinking == ("hm" if display == "summarized" else "")
    assert thought.signature and text.text == "Hello"
    details = said.usage.output_tokens_details
    assert details is not None
    assert details.thinking_tokens == len(ids("hm\n</think>"))
    with client(thinker).messages.stream(**ASK, thinking=thinking) as stream:
        assert told(stream.get_final_message()) == told(said)
    plain = client(thinker).messages.create(**ASK, thinking={"type": "disabled"})
    assert [block.type for block in plain.content] == ["text"]


@pytest.mark.parametrize("stream", [False, True])
def test_why_it_ended(stream: bool) -> None:
    answer = ids("The quick brown fox jumps over")

    def ask(up: Running, **fields: Any) -> tuple[str, Any, Any]:
        if not stream:
            said = client(up).messages.create(**ASK | fields)
        else:
            with client(up).messages.stream(**ASK | fields) as events:
                said = events.get_final_message()
        return "".join(b.text for b in said.content if b.type == "text"), said.stop_reason, said.stop_sequence

    with running(answers=[answer]) as up:
        assert ask(up, stop_sequences=["own cat", "own fox"]) == ("The quick br", "stop_sequence", "own fox")
        text, reason, stop = ask(up, max_tokens=3)
        assert ids(text) == answer[:3] and (reason, stop) == ("max_tokens", None)
        assert ask(up) == ("The quick brown fox jumps over", "end_turn", None)


def prompt_of(log: Path) -> list[int]:
    line = next(line for line in reversed(log.read_text().splitlines()) if line.startswith("GEN"))
    return [int(word) for word in line.split()[3:] if "=" not in word]


def test_blocks_of_all_kinds_reach_the_prompt(tmp_path: Path) -> None:
    log = tmp_path / "lines"
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "redacted_thinking", "data": "y"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "seen"}]},
                {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True},
                {"type": "text", "text": "And?"},
            ],
        },
    ]
    with running(log=str(log)) as up:
        system = [{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}}]
        assert post(up, messages=messages, system=system).status_code == 200
    text = (
        "<|im_start|>system\nBe<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\nI look.<|im_end|>\n"
        "<|im_start|>tool\nseen<|im_end|>\n<|im_start|>tool\nError: no<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert prompt_of(log) == ids(text)


BAD = [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages.0.content.0"),
    ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, "messages.0.content.0"),
    ({"messages": [{"role": "user", "content": "x", "colour": 1}]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages.0.content.0.tool_use_id"),
    (
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": 3}]}]},
        "messages.0.content.0.input",
    ),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 10**9}, "max_tokens"),
    ({"max_tokens": None}, "max_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "loud"}}, "thinking.type"),
    ({"thinking": {"type": "adaptive", "display": "loud"}}, "thinking.display"),
    ({"output_config": {"effort": "enormous"}}, "output_config.effort"),
    ({"output_config": {"colour": 1}}, "output_config.colour"),
    ({"mcp_servers": [{"name": "x"}]}, "mcp_servers"),
    ({"container": "c"}, "container"),
    ({"no_such_field": 1}, "no_such_field"),
]


@pytest.mark.parametrize(("fields", "param"), BAD)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_honoured_is_a_400_by_name(
    server: Running, fields: dict[str, Any], param: str, stream: bool
) -> None:
    reply = post(server, **{"stream": stream} | fields)
    assert reply.status_code == 400, reply.text
    assert (reply.json()["type"], reply.json()["error"]["type"]) == ("error", "invalid_request_error")
    assert reply.json()["error"]["param"] == param, reply.text


def test_errors_have_the_form_that_the_client_knows(server: Running) -> None:
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        client(server).messages.create(**ASK, extra_body={"temperature": -1})
    with pytest.raises(anthropic.NotFoundError, match="other"):
        client(server).messages.create(**ASK | {"model": "other"})
    with running(ServerSettings(api_key="k")) as up, pytest.raises(anthropic.AuthenticationError, match="key"):
        client(up).messages.create(**ASK)
    with running(busy=True) as up, pytest.raises(anthropic.RateLimitError):
        client(up).messages.create(**ASK)
    missing = server.http.get("/v1/messages/x")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize("ending", ["crash_after", "error_after"])
def test_a_failure_in_a_stream_raises_in_the_client(ending: str) -> None:
    """O-068: an error after the stream began looks like an empty answer."""
    with running(answers=[ids(FAMILY)], token_s=0.01, **{ending: 3}) as up, pytest.raises(anthropic.APIError):
        events_of(up)
