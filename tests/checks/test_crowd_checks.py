"""`check interleave`, `parking` and `early-close`: hold on every architecture, and go red for each kind of fault."""

import json

import pytest

from models.made import path_of
from strata.checks.crowd import Answer
from strata.checks.early_close import EarlyClose
from strata.checks.interleave import shared_steps
from strata.checks.watched import Note, Seating, Watched
from strata.cli.main import run
from strata.core.held import Held

ARCHITECTURES = ("qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen4_exp")
CHECKS = {
    "interleave": (
        ["--long", "256"],
        [
            "a long prompt beside streams",
            "next turns from their slots",
            "a short prompt overtakes",
            "a short prompt overtakes, one slot",
        ],
    ),
    "parking": ([], ["parked in RAM", "parked beside a stream", "on disk, engine restarted", "a damaged file"]),
    "early-close": (["--long", "256"], ["others go on unchanged", "slots are free at the next step"]),
}


def checked(check, name, capsys, *words):
    """(exit code, findings by name, what was said beside them)."""
    options = [*CHECKS[check][0], "--threads", "1", "--json", *words]
    code = run(["check", check, str(path_of(name, "gguf")), *options], {})
    shown = capsys.readouterr()
    lines = [json.loads(line) for line in shown.out.splitlines()]
    return code, {line["name"]: line for line in lines}, shown.err


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_check_holds(check, name, capsys):
    code, found, _ = checked(check, name, capsys)
    assert {part: line["failure"] for part, line in found.items()} == dict.fromkeys(CHECKS[check][1], "")
    assert code == 0 and all(line["streams"] > 1 and line["machine"] for line in found.values())


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ["qwen3_moe", "qwen3_next"])
def test_damage_is_named_by_slot_position_and_tokens(check, name, capsys):
    # A tiny model may say the same in spite of the damage, depending on the step that it falls into.
    for _ in range(3):
        code, found, said = checked(check, name, capsys, "--break")
        if "these are blind" not in said:
            break
    assert code == 1 and "every part failed, which was the purpose of --break" in said
    for line in found.values():
        assert (
            " in slot " in line["failure"] and "answer position" in line["failure"] and "alone it is" in line["failure"]
        )


def test_damage_that_is_not_noticed_is_said(capsys, monkeypatch):
    monkeypatch.setattr(Watched, "damage", lambda self, seen: None)
    code, _, said = checked("parking", "qwen3_moe", capsys, "--break")
    assert code == 1 and "these are blind: parked in RAM" in said


def test_a_short_prompt_that_does_not_overtake_fails(capsys, monkeypatch):
    monkeypatch.setattr("strata.engine.turns.overtakes", lambda left, other: False)
    monkeypatch.setattr("strata.engine.admission.overtakes", lambda left, other: False)
    code, found, said = checked("interleave", "qwen3_moe", capsys)
    assert code == 1 and "failed: a short prompt overtakes, one slot" in said
    assert "request short: its first token came in step" in found["a short prompt overtakes, one slot"]["failure"]


def test_a_next_turn_in_another_slot_fails(capsys, monkeypatch):
    monkeypatch.setattr("strata.engine.admission.choose_slot", lambda free, tokens: free[-1])
    _, found, _ = checked("interleave", "qwen3_moe", capsys)
    assert "tokens reused in slot" in found["next turns from their slots"]["failure"]


def test_a_client_that_is_served_after_it_left_is_named(capsys, monkeypatch):
    asked = {}

    def cancelled(session):
        """Noticed one step late."""
        asked[session] = asked.get(session, 0) + session._cancelled
        return asked[session] > 1

    monkeypatch.setattr("strata.engine.session.Session.cancelled", property(cancelled))
    code, found, _ = checked("early-close", "qwen3_moe", capsys)
    failure = found["slots are free at the next step"]["failure"]
    assert code == 1 and "request left-answering in slot" in failure and "took part in step" in failure


@pytest.mark.parametrize(("later", "kept"), [(7, True), (3, False)])
def test_a_slot_that_stays_empty_while_somebody_waits_is_named(later, kept):
    watched = Watched(None)
    check = EarlyClose(None, [(1,), (2,), (3,)], (4, 5), False)
    watched.seatings = [Seating(1, (4, 5), Held(0), 0), Seating(2, (1, 1), Held(0), later)]
    found = {"left-reading": Answer(0.0, slot=1, left_step=5)}
    failure = check.left_behind("left-reading", found, watched)
    assert failure == ("request left-reading: slot 1 was free after 5 steps, and given away after [0]" if kept else "")


def test_a_damaged_file_that_is_used_is_named(capsys, monkeypatch):
    monkeypatch.setattr("strata.checks.parking.change_byte", lambda runner, tokens: None)
    code, found, said = checked("parking", "qwen3_moe", capsys)
    assert code == 1 and found["a damaged file"]["failure"] == "the damaged file was taken for whole"
    assert "failed: a damaged file" in said


def test_streams_that_are_left_out_of_a_step_are_named():
    watched = Watched(None)
    watched.seatings = [Seating(3, (1,), Held(0), 0), Seating(1, (2,), Held(0), 0)]
    watched.notes = [Note([0]), Note([0], {1: 8}), Note([], {1: 8}), Note([0], {1: 8})]
    assert shared_steps(watched) == (2, "slot 3 got no token from step 2 to 2")
    watched.notes = [Note([0]), Note([0], {1: 8}), Note([0])]
    assert "1 steps were shared, so nothing was interleaved" in shared_steps(watched)[1]
    watched.notes = [Note([0], {1: 8}), Note([0], {1: 8})]
    assert shared_steps(watched) == (2, "")
