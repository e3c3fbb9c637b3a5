"""Every dialect against the demo model, engine and server in processes of their own, by the official clients.

The same chat is the same prompt in every dialect, so greedy answers are one and the same text.
"""

import sys
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from server.harness import QUICK, Running, process_of, serving
from strata.chat.conversation import load_conversation
from strata.checkpoint.demo import model_path
from strata.checkpoint.locate import open_checkpoint
from strata.core.log import Log
from strata.sampling.params import SamplingParams
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
