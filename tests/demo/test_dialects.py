"""Every dialect against the demo model, engine and server in processes of their own, by the official clients.

The same chat is the same prompt in every dialect, so greedy answers are one and the same text.
"""

import math
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest

from server.harness import QUICK, Running, process_of, serving, sse
from strata.chat.conversation import load_conversation
from strata.checkpoint.demo import model_path
from strata.checkpoint.locate import open_checkpoint
from strata.core.log import Log
from strata.sampling.params import SamplingParams
from strata.server.engine_process import State
from strata.server.served import ServedModel

pytestmark = pytest.mark.timeout(120)
TOKENS = 24
SYSTEM = "You answer briefly."
TURNS: list[Any] = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "Tell me about it 😀."},
]


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    command = [sys.executable, "-m", "strata", "engine", "--parallel", "2", "--warm", "no", "--log-level", "warning"]
    with open_checkpoint(model_path(None)) as checkpoint:
        conversation = load_conversation(checkpoint, Log())
        model = ServedModel("demo", conversation, SamplingParams(), created=1)
        with serving(process_of(command, QUICK), model=model) as server:
            server.http.timeout = 60
            yield server


@pytest.fixture(scope="module")
def openai_client(up: Running) -> openai.OpenAI:
    return up.client(openai.OpenAI, "/v1")


@pytest.fixture(scope="module")
def anthropic_client(up: Running) -> anthropic.Anthropic:
    return up.client(anthropic.Anthropic)


@pytest.fixture(scope="module")
def expected(openai_client: openai.OpenAI) -> tuple[str, int, int]:
    """(text, prompt tokens, answer tokens) of the chat."""
    said = openai_client.chat.completions.create(
        model="demo", messages=[{"role": "system", "content": SYSTEM}, *TURNS], temperature=0, max_tokens=TOKENS
    )
    assert said.usage is not None
    text = said.choices[0].message.content or ""
    assert text
    return text, said.usage.prompt_tokens, said.usage.completion_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_the_chat(openai_client: openai.OpenAI, expected: tuple[str, int, int], stream: bool) -> None:
    ask: dict[str, Any] = {"model": "demo", "input": TURNS, "instructions": SYSTEM, "max_output_tokens": TOKENS}
    said: Any = openai_client.responses.create(**ask, temperature=0, stream=stream)
    said = list(said)[-1].response if stream else said
    assert (said.output_text, said.usage.input_tokens, said.usage.output_tokens) == expected
    assert said.status == ("incomplete" if said.usage.output_tokens == TOKENS else "completed")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("beta", [False, True])
def test_a_message_is_the_chat(
    anthropic_client: anthropic.Anthropic, expected: tuple[str, int, int], stream: bool, beta: bool
) -> None:
    messages: Any = anthropic_client.beta.messages if beta else anthropic_client.messages
    ask: dict[str, Any] = {"model": "demo", "messages": TURNS, "system": SYSTEM}
    more = {"max_tokens": TOKENS, "extra_body": {"temperature": 0}}
    if stream:
        with messages.stream(**ask, **more) as events:
            said = events.get_final_message()
    else:
        said = messages.create(**ask, **more)
    usage = said.usage
    counted = messages.count_tokens(**ask).input_tokens
    assert ("".join(b.text for b in said.content), counted, usage.output_tokens) == expected
    assert usage.input_tokens + usage.cache_read_input_tokens == counted
    assert said.stop_reason == ("max_tokens" if usage.output_tokens == TOKENS else "end_turn")


def test_a_streamed_chat_is_the_same(openai_client: openai.OpenAI, expected: tuple[str, int, int]) -> None:
    chunks = list(
        openai_client.chat.completions.create(
            model="demo",
            messages=[{"role": "system", "content": SYSTEM}, *TURNS],
            temperature=0,
            max_tokens=TOKENS,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    usage = chunks[-1].usage
    assert usage is not None
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert (text, usage.prompt_tokens, usage.completion_tokens) == expected


def drawn(up: Running, stream: bool = False, **fields: Any) -> list[str]:
    """The texts of an answer that leaves much to chance, by their index."""
    body = {"messages": TURNS, "temperature": 1.2, "max_tokens": 12, "stream": stream, **fields}
    reply = up.http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    if not stream:
        choices = reply.json()["choices"]
        assert [choice["index"] for choice in choices] == list(range(len(choices)))
        return [choice["message"]["content"] for choice in choices]
    texts: dict[int, str] = {}
    for event in sse(reply.text)[:-1]:
        choice = event["choices"][0]
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["delta"].get("content", "")
    return [texts[index] for index in sorted(texts)]


@pytest.mark.parametrize("stream", [False, True])
def test_o_070_n_answers_are_n_answers(up: Running, openai_client: openai.OpenAI, stream: bool) -> None:
    """O-070: n is accepted and ignored. Three do not fit the two slots at once."""
    three = drawn(up, stream, n=3, seed=1)
    assert len(set(three)) == 3
    assert three == [drawn(up, stream, seed=seed)[0] for seed in (1, 2, 3)], "the seed of each is known"
    said = openai_client.chat.completions.create(model="demo", messages=TURNS, n=3, max_tokens=5, seed=1)
    one = openai_client.chat.completions.create(model="demo", messages=TURNS, max_tokens=5, seed=1)
    assert said.usage is not None and one.usage is not None
    assert said.usage.completion_tokens == 15 and said.usage.prompt_tokens == one.usage.prompt_tokens
    for wrong in (0, 100):
        body = {"messages": TURNS, "n": wrong, "stream": stream}
        assert up.http.post("/v1/chat/completions", json=body).json()["error"]["param"] == "n"


def test_o_080_a_seed_is_an_answer(up: Running) -> None:
    """O-080: the same seed and prompt give different answers from one call to the next."""
    expected = drawn(up, seed=42)
    assert drawn(up, seed=42) == expected
    assert drawn(up, seed=42, cache_prompt=False) == expected
    drawn(up, seed=7, messages=[{"role": "user", "content": "Something else."}])
    assert drawn(up, seed=42) == expected
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(drawn, up, seed=seed, max_tokens=40) for seed in range(3)]
        assert pool.submit(drawn, up, seed=42).result() == expected
        assert all(other.result() for other in others)
    pid = up.engine.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    up.until(State.RESTARTING, State.LOADING)
    up.until(State.READY)
    assert drawn(up, seed=42) == expected, "after a restart too"
    free = [drawn(up)[0] for _ in range(3)]
    assert len(set(free)) > 1


def test_likelihoods_and_biases(up: Running, openai_client: openai.OpenAI) -> None:
    """Streamed and whole: the same likelihoods, which are those of a distribution; a ban is kept."""
    ask: dict[str, Any] = {"model": "demo", "messages": TURNS, "temperature": 0, "max_tokens": 6}
    likely: dict[str, Any] = {**ask, "logprobs": True, "top_logprobs": 5}
    content = openai_client.chat.completions.create(**likely).choices[0].logprobs.content
    chunks = openai_client.chat.completions.create(**likely, stream=True)
    streamed = [item for c in chunks if c.choices and c.choices[0].logprobs for item in c.choices[0].logprobs.content]
    assert [item.model_dump() for item in streamed] == [item.model_dump() for item in content]
    for item in content:
        assert item.top_logprobs[0].token == item.token, "greedy takes the likeliest"
        assert sum(math.exp(other.logprob) for other in item.top_logprobs) <= 1 + 1e-6
    first = up.http.post("/tokenize", json={"content": content[0].token}).json()["tokens"]
    banned = openai_client.chat.completions.create(**likely, logit_bias={str(token): -100 for token in first})
    assert banned.choices[0].logprobs.content[0].token != content[0].token
