"""From a path and wishes to an engine."""

import io

import numpy as np
import pytest

from models.made import Gguf, changed, oracle, path_of
from strata.assemble import load, make_ops, sizes_of
from strata.core.errors import CheckpointError, UsageError
from strata.core.log import Log
from strata.engine.events import Token
from strata.engine.request import Request
from strata.experts.traces import RoutingTrace
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.naive_ops import NaiveOps
from strata.plan.wishes import Wishes


def answer(loaded, ids):
    loaded.engine.start()
    try:
        return [e.token for e in loaded.engine.submit(Request("a", tuple(ids), 4)).events() if isinstance(e, Token)]
    finally:
        loaded.engine.stop()


@pytest.mark.parametrize("form", ["saved", "gguf"])
def test_every_wish_arrives_and_none_changes_the_answer(form):
    path, ids = path_of("qwen3_moe", form), oracle("qwen3_moe").ids[:10]
    plain = load(path, Wishes())
    wished = load(path, Wishes(ctx_size=64, parallel=2, threads=1, isa="portable", prompt_chunk=4, ram_gib=1.0))
    assert (wished.runner.limits.slots, wished.runner.limits.context) == (2, 64)
    assert isinstance(wished.runner.ops, CpuOps) and wished.runner.ops.native.isa == "portable"
    assert wished.engine.status()["chunk_tokens"] == 4 and wished.plan.arena and not plain.plan.arena
    assert answer(wished, ids) == answer(plain, ids)


def test_the_specification_can_be_wished_for():
    ops, machine = make_ops(Wishes(isa="naive"))
    assert isinstance(ops, NaiveOps) and (machine.threads, machine.isa) == (1, "naive")
    with pytest.raises(UsageError, match=r"--threads 2: the naive operations run on one"):
        make_ops(Wishes(isa="naive", threads=2))


def test_every_choice_is_logged_with_its_reason():
    stream = io.StringIO()
    load(path_of("llama", "gguf"), Wishes(parallel=3), Log(stream=stream))
    lines = stream.getvalue().splitlines()
    assert any("setting=slots value=3" in line and "as asked" in line for line in lines)
    assert any("setting=context value=512" in line for line in lines)


def test_the_status_says_what_was_decided_and_why():
    loaded = load(path_of("llama", "gguf"), Wishes(threads=2, warm="no"))
    plan = loaded.engine.status()["plan"]
    assert plan["threads"] == {"value": 2, "reason": "as asked"}
    assert plan["weights"] == {"value": "as touched", "reason": "as asked"}
    assert {choice.name for choice in loaded.plan.choices} == set(plan)


def test_a_file_is_read_ahead_and_a_long_read_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr("strata.core.log.PROGRESS_EVERY_S", 0.0)
    stream = io.StringIO()
    heard: list[tuple[str, int, int]] = []
    load(path_of("llama", "gguf"), Wishes(), Log(stream=stream, heard=lambda *how: heard.append(how)))
    text = stream.getvalue()
    assert "reading ahead percent=100 done_mib=" in text and "setting=weights value='read ahead'" in text
    what, done, total = heard[-1]
    assert what == "reading ahead" and done == total > 0
    load(path_of("llama", "gguf"), Wishes(warm="no"), Log(stream=(quiet := io.StringIO())))
    assert "reading ahead" not in quiet.getvalue()


@pytest.mark.parametrize("kv_type", ["f32", "bf16"])
def test_sizes_are_those_of_the_states(kv_type):
    loaded = load(path_of("qwen4_exp", "gguf"), Wishes(parallel=1, ctx_size=64, kv_type=kv_type))
    assert loaded.runner.status()["kv_type"] == kv_type
    sizes, layers = sizes_of(loaded.model, kv_type), loaded.runner.states.layers
    planes = [p for s in layers for p in (s.keys, s.values, s.raw_keys, s.block_keys) if p is not None]
    tensors = [t for s in layers for t in (s.conv, s.delta, s.ngram) if t is not None]
    assert sum(p.data.nbytes for p in planes) == 64 * sizes.token_bytes
    assert sum(t.nbytes for t in tensors) == sizes.sequence_bytes


def test_blocks_that_straddle_pages_are_refused_before_anything_runs():
    def change(made):
        ratios, kind = made.arrays["attention.compress_ratios"]
        made.arrays["attention.compress_ratios"] = ([3 if r else 0 for r in ratios], kind)
        made.keys["attention.indexer.top_k"] = 9

    with pytest.raises(Exception, match=r"blocks of 3 tokens: expected a divisor of 64"):
        load(changed(Gguf("qwen4_exp"), change), Wishes())


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(CheckpointError, match="expected a model file or folder, found nothing"):
        load(tmp_path / "none.gguf", Wishes())
    with pytest.raises(UsageError, match=r"--ctx-size 513: the model was trained for 512 tokens"):
        load(path_of("llama", "gguf"), Wishes(ctx_size=513))


@pytest.mark.parametrize(
    ("wish", "value"), [("vram_gib", 2.0), ("pcie_share", 0.5), ("adapt_every", 3), ("adapt_async", False)]
)
def test_what_is_wished_of_vram_is_not_ignored_on_a_cpu(wish, value):
    with pytest.raises(UsageError, match=f"--{wish.replace('_', '-')}: experts have no VRAM on a CPU"):
        load(path_of("qwen3_moe", "gguf"), Wishes(**{wish: value}))


def test_a_routing_trace_takes_the_routers_place(tmp_path):
    path, ids = path_of("qwen3_moe", "gguf"), oracle("qwen3_moe").ids[:10]
    shape = load(path, Wishes()).model.shape
    rng = np.random.default_rng(0)
    chosen = [[rng.permutation(shape.experts)[: shape.top_k] for _ in range(shape.layers)] for _ in range(30)]
    file = tmp_path / "t.npz"
    RoutingTrace(np.array(chosen, np.int32), shape.experts, "by chance").save(file)
    traced = load(path, Wishes(routing_trace=str(file)))
    assert answer(traced, ids) != answer(load(path, Wishes()), ids)
    assert traced.engine.status()["plan"]["routing"]["value"] == "by chance"
    RoutingTrace(np.zeros((2, 1, 1), np.int32), 2, "small").save(file)
    with pytest.raises(UsageError, match="the routing trace is for 1 layers with 1 of 2"):
        load(path, Wishes(routing_trace=str(file)))
    with pytest.raises(UsageError, match="this model has no experts"):
        load(path_of("llama", "gguf"), Wishes(routing_trace=str(file)))
