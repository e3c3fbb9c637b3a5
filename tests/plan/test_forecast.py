"""Forecasts: from bytes and rates to seconds, by hand."""

from dataclasses import replace

import pytest

from strata.plan.forecast import Rates, Work, prompt_seconds, step_seconds

WORK = Work({"Q8_0": 1_000_000_000}, {"Q4_K": 2_000_000}, {"Q8_0": 1.0, "Q4_K": 2.0}, 10, 100, 5, 1000, 7)
RATES = Rates(20.0, {"Q8_0": 10.0, "Q4_K": 8.0}, {"Q8_0": 500.0, "Q4_K": 400.0})


def test_one_stream_reads_its_experts() -> None:
    assert WORK.distinct(1) == pytest.approx(50)
    seconds = step_seconds(WORK, RATES, 1, 0)
    assert seconds == pytest.approx(0.1 + 50 * 2e6 / 8e9 + 14 / 20e9)


def test_starting_a_product_takes_its_time_whatever_it_reads() -> None:
    work, rates = replace(WORK, calls=100), replace(RATES, call_us=7.0)
    assert step_seconds(work, rates, 1, 0) - step_seconds(WORK, rates, 1, 0) == pytest.approx(700e-6)
    slow = replace(rates, read_gbs=0.1)
    more = prompt_seconds(work, slow, 4096, 512) - prompt_seconds(WORK, slow, 4096, 512)
    assert more == pytest.approx(8 * 700e-6)


def test_context_adds_its_state() -> None:
    more = step_seconds(WORK, RATES, 1, 10_000) - step_seconds(WORK, RATES, 1, 0)
    assert more == pytest.approx(10_000 * 1000 / 20e9)


def test_streams_share_what_they_read_until_multiplying_is_slower() -> None:
    one, four = step_seconds(WORK, RATES, 1, 0), step_seconds(WORK, RATES, 4, 0)
    assert one < four < 4 * one
    assert WORK.distinct(4) == pytest.approx(1000 * (1 - 0.95**4))
    many = step_seconds(WORK, RATES, 1000, 0)
    assert many > 1000 * 1e9 / 500e9  # the dense rows alone, at the multiply units' rate


def test_a_prompt_multiplies_or_reads() -> None:
    macs = 1e9 / 500e9 + 50 * 2e6 * 2 / 400e9
    assert prompt_seconds(WORK, RATES, 4096, 512) == pytest.approx(4096 * macs)
    slow = Rates(0.1, RATES.product_gbs, RATES.product_gmacs)
    read = (1e9 + WORK.distinct(512) * 2e6) / 0.1e9
    assert prompt_seconds(WORK, slow, 4096, 512) == pytest.approx(8 * read)


def test_a_dense_model_has_no_experts() -> None:
    dense = Work({"Q8_0": 1000}, {}, {"Q8_0": 1.0}, 0, 0, 0, 0, 0)
    assert dense.distinct(4) == 0.0
    assert step_seconds(dense, RATES, 1, 0) == pytest.approx(1000 / 10e9)
