"""Counting of drafts over answers, edits and repetitions, on the demo model."""

import json
import sys

import acceptance
import pytest


def lines(capsys, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["acceptance.py", *words])
    acceptance.main()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_right_is_the_share_of_drafts_whose_predecessors_were() -> None:
    assert acceptance.right({"1": 10, "2": 8, "3": 8}, {"1": 5, "2": 2}) == [0.5, 0.4, 0.0]
    assert acceptance.right({}, {}) == []


@pytest.mark.slow
def test_first_drafts_of_the_demos_answers_are_right_in_six_of_ten_positions(monkeypatch, capsys):
    """What the head is for: of 1,000 positions and more 60%, and 1.55 tokens a step; without drafts 1."""
    drafted, plain = lines(capsys, monkeypatch, "answers", "--prompts", "24", "--draft", "1", "--draft", "off")
    assert drafted["offered"]["1"] >= 1000
    assert drafted["accepted"]["1"] >= 0.6 * drafted["offered"]["1"]
    assert drafted["tokens_per_step"] >= 1.55
    assert drafted["drafters"]["mtp"]["offered"]["1"] > 0.8 * drafted["offered"]["1"]
    assert plain["tokens_per_step"] == pytest.approx(1, abs=0.02)
    assert plain["tokens"] == drafted["tokens"] and not plain["offered"]


def test_an_edit_that_is_said_comes_in_few_steps_by_lookup_alone(monkeypatch, capsys):
    (found,) = lines(capsys, monkeypatch, "edit", "--prompts", "2", "--slots", "2", "--draft", "8")
    assert found["tokens_per_step"] >= 2.5 and set(found["drafters"]) == {"lookup"}
    assert found["model"] == "demo.gguf" and "draft_vocab" not in found


def test_a_file_twice_over_is_gone_on_with(monkeypatch, capsys):
    monkeypatch.setattr(acceptance, "MOST", 24)
    found = lines(capsys, monkeypatch, "repeat", "--prompts", "1", "--draft", "2", "--draft", "off")
    assert [line["draft"] for line in found] == ["2", "off"] and found[0]["tokens"] == found[1]["tokens"] > 0


def test_rates_are_measured_beside_none(monkeypatch, capsys):
    monkeypatch.setattr(acceptance, "MOST", 24)
    (found,) = lines(capsys, monkeypatch, "repeat", "--prompts", "1", "--slots", "1", "--draft", "2", "--rounds", "2")
    assert [side["draft"] for side in found["sides"]] == ["off", "2"] and len(found["ratios"]) == found["rounds"] == 2
    assert found["sides"][0]["drafts"]["offered"] == {} and found["sides"][1]["drafts"]["offered"]
