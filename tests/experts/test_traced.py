"""Routing from a trace, in models."""

import numpy as np
import torch

from experts.decoding import greedy, listening
from models.made import ops_of, oracle, path_of, runner_of
from strata.experts.traced import KEPT_ROWS, RoutingRecorder, TracedExperts
from strata.experts.traces import RoutingTrace


def test_a_trace_replaces_the_routers_choice_and_can_be_recorded():
    ids = oracle("qwen3_moe").ids[:6]
    recorder = RoutingRecorder()
    expected = greedy(listening("qwen3_moe", recorder), ids, 3)
    shape = runner_of(path_of("qwen3_moe", "gguf"), ops_of()).model.shape
    trace = recorder.trace(shape.experts, "recorded")
    trace.check_fits(shape.layers, shape.experts, shape.top_k)
    assert len(trace.ids) == 6 + 3

    def replayed(which: RoutingTrace) -> list[np.ndarray]:
        runner = runner_of(path_of("qwen3_moe", "gguf"), ops_of())
        experts = runner.model.experts
        experts.inner = TracedExperts(experts.inner, which, range(shape.layers), torch.device("cpu"))
        assert experts.status()["routing"] == which.origin
        return greedy(runner, ids, 3)

    assert all(np.array_equal(a, b) for a, b in zip(expected, replayed(trace), strict=True))
    other = RoutingTrace((trace.ids + 1) % shape.experts, shape.experts, "changed")
    assert not np.array_equal(replayed(other)[0], expected[0])


def test_large_steps_are_not_kept():
    trace = RoutingTrace(np.zeros((3, 1, 1), np.int32), 2, "small")
    traced = TracedExperts(
        runner_of(path_of("qwen3_moe", "gguf"), ops_of()).model.experts, trace, [4], torch.device("cpu")
    )
    for rows in (1, KEPT_ROWS + 1, KEPT_ROWS, KEPT_ROWS + 2):
        traced.begin_step(rows)
    assert sorted(traced.buffers) == [1, KEPT_ROWS, KEPT_ROWS + 2] and traced.token == 3 * KEPT_ROWS + 4
