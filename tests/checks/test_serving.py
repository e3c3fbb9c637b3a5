"""`bench serve` and `bench soak` against a real server of the demo model, and what they say of faults."""

import dataclasses
import json
import os
import threading

import pytest

from strata.checks import soaking
from strata.checks.client import Ask, Client, Got
from strata.checks.loading import Spread, mean, prompt_of, since, summed
from strata.checks.serving import family, memory, served
from strata.checks.soaked import Sample, Soaked, taken
from strata.cli.main import run
from strata.core.errors import StrataError


@pytest.fixture(scope="module")
def server():
    with served(None, ["--parallel", "3", "--threads", "1", "--ctx-size", "512"], os.environ) as found:
        yield found


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A pool of short prompts."""
    monkeypatch.setattr(soaking, "SIZES", (8, 50, 100, 25))
    monkeypatch.setattr(soaking, "ANSWERS", (6, 10))
    monkeypatch.setattr(soaking, "RECHECKED", 3)


def found_by(words, capsys, code=0):
    assert run([*words, "--json"], {}) == code
    return json.loads(capsys.readouterr().out)


def test_clients_are_answered_and_steps_are_shared(server, capsys):
    found = found_by(
        [
            "bench",
            "serve",
            "--url",
            server.url,
            "--clients",
            "3",
            "--requests",
            "2",
            "--prompt",
            "50",
            "--tokens",
            "12",
        ],
        capsys,
    )
    assert (found["clients"], found["requests"], found["failed"], found["tokens"]) == (3, 6, 0, 72)
    assert found["model"] == "strata-demo" and found["machine"]["threads"] == 1 and found["settings"]["context"] == 512
    streams = {int(n): steps for n, steps in found["streams_per_step"].items()}
    # The first token comes with the prompt, the others one by one or, with drafts that were right, several at a time.
    assert 6 < sum(n * steps for n, steps in streams.items()) <= 72 - 6
    assert max(streams) == 3 and found["rate"] > 0 and found["gap_s"]["max"] >= found["gap_s"]["p50"] > 0


def test_a_soak_finds_nothing(server, capsys):
    words = ["bench", "soak", "--url", server.url, "--minutes", "0.05", "--clients", "5"]
    found = found_by(words, capsys)
    assert found["failure"] == "" and found["lost"] == found["wrong"] == 0
    assert found["asked"] == found["whole"] + found["left"] and found["left"] > 0 and found["compared"] > 5
    assert set(found["leaked"]) == {"slots", "pages", "promised pages", "sessions", "waiting"}
    assert not any(found["leaked"].values())


def test_wrong_and_lost_answers_are_found(server, capsys, monkeypatch):
    plain, lock, numbers = Client.complete, threading.Lock(), iter(range(10**6))

    def complete(self, ask):
        got = plain(self, ask)
        with lock:
            number = next(numbers)
        if number > 8 and number % 3 == 0 and got.text:  # the first ones are the pool's own answers
            got.text = f"{got.text[:-1]}~"
        elif number > 8 and number % 3 == 1 and not got.left:
            got.error = "cut off"
        return got

    monkeypatch.setattr(Client, "complete", complete)
    monkeypatch.setattr(soaking, "RECHECKED", 0)
    words = ["bench", "soak", "--url", server.url, "--minutes", "0.03", "--clients", "3"]
    found = found_by(words, capsys, code=1)
    assert found["lost"] > 0 and found["wrong"] > 0
    assert f"{found['lost']} lost, {found['wrong']} wrong" in found["failure"]
    assert any("character" in problem and "alone" in problem for problem in found["problems"])
    assert "lost: cut off" in found["problems"]


def test_a_client_that_leaves_frees_its_slot(server):
    client = Client(server.url)
    got = client.complete(Ask(prompt_of(5000, 50), 400, leave_after=2))
    assert got.left and len(got.times_s) >= 2 and not got.finish
    left = soaking.Soak(client, 1, 0.0, 0, lambda: None).leaked()
    assert not any(left.values())
    assert client.complete(Ask("Day 1:", 5)).tokens == 5


def test_a_refusal_is_told(server):
    got = Client(server.url).complete(Ask("word " * 600, 5))
    assert got.status == 400 and "context" in got.error
    assert Client(server.url).get("/nowhere") is None
    with pytest.raises(StrataError, match="expected http"):
        Client("ftp://x")
    assert "refused" in Client("http://127.0.0.1:1").complete(Ask("x", 1)).error


def test_memory_of_the_server_and_its_engine(server):
    assert len(family(server.pid)) == 2
    assert memory(server.pid) > 50 << 20
    assert memory(10**9) is None


def test_a_server_that_does_not_come_up_is_told(tmp_path):
    with (
        pytest.raises(StrataError, match=r"did not come up: .*no\.gguf"),
        served(str(tmp_path / "no.gguf"), [], os.environ),
    ):
        pass


STATUS = {
    "runner": {"kept": {"pages": 10, "free_pages": 4, "kept_pages": 6, "promised_pages": 0}},
    "sessions": {"submitted": 5, "finished": {"stop": 4, "cancel": 1}},
    "seats": [{"state": "idle"}, {"state": "idle"}],
    "waiting": 0,
}


def test_what_is_still_taken_is_counted():
    assert not any(taken(STATUS).values())
    worse = STATUS | {"seats": [{"state": "decoding"}], "waiting": 2}
    worse |= {"runner": {"kept": {"pages": 10, "free_pages": 2, "kept_pages": 5, "promised_pages": 1}}}
    worse |= {"sessions": {"submitted": 6, "finished": {"stop": 4}}}
    assert taken(worse) == {"slots": 1, "pages": 3, "promised pages": 1, "sessions": 2, "waiting": 2}
    assert taken({}) == {}


def soaked(**more):
    mib = {name: Sample(size << 20, 0) for name, size in (("start", 90), ("middle", 400), ("end", 420))}
    counts = dict.fromkeys(("asked", "whole", "left", "refused", "lost", "wrong", "compared", "rechecked"), 0)
    spread = Spread(0.0, 0.0, 0.0)
    return dataclasses.replace(
        Soaked(1, 1.0, **counts, leaked={}, memory=mib, tokens=0, rate=0.0, first_token_s=spread, gap_s=spread,
               rows_per_step=None, streams_per_step=None, problems=()),
        **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, ""),
        ({"lost": 2, "leaked": {"pages": 3, "slots": 0}}, "2 lost, 3 pages leaked"),
        (
            {"memory": {"middle": Sample(400 << 20, 0), "end": Sample(440 << 20, 0)}},
            "memory grew by 40 MiB from the middle to the end",
        ),
        (
            {
                "memory": {
                    "middle": Sample(400 << 20, 0, {"pool": 7 << 20, "kept": 0, "rest": 5 << 20}),
                    "end": Sample(440 << 20, 0, {"pool": 7 << 20, "kept": 50 << 20, "rest": 43 << 20}),
                }
            },
            "memory grew by 40 MiB from the middle to the end (rest 38)",
        ),
        ({"memory": {"middle": Sample(None, 0), "end": Sample(None, 0)}}, ""),
    ],
)
def test_what_a_soak_fails_by(more, words):
    assert soaked(**more).failure == words


def test_answers_that_failed_do_not_count_as_fast():
    whole = Got(0.0, 200, "ab", "length", [1.0, 1.5], 7, 3, 2)
    found = summed(2, [whole, Got(0.0, 500, error="status 500"), Got(0.0, 200, "a", "", [0.1])], 2.0, {1: 3}, None)
    assert (found.failed, found.first_error, found.tokens, found.rate) == (2, "status 500", 2, 1.0)
    assert (found.first_token_s, found.gap_s) == (Spread(1.0, 1.0, 1.0), Spread(0.5, 0.5, 0.5))


def test_histograms_are_those_of_the_load_alone():
    assert since({1: 5, 2: 1}, {1: 5, 2: 4, 4: 2}) == {2: 3, 4: 2}
    assert since(None, {1: 5}) is None
    assert mean({0: 9, 2: 3, 4: 1}) == 2.5 and mean(None) is None
