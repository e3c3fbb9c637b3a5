"""Retry-After follows the rate at which requests end."""

import pytest

from strata.server.departures import MOST_S, UNKNOWN_S, Departures


def ended(*times: float) -> Departures:
    found = Departures()
    for now in times:
        found.left(now)
    return found


@pytest.mark.parametrize("times", [(), (3.0,)])
def test_without_a_rate_a_client_comes_back_soon(times) -> None:
    assert ended(*times).wait_s(4.0) == UNKNOWN_S


@pytest.mark.parametrize(("each", "seconds"), [(0.01, 1), (4.0, 4), (4.1, 5), (1000.0, MOST_S)])
def test_a_place_comes_free_as_often_as_requests_end(each, seconds) -> None:
    assert ended(*(each * i for i in range(8))).wait_s(7 * each) == seconds


def test_many_who_are_sent_away_come_back_one_after_the_other() -> None:
    found = ended(*(3.0 * i for i in range(8)))
    assert [found.wait_s(21.0) for _ in range(3)] == [3, 6, 9]
    found.left(24.0)  # the first of them finds a place
    assert found.wait_s(24.0) == 9
    for now in (27.0, 30.0, 33.0, 36.0, 39.0):
        found.left(now)
    assert found.wait_s(39.0) == 3


def test_when_nothing_ends_any_more_waits_grow() -> None:
    """Negative control of the rate: it is not only that of better times."""
    found = ended(0.0, 1.0, 2.0)
    assert found.wait_s(2.0) == 1
    assert found.wait_s(62.0) > 30


def test_only_the_last_ones_count() -> None:
    found = ended(*(100.0 * i for i in range(20)), *(2000.0 + i for i in range(16)))
    assert found.wait_s(2015.0) == 1
