"""Learned profiles: kept exactly enough, never trusted."""

import io
import json

import numpy as np
import pytest

from strata.core.log import Log
from strata.experts.profile import LARGEST, Profile, encode


@pytest.fixture
def said():
    return io.StringIO()


@pytest.fixture
def profile(tmp_path, said):
    return Profile(tmp_path / "profiles", "a1b2", 2, 3, Log(stream=said))


def test_counts_come_back_relative_to_the_most_used(profile, said):
    assert profile.load() is None and said.getvalue() == ""
    profile.save(np.array([[0.0, 2.0, 1.0], [4.0, 0.5, 0.0]]))
    np.testing.assert_array_equal(profile.load(), np.array([[0, 0.5, 0.25], [1, 0.125, 0]]) * LARGEST)
    profile.save(np.zeros((2, 3)))
    assert not profile.load().any()
    assert [p.name for p in profile.path.parent.iterdir()] == ["a1b2.json"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value"),
        ('{"version":1', "Expecting"),
        ("[1]", "not a profile of version 1"),
        (json.dumps({"version": 2, "model": "a1b2", "counts": [[0] * 3] * 2}), "not a profile of version 1"),
        (encode(np.ones((2, 3)), "other"), "belongs to model 'other'"),
        (encode(np.ones((3, 3)), "a1b2"), "expected counts of 2 layers and 3 experts, found"),
        (encode(np.ones((2, 3)), "a1b2").replace("1000000", "-1", 1), "expected counts"),
        (encode(np.ones((2, 3)), "a1b2").replace("1000000", "NaN", 1), "expected counts"),
        ('{"version":1,"model":"a1b2","counts":[[1,2,3],[1]]}', "no table of numbers"),
        ('{"version":1,"model":"a1b2","counts":[["x",2,3],[1,1,1]]}', "no table of numbers"),
        ('{"version":1,"model":"a1b2"}', "expected counts"),
    ],
)
def test_what_is_damaged_or_foreign_is_ignored_with_the_reason(profile, said, text, reason):
    profile.path.parent.mkdir()
    profile.path.write_text(text)
    assert profile.load() is None
    assert "warning profile ignored" in said.getvalue() and reason in said.getvalue()


def test_bytes_that_are_no_text_are_ignored(profile, said):
    profile.path.parent.mkdir()
    profile.path.write_bytes(b"\xff\xfe\x00")
    assert profile.load() is None and "profile ignored" in said.getvalue()


def test_a_folder_that_cannot_be_made_costs_a_warning(tmp_path, said):
    (tmp_path / "file").write_text("")
    Profile(tmp_path / "file", "m", 1, 1, Log(stream=said)).save(np.ones((1, 1)))
    assert "profile not saved" in said.getvalue()


def test_a_failed_write_leaves_the_old_profile_and_no_rubbish(profile, monkeypatch):
    profile.save(np.ones((2, 3)))
    before = profile.path.read_text()

    def broken(counts, model):
        raise OSError("disk full")

    monkeypatch.setattr("strata.experts.profile.encode", broken)
    profile.save(np.zeros((2, 3)))
    assert profile.path.read_text() == before and len(list(profile.path.parent.iterdir())) == 1
