"""The bound on what a step may read beside streams."""

import pytest

from strata.engine.pace import SHARE, STEPS, Pace


def test_nothing_known_reads_the_least() -> None:
    assert Pace(0.25).allowed(32, 512) == 32


@pytest.mark.parametrize(
    ("fixed_s", "token_s", "decode_s"), [(0.0, 0.001, 0.01), (0.05, 0.0005, 0.01), (0.02, 0.002, 0.03)]
)
def test_steps_close_in_on_the_bound_from_below(fixed_s: float, token_s: float, decode_s: float) -> None:
    """A step costs a fixed part (weights read once), a part per token and the streams' own."""
    pace = Pace(0.25)
    pace.observe(0, True, decode_s)
    sizes = []
    for _ in range(20):
        tokens = pace.allowed(32, 512)
        seconds = decode_s + fixed_s + tokens * token_s
        assert seconds <= max(0.25, decode_s + fixed_s + 32 * token_s)
        pace.observe(tokens, True, seconds)
        sizes.append(tokens)
    room = SHARE * 0.25 - decode_s - fixed_s
    assert sizes[-1] >= min(512, 0.9 * room / token_s)


def test_a_slow_decode_step_raises_the_bound() -> None:
    pace = Pace(0.25)
    pace.observe(0, True, 0.4)
    assert pace.bound_s() == pytest.approx(STEPS * 0.4)
    pace.observe(64, True, 0.4 + 0.64)
    assert pace.allowed(32, 512) == pytest.approx((SHARE * 1.2 - 0.4) / 0.01, abs=1)


def test_a_dearer_token_is_believed_at_once() -> None:
    pace = Pace(0.25)
    pace.observe(200, False, 0.1)
    pace.observe(200, False, 0.4)
    assert pace.token_s == pytest.approx(0.002)
    pace.observe(200, False, 0.2)
    assert pace.token_s == pytest.approx(0.0015)


def test_a_clock_that_stands_still_teaches_nothing() -> None:
    pace = Pace(0.25)
    pace.observe(10, True, 0.0)
    assert pace == Pace(0.25)
