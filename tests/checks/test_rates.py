"""What is counted beside the clock; no time is asserted."""

import pytest

from models.made import ops_of, oracle, path_of, runner_of
from strata.checks.rates import Bench, chunked
from strata.kernels.naive_ops import NaiveOps


@pytest.fixture(scope="module")
def ids():
    return oracle("qwen3_moe").ids


def bench(ids, ops=None, repeats=2):
    return Bench(runner_of(path_of("qwen3_moe", "gguf"), ops or ops_of(), slots=3), ids, 8, repeats)


def test_decoding_counts_rows_runs_and_experts(ids):
    found = bench(ids).decode(20, 3, 5)
    assert (found.context, found.slots, found.tokens, found.steps) == (20, 3, 5, 5)
    assert len(found.runs) == 2 and all(r > 0 for r in found.runs) and found.rows_per_step == 3
    # 3 layers, 3 of 8 experts for each of 3 rows.
    assert 9 <= found.distinct_experts_per_step <= 24
    one = bench(ids).decode(20, 1, 5)
    assert one.distinct_experts_per_step == 9
    # Every other matrix is read whole, each expert is three matrices of 40 x 64 floats.
    more = (found.distinct_experts_per_step - 9) * 3 * 40 * 64 * 4
    assert found.bytes_per_step - one.bytes_per_step == pytest.approx(more)
    values = found.values()["tokens_per_second"]
    assert values["min"] <= values["median"] <= values["max"]


def test_every_run_starts_from_the_same_place(ids):
    made = bench(ids)
    starts = [made.prepared(slot, 20) for slot in range(2)]
    ends = []
    for _ in range(2):
        made.decode_once(starts, 4)
        ends.append([made.runner.states.tokens[slot, :24].tolist() for slot in range(2)])
    assert ends[0] == ends[1] and ends[0][0] != ends[0][1]
    assert made.runner.states.length[:2] == [24, 24]
    assert ends[0][0][:20] == ids[:20] and ends[0][1][:20] == ids[1:21] and ends[0][0][20] == starts[0].token


def test_a_prompt_is_read_in_chunks_that_cover_it(ids):
    windows = list(chunked(1, ids[:20], 8))
    assert [(w.start, len(w.tokens), w.score) for w in windows] == [(0, 8, 0), (8, 8, 0), (16, 4, 1)]
    found = bench(ids).prompt(20)
    assert (found.tokens, found.steps, found.rows_per_step) == (20, 3, 20 / 3)


def test_naive_operations_do_not_count(ids):
    found = bench(ids, NaiveOps(), 1).decode(4, 1, 1)
    assert found.distinct_experts_per_step is None and found.bytes_per_step is None
