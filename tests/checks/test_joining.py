"""`bench join` and `bench turns`: what they count and compare. No time is judged here."""

import dataclasses
import json

import pytest

from models.made import path_of
from strata.checks.joining import Joined, Overtaken, gaps_between
from strata.checks.turning import Turn
from strata.cli.main import run

FOUND = Joined(4, (90, 50), 0.25, 0.02, 0.2, {}, 10, 12, (1.0, 0.5), (1.5, 0.6), {1: 3})


def lines_of(words, capsys):
    assert run([*words[:2], str(path_of("qwen3_next", "gguf")), *words[2:], "--threads", "1", "--json"], {}) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_prompts_join_streams_and_a_question_overtakes(capsys):
    words = ["bench", "join", "--streams", "2", "--prompt", "96", "--prompt", "48", "--behind", "128", "--repeat", "1"]
    joined, *overtaken = lines_of(words, capsys)
    assert (joined["streams"], joined["prompts"]) == (2, [96, 48])
    assert (
        joined["least_tokens"] >= 1
        and joined["longest_gap_s"] >= joined["gaps_s"]["p95"] >= joined["gaps_s"]["p50"] > 0
    )
    assert len(joined["alone_s"]) == len(joined["together_s"]) == 2 and min(joined["alone_s"]) > 0
    # Two streams and both prompts' windows are in the histogram; nobody is read in a step of its own.
    assert "2" in joined["rows_per_step"] and joined["machine"]["cpu"] and joined["settings"]["prompt_chunk"]
    assert [(line["bench"], line["slots"], line["long"]) for line in overtaken] == [
        ("overtake", n, 128) for n in (2, 1)
    ]
    assert all(line["share"] == line["first_s"] / line["read_s"] for line in overtaken)


def test_next_turns_reuse_what_is_held(capsys, tmp_path):
    words = ["bench", "turns", "--history", "130", "--repeat", "1", "--state-dir", str(tmp_path)]
    lines = {line["name"]: line for line in lines_of(words, capsys)}
    reused = {name: (line["common"], line["reused"], line["tier"]) for name, line in lines.items()}
    assert reused == {
        "next turn": (162, 161, "pages"),  # the answer's last token never ran
        "edited last message": (162, 161, "pages"),
        "dropped thinking": (130, 128, "pages"),
        "from disk, engine restarted": (162, 161, "disk"),
    }
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"longest_gap_s": 0.26}, "a stream waited 260 ms (at most 250)"),
        ({"least_tokens": 5}, "a stream starved: 5 tokens where another got 12"),
    ],
)
def test_what_is_wrong_with_a_join_is_named(change, words):
    assert dataclasses.replace(FOUND, **change).failure == words


def test_shares_are_of_the_cold_run():
    assert Overtaken(1, 100, 5, 2.0, 0.3, 2.5).share == 0.15
    turn = Turn("x", 120, 100, 95, "pages", 0.1, 1.0)
    assert (turn.share, turn.kept) == (0.1, 0.95)


def test_gaps_that_touch_the_time_count():
    assert gaps_between([0.0, 1.0, 3.0, 6.0, 10.0], 1.5, 5.0) == [2.0, 3.0]
