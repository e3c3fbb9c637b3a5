"""Seconds of the last minutes, with a clock that is set by hand."""

from strata.server.timeline import KEPT_S, Timeline


def test_tokens_waits_and_gaps_of_each_second() -> None:
    line = Timeline()
    line.first_token(100.2, 0.5)
    line.later_token(100.3, 0.010)
    line.later_token(100.9, 0.030)
    line.first_token(102.0, 0.25)
    assert line.since(0, 103.0) == [
        {"second": 100, "tokens": 3, "first_ms": 500.0, "gap_ms": 30.0, "mean_gap_ms": 20.0},
        {"second": 102, "tokens": 1, "first_ms": 250.0, "gap_ms": None, "mean_gap_ms": None},
    ]
    assert [one["second"] for one in line.since(101, 103.0)] == [102]


def test_old_seconds_go() -> None:
    line = Timeline()
    for second in range(2 * KEPT_S):
        line.later_token(second + 0.5, 0.01)
    assert [one["second"] for one in line.since(0, 2 * KEPT_S - 0.1)] == list(range(KEPT_S, 2 * KEPT_S))
    assert len(line._seconds) == KEPT_S
    assert line.since(0, 4 * KEPT_S) == []


def test_a_clock_that_is_set_back_loses_nothing() -> None:
    line = Timeline()
    line.later_token(100.0, 0.01)
    line.later_token(50.0, 0.02)
    assert line.since(0, 100.0) == [{"second": 100, "tokens": 2, "first_ms": None, "gap_ms": 20.0, "mean_gap_ms": 15.0}]
