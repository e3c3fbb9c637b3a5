"""The share of the processors that others take, from made-up counts of the system."""

import os

import pytest

from strata.checks import company
from strata.checks.company import Company, busy_seconds


@pytest.fixture
def stat(tmp_path, monkeypatch):
    """(write counts, move the clock): 2 processors, 100 ticks a second, 1 s of own work per second."""
    now = {"time": 0.0}
    monkeypatch.setattr(company.time, "perf_counter", lambda: now["time"])
    monkeypatch.setattr(company, "own_seconds", lambda: now["time"])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    path = tmp_path / "stat"

    def at(seconds, user, idle):
        now["time"] = seconds
        path.write_text(f"cpu  {user} 0 10 {idle} 5 0 0 0 0 0\ncpu0 1 1 1 1\n")
        return path

    return at


def test_alone_is_0(stat):
    watch = Company(stat(0, 1000, 500))
    stat(10, 2000, 1500)
    assert watch.share() == pytest.approx(0)


def test_others_count_by_all_the_time_there_was(stat):
    watch = Company(stat(0, 1000, 500))
    # 15 s of 20 were busy, 10 of them with our own work.
    stat(10, 2500, 1000)
    assert watch.share() == pytest.approx(0.25)


def test_idle_and_waiting_time_is_not_busy(stat):
    assert busy_seconds(stat(0, 1000, 77)) == 10.1


def test_elsewhere_nothing_is_known(tmp_path):
    assert Company(tmp_path / "none").share() is None
