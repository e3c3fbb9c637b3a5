"""OpenAI's responses over a real socket, with the openai client and with plain HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from server.harness import Running, ids, running
from server.test_messages import THOUGHT, prompt_of
from server.test_openai import FAMILY, client


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(answers=[[*ids(FAMILY), 0]]) as up:
        yield up


@pytest.fixture(scope="module")
def thinker() -> Iterator[Running]:
    with running(answers=[[*ids(THOUGHT), 0]]) as up:
        yield up


def post(server: Running, **fields: Any) -> Any:
    return server.http.post("/v1/responses", json={"input": "Hi"} | fields)


def test_a_response_through_the_client(server: Running) -> None:
    said = client(server).responses.create(
        model="tiny", input="Hi", instructions="Be brief.", temperature=0.5, metadata={"a": "b"}
    )
    assert said.output_text == FAMILY
    assert (said.status, said.temperature, said.metadata, said.instructions) == (
        "completed", 0.5, {"a": "b"}, "Be brief.",
    )  # fmt: skip
    assert said.usage is not None
    assert said.usage.output_tokens == len(ids(FAMILY))
    assert said.usage.input_tokens_details.cached_tokens == 2
    assert said.usage.total_tokens == said.usage.input_tokens + said.usage.output_tokens


def test_a_stream_through_the_client_is_put_together_to_the_same(thinker: Running) -> None:
    ask: dict[str, Any] = {"model": "tiny", "input": "Hi", "reasoning": {"effort": "high"}}
    whole = client(thinker).responses.create(**ask)
    with client(thinker).responses.stream(**ask) as stream:
        events = list(stream)
        said = stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))

    def parts(response: Any) -> list[Any]:
        return [(item.type, [part.text for part in item.content]) for item in response.output]

    assert parts(said) == parts(whole) == [("reasoning", ["hm"]), ("message", ["Hello"])]
    assert said.usage == whole.usage
    assert said.usage is not None
    assert said.usage.output_tokens_details.reasoning_tokens == len(ids("hm\n</think>"))


def test_every_part_begins_and_ends_in_order(thinker: Running) -> None:
    stream = client(thinker).responses.create(model="tiny", input="Hi", stream=True, reasoning={"effort": "low"})
    kinds = [event.type.removeprefix("response.") for event in stream]
    once = [kind for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind]

    def item(name: str) -> list[str]:
        part = ["content_part.added", f"{name}.delta", f"{name}.done", "content_part.done"]
        return ["output_item.added", *part, "output_item.done"]

    assert once == ["created", "in_progress", *item("reasoning_text"), *item("output_text"), "completed"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_limit_makes_it_incomplete(server: Running, stream: bool) -> None:
    """O-071: a limit that was hit is reported as a stop."""
    reply = client(server).responses.create(model="tiny", input="Hi", max_output_tokens=3, stream=stream)
    if stream:
        last = list(reply)[-1]
        assert last.type == "response.incomplete"
        reply = last.response
    assert reply.status == "incomplete"
    assert reply.incomplete_details.reason == "max_output_tokens"
    assert reply.usage.output_tokens == 3
    assert reply.output[-1].status == "incomplete"


def test_logprobs_and_carried_reasoning(thinker: Running, tmp_path: Path) -> None:
    include: Any = ["message.output_text.logprobs", "reasoning.encrypted_content"]
    said = client(thinker).responses.create(
        model="tiny", input="Hi", reasoning={"effort": "low"}, include=include, top_logprobs=2
    )
    thought, message = said.output
    likely = message.content[0].logprobs  # type: ignore[union-attr]
    assert bytes(b for item in likely for b in item.bytes).decode().endswith("Hello")
    assert all(len(item.top_logprobs) == 2 for item in likely)
    log = tmp_path / "lines"
    hidden = thought.encrypted_content  # type: ignore[union-attr]
    back = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": hidden}
    items = [{"role": "user", "content": "Hi"}, back, {"role": "assistant", "content": "Hello"}]
    items.append({"role": "user", "content": "?"})
    with running(log=str(log)) as up:
        assert post(up, input=items).status_code == 200
        damaged = post(up, input=[{**back, "encrypted_content": "strata:!"}])
        assert damaged.status_code == 400 and "input[0].encrypted_content" in damaged.text
    assert prompt_of(log)[-len(ids("<|im_start|>assistant\n")) :] == ids("<|im_start|>assistant\n")


def test_items_of_all_kinds_reach_the_prompt(tmp_path: Path) -> None:
    log = tmp_path / "lines"
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": "Look"},
        {"type": "message", "role": "assistant", "id": "m", "status": "completed",
         "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": json.dumps({"at": 1})},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "seen"}]},
    ]  # fmt: skip
    with running(log=str(log)) as up:
        assert post(up, input=items, instructions="Always.").status_code == 200
    text = (
        "<|im_start|>system\nAlways.<|im_end|>\n<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nLook"
        "<|im_end|>\n<|im_start|>assistant\nI look.<|im_end|>\n<|im_start|>tool\nseen<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert prompt_of(log) == ids(text)


BAD = [
    ({"input": []}, "messages"),
    ({"input": [{"role": "robot", "content": "x"}]}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": None}]}]}, "input"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
    ({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{"}]}, "input"),
    ({"previous_response_id": "x"}, "previous_response_id"),
    ({"conversation": "x"}, "conversation"),
    ({"background": True}, "background"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"max_output_tokens": 10**9}, "max_output_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"include": ["x"]}, "include"),
    ({"reasoning": {"effort": "enormous"}}, "reasoning.effort"),
    ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
    ({"no_such_field": 1}, "no_such_field"),
]


@pytest.mark.parametrize(("fields", "param"), BAD)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_honoured_is_a_400_by_name(
    server: Running, fields: dict[str, Any], param: str, stream: bool
) -> None:
    fields = fields if "stream_options" in fields else {"stream": stream} | fields
    reply = post(server, **fields)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param, reply.text


@pytest.mark.parametrize("ending", ["crash_after", "error_after"])
def test_a_failure_in_a_stream_raises_in_the_client(ending: str) -> None:
    """O-068: an error after the stream began looks like an empty answer."""
    with running(answers=[ids(FAMILY)], token_s=0.01, **{ending: 3}) as up:
        kinds = []
        with pytest.raises(openai.APIError):
            for event in client(up).responses.create(model="tiny", input="Hi", stream=True):
                kinds.append(event.type)
        assert kinds[-1] == "response.failed"
