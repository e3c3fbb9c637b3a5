"""What rows of a token chose last is what rows of it are expected to choose."""

import numpy as np

from strata.experts.forecast import Forecast


def test_the_last_choices_of_each_token_layer_by_layer_each_once():
    forecast = Forecast()
    ids = np.array([[[1, 2], [3, 4]], [[5, 6], [6, 7]]], np.int32)  # [layers, rows, k]
    forecast.learn([10, 11], ids)
    assert forecast.of([10]) == [(0, 1), (0, 2), (1, 5), (1, 6)]
    assert forecast.of([10, 11]) == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (1, 6), (1, 7)]
    forecast.learn([10], ids[:, 1:])
    assert forecast.of([10]) == [(0, 3), (0, 4), (1, 6), (1, 7)]
    ids[:] = 0
    assert forecast.of([10]) == [(0, 3), (0, 4), (1, 6), (1, 7)]


def test_nothing_is_said_of_tokens_that_were_not_seen_or_are_forgotten():
    forecast, ids = Forecast(most=2), np.zeros((1, 1, 1), np.int32)
    for token in (1, 2, 1, 3):
        forecast.learn([token], ids)
    assert forecast.of([2]) == forecast.of([9]) == [] and forecast.of([1, 3]) == [(0, 0)]
