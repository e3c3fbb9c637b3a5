"""What only OpenAI's text completions have: the prompt before its answers, text filled in, the likeliest of several."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from chat.tiny_tokenizer import metadata_of, tokenizer_json
from server.harness import Running, ids, running, served, sse
from server.test_messages import prompt_of
from strata.chat.conversation import Conversation
from strata.chat.template import CHATML, ChatTemplate
from strata.chat.tokenizer import from_metadata
from strata.sampling.params import SamplingParams
from strata.server.openai_completions import FILLING
from strata.server.served import ServedModel


def texts(up: Running, stream: bool, **fields: Any) -> list[str]:
    """Every answer, by its index."""
    reply = up.http.post("/v1/completions", json={"stream": stream, **fields})
    assert reply.status_code == 200, reply.text
    if not stream:
        return [choice["text"] for choice in reply.json()["choices"]]
    found: dict[int, str] = {}
    for event in sse(reply.text)[:-1]:
        choice = event["choices"][0]
        found[choice["index"]] = found.get(choice["index"], "") + choice["text"]
    return [found[index] for index in sorted(found)]


@pytest.mark.parametrize("stream", [False, True])
def test_the_prompt_goes_before_every_answer_to_it(stream: bool) -> None:
    with running(answers=[ids(" one"), ids(" two")]) as up:
        made = texts(up, stream, prompt=["a 😀", "b"], n=2, seed=0, echo=True)
        assert made == ["a 😀 one", "a 😀 two", "b one", "b two"]
        assert texts(up, stream, prompt=ids("by ids"), seed=0, echo=True) == ["by ids one"]
        assert texts(up, stream, prompt="only this", echo=True, max_tokens=0) == ["only this"]
        assert texts(up, stream, prompt="a", seed=0) == [" one"]


def test_of_several_answers_the_likeliest_are_given() -> None:
    words = ["zero", "one", "two", "three"]
    likely = [-3.0, -0.25, -1.0, -2.0]
    with running(answers=[ids(word) for word in words], likelihoods=likely) as up:
        api = up.client(openai.OpenAI, "/v1")
        best = api.completions.create(model="tiny", prompt=["x", "y"], n=2, best_of=4, seed=0, logprobs=0)
        assert [choice.text for choice in best.choices] == ["one", "two", "one", "two"]
        assert [choice.index for choice in best.choices] == [0, 1, 2, 3]
        assert best.choices[0].logprobs is not None and best.usage is not None
        assert best.usage.completion_tokens == 2 * sum(len(ids(word)) for word in words), "what was made counts"
        plain = up.http.post("/v1/completions", json={"prompt": "x", "best_of": 4, "seed": 0}).json()["choices"]
        assert [(choice["text"], choice["logprobs"]) for choice in plain] == [("one", None)]
        assert texts(up, False, prompt="x", n=2, best_of=2, seed=0) == ["zero", "one"], "there is nothing to choose"


def filler() -> ServedModel:
    """A model whose vocabulary has the tokens between which text is filled in."""
    definition = json.loads(tokenizer_json("qwen2"))
    first = 1 + max([*definition["model"]["vocab"].values(), *(token["id"] for token in definition["added_tokens"])])
    for number, name in enumerate(FILLING):
        definition["added_tokens"].append({"content": name, "id": first + number, "special": True})
    tokenizer = from_metadata(metadata_of(definition, "qwen2"))
    return ServedModel("tiny", Conversation(tokenizer, ChatTemplate(CHATML, "test")), SamplingParams(), created=1)


def test_text_is_filled_in_between_two_ends(tmp_path: Path) -> None:
    log, model = tmp_path / "lines", filler()
    with running(model=model, answers=[ids("b")], log=str(log)) as up:
        assert texts(up, False, prompt="a", suffix="c") == ["b"]
        before, after, between = (model.conversation.tokenizer.ids[name] for name in FILLING)
        assert prompt_of(log) == [before, *ids("a"), after, *ids("c"), between]
        assert texts(up, False, prompt="a", suffix="c", echo=True) == ["ab"]
        assert texts(up, False, prompt="a", suffix="") == ["b"]
        assert prompt_of(log) == ids("a"), "an empty end is none"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_tokens_that_end_an_answer_are_told_to_the_engine(path: str, tmp_path: Path) -> None:
    log = tmp_path / "lines"
    with running(model=served(), answers=[ids("one two")], log=str(log)) as up:
        prompt: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"prompt": "x"}
        wants: list[tuple[dict[str, Any], str]] = [
            ({}, "0,2"), ({"stop_token_ids": [7, 0, 7]}, "0,2,7"), ({"stop_token_ids": [7], "ignore_eos": True}, "7")
        ]  # fmt: skip
        for asked, _ in wants:
            assert up.http.post(path, json=prompt | asked).status_code == 200
    sent = [line.split() for line in log.read_text().splitlines() if line.startswith("GEN")]
    assert [next(word for word in words if word.startswith("stop=")) for words in sent] == [
        f"stop={stops}" for _, stops in wants
    ]
