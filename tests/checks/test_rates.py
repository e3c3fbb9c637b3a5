"""What is counted beside the clock; no time is asserted."""

import random
from dataclasses import replace

import gguf
import pytest

from models.made import ops_of, oracle, path_of, runner_of
from strata.checks.rates import Bench, Rates, chunked, share_of_bytes
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


def test_bytes_per_step_are_the_distinct_experts_and_every_dense_matrix_once(ids):
    """Counted by the kernels; expected from the file's own tensor sizes."""
    sizes = {t.name: int(t.n_bytes) for t in gguf.GGUFReader(path_of("qwen3_moe", "gguf")).tensors if len(t.shape) > 1}
    experts = {name: size for name, size in sizes.items() if "_exps" in name}
    dense = sum(sizes.values()) - sum(experts.values()) - sizes["token_embd.weight"]
    layers = len(experts) // 3
    each = sum(experts.values()) / (8 * layers)
    for slots in (1, 3):
        found = bench(ids).decode(20, slots, 5)
        assert found.bytes_per_step == pytest.approx(found.distinct_experts_per_step * each + dense)


def test_a_state_counts_every_held_token_and_recurrent_states_twice(ids):
    made = bench(ids, repeats=1)
    layouts = made.runner.model.layouts
    # 3 layers of keys and values.
    each = sum(layout.token_bytes() for layout in layouts)
    assert each > 0 and made.decode(10, 2, 4).state_bytes_per_step == 2 * 12 * each
    hybrid = Bench(runner_of(path_of("qwen3_next", "gguf"), ops_of(), slots=1), ids, 8, 1)
    recurrent = sum(layout.sequence_bytes() for layout in hybrid.runner.model.layouts)
    assert recurrent > 0 and hybrid.state_bytes(0) == 2 * recurrent


def test_the_share_of_what_bytes_allow():
    one = Rates(0, 1, 8, 8, (9.0, 10.0, 12.0), 9.0, 1, 8, 100.0, 0)
    four = Rates(0, 4, 8, 8, (17.0, 16.0, 15.0), 9.0, 4, 20, 250.0, 0)
    # Four slots read 2.5 times the bytes, so 4 / 2.5 times the rate is allowed.
    assert share_of_bytes(one, one) == 1 and share_of_bytes(one, four) == 1
    assert share_of_bytes(one, replace(four, runs=(8.0,))) == 0.5
    assert share_of_bytes(one, replace(four, bytes_per_step=None)) is None
    # Their states are bytes too: 450 against 150 in all.
    stateful = replace(one, state_bytes_per_step=50.0), replace(four, state_bytes_per_step=200.0)
    assert share_of_bytes(*stateful) == pytest.approx(16 / (4 * 10 * 150 / 450))


def test_a_decode_run_may_begin_with_the_first_token(ids):
    made = bench(ids, repeats=1)
    start = made.prepared(0, 0)
    assert (len(start.snapshot.tokens), start.token) == (0, ids[0])
    made.decode_once([start], 3)
    assert made.runner.states.length[0] == 3 and made.runner.states.tokens[0, 0] == ids[0]
    assert made.decode(0, 2, 3).context == 0


def test_drawn_ids_are_fed_whatever_the_model_says(ids):
    made = bench(ids)
    made.drawn = True
    made.decode_once([made.prepared(0, 10)], 6)
    drawn = made.runner.states.tokens[0, 11:16].tolist()
    size = made.runner.model.shape.vocabulary
    draw = random.Random(0)
    assert drawn == [draw.randrange(size) for _ in range(5)]


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


def test_runs_behind_almost_the_whole_context_find_their_pages_again(ids):
    """What an earlier run left behind must not keep the pages that the next one needs."""
    runner = runner_of(path_of("qwen3_moe", "gguf"), ops_of(), slots=1)
    room = runner.limits.context
    tokens = [ids[i % len(ids)] for i in range(room)]
    found = Bench(runner, tokens, 64, 2).decode(room - 6, 1, 5)
    assert len(found.runs) == 2
    assert len(Bench(runner, tokens, 64, 2).prompt(room - 6).runs) == 2


def test_naive_operations_do_not_count(ids):
    found = bench(ids, NaiveOps(), 1).decode(4, 1, 1)
    assert found.distinct_experts_per_step is None and found.bytes_per_step is None
