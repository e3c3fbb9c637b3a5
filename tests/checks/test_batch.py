"""`check batch`: holds on a tiny model, and goes red for damage, for steps of one stream and for experts read twice."""

import json

import pytest

from models.made import path_of
from strata.checks import crowd
from strata.checks.batch import ExpertReads, Outcome
from strata.checks.crowd import Answer, Moment, Part
from strata.cli.main import run
from strata.engine.events import Finished, Reason
from strata.engine.request import Request

SMALL = ["--n", "6", "--long", "90", "--threads", "1"]


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen4_exp"])
def test_a_crowd_says_what_each_says_alone(name, capsys):
    assert run(["check", "batch", str(path_of(name, "gguf")), *SMALL, "--json"], {}) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["equal"] for line in lines] == [True] * 5
    assert all(line["mean_streams"] >= 2 and line["tokens"] > 50 for line in lines[:4])
    assert lines[0]["reused"] == 0 < lines[1]["reused"]
    assert [line["drafted"] > 0 for line in lines[:4]] == [False, False, False, True]
    assert 0.2 < lines[3]["accepted"] / lines[3]["drafted"] < 0.8
    assert lines[4]["read"] == lines[4]["distinct"] < lines[4]["uses"]


def test_damage_is_named(capsys):
    assert run(["check", "batch", str(path_of("qwen3_next", "gguf")), *SMALL, "--break"], {}) == 1
    shown = capsys.readouterr()
    assert shown.out.count("answer position") == 4
    assert "every part failed, which was the purpose of --break" in shown.err


def test_nothing_shared_and_experts_read_twice_fail():
    alone = Outcome("x", 4, 40, 0, 0, 0, {1: 40}, {0: 4, 1: 40}, "")
    assert alone.mean == 1 and "nothing was shared" in alone.failure
    assert ExpertReads(100, 50, 50).failure == ""
    assert "51 experts were read" in ExpertReads(100, 50, 51).failure


def answer(*tokens: int, reason: Reason = Reason.LENGTH) -> Answer:
    return Answer(0.0, list(tokens), [], finished=Finished(reason, 1, generated=len(tokens)))


@pytest.mark.parametrize(
    ("found", "leaves", "words"),
    [
        (answer(1, 2, 3), None, ""),
        (answer(1, 9, 3), None, "request a, answer position 1: token 9, alone it is 2"),
        (answer(1, 2), None, "2 tokens, alone there are 3"),
        (answer(1, 2, reason=Reason.CANCEL), Moment("a", said=2), ""),
        (answer(1, reason=Reason.CANCEL), Moment("a", said=2), "1 tokens"),
        (answer(reason=Reason.CANCEL), Moment("b", said=2), ""),
        (answer(1, 2, 3), Moment("a", said=2), "ended with length, though its client left"),
        (answer(1, 2, 3, reason=Reason.ERROR), None, "failed"),
    ],
)
def test_differences_are_named(found, leaves, words):
    part = Part(Request("a", (1,)), leaves=leaves)
    said = crowd.difference({"a": answer(1, 2, 3)}, {"a": found}, [part])
    assert (words in said) if words else said == ""
