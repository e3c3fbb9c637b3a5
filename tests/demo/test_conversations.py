"""Conversations with the demo model over HTTP, server and engine in processes of their own: what is not read again.

One server for all: what a test needs of it, it asks for itself.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from server.harness import QUICK, Running, process_of, serving
from strata.chat.conversation import Conversation, Turn, load_conversation
from strata.checkpoint.demo import model_path
from strata.checkpoint.locate import open_checkpoint
from strata.core.log import Log
from strata.runtime.keeping import GRID
from strata.sampling.params import SamplingParams
from strata.server.served import ServedModel

pytestmark = pytest.mark.timeout(120)
GREEDY = {"temperature": 0.0, "max_tokens": 12}
Messages = list[dict[str, str]]


@pytest.fixture(scope="module")
def conversation() -> Iterator[Conversation]:
    with open_checkpoint(model_path(None)) as checkpoint:
        yield load_conversation(checkpoint, Log())


@pytest.fixture(scope="module")
def up(conversation: Conversation) -> Iterator[Running]:
    command = [sys.executable, "-m", "strata", "engine", "--parallel", "2", "--warm", "no", "--log-level", "warning"]
    model = ServedModel("demo", conversation, SamplingParams(), created=1)
    with serving(process_of(command, QUICK), model=model) as server:
        server.http.timeout = 60
        yield server


def text(tokens: int, salt: str) -> str:
    """Some lines of about so many tokens."""
    return "\n".join(f"{salt} {i}: what was said about the {i * 7 % 40}th" for i in range(tokens // 14))


def ask(up: Running, messages: Sequence[Mapping[str, str]], **more: Any) -> tuple[str, int, int]:
    """(the answer, prompt tokens, cached tokens)"""
    reply = up.http.post("/v1/chat/completions", json={"messages": list(messages)} | GREEDY | more)
    assert reply.status_code == 200, reply.text
    body = reply.json()
    usage, timings = body["usage"], body["timings"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert timings["cache_n"] == cached and timings["prompt_n"] == usage["prompt_tokens"] - cached
    message = body["choices"][0]["message"]
    return message.get("reasoning_content", "") + message["content"], usage["prompt_tokens"], cached


def shared(conversation: Conversation, one: Messages, other: Messages) -> int:
    """Tokens that the prompts of two conversations begin with together."""
    first, second = (conversation.prompt([Turn(**turn) for turn in turns]).tokens for turns in (one, other))
    return next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)


def test_a_long_conversation_goes_on_and_is_edited(up: Running, conversation: Conversation) -> None:
    """A history of 4K tokens: next turn, retry, edited last message."""
    history = [{"role": "user", "content": text(4000, "history")}]
    said, length, cached = ask(up, history)
    assert cached == 0 and 3500 < length < 4700
    turn = [*history, {"role": "assistant", "content": said}, {"role": "user", "content": "And then?"}]
    answer, longer, cached = ask(up, turn)
    assert cached >= 0.95 * longer and cached >= length
    again, _, cached = ask(up, turn)
    assert again == answer and cached >= longer - GRID - 4
    edited = [*turn[:-1], {"role": "user", "content": "Before that?"}]
    _, _, cached = ask(up, edited)
    assert shared(conversation, turn, edited) - GRID - 4 <= cached <= shared(conversation, turn, edited)


def test_the_reasoning_of_an_earlier_turn_is_dropped(up: Running, conversation: Conversation) -> None:
    """The template leaves it out once the turn is not the last one; all before that turn is reused."""
    first = [{"role": "user", "content": text(300, "thinking")}]
    told = {"chat_template_kwargs": {"enable_thinking": True}}
    said, length, _ = ask(up, first, **told)
    dropped = [*first, {"role": "assistant", "content": f"<think>\n{said}\n</think>\n\nYes."}]
    dropped += [{"role": "user", "content": "Why?"}]
    _, longer, cached = ask(up, dropped, **told)
    assert length - GRID - 8 <= cached <= length and longer > length


def test_two_conversations_share_the_system_prompt(up: Running, conversation: Conversation) -> None:
    system = {"role": "system", "content": text(400, "system")}
    one, other = ([system, {"role": "user", "content": text(200, name)}] for name in ("one", "other"))
    assert ask(up, one)[2] == 0
    both = shared(conversation, one, other)
    assert both - GRID - 8 <= ask(up, other)[2] <= both


def test_a_beginning_has_two_continuations(up: Running, conversation: Conversation) -> None:
    """A branch: both go on from the same turn, and the first is as it was when it is taken up again."""
    first = [{"role": "user", "content": text(500, "branch")}]
    said, length, _ = ask(up, first)
    base = [*first, {"role": "assistant", "content": said}]
    left, right = ([*base, {"role": "user", "content": word}] for word in ("Left?", "Right, then?"))
    answers = []
    for turns in (left, right):
        answer, _, cached = ask(up, turns)
        assert cached >= length
        answers.append(answer)
    on = [*left, {"role": "assistant", "content": answers[0]}, {"role": "user", "content": "Go on."}]
    assert ask(up, on)[2] > length
    assert [ask(up, turns, cache_prompt=False)[0] for turns in (left, right)] == answers
