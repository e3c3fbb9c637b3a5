"""From wishes to an engine on the emulated GPU: the CPU's tokens at every residency, and what the status says."""

import io
import json

import numpy as np
import pytest

from models.heads import headed
from models.made import oracle, path_of, same_bits
from strata.assemble import load
from strata.checks.drafted import Cell, Drafted
from strata.checks.tiers import flip_byte
from strata.core.errors import UsageError
from strata.core.log import Log
from strata.core.order import Order
from strata.core.window import Window
from strata.engine.events import Token
from strata.engine.request import Request
from strata.experts.gpu import GpuExperts
from strata.kernels.gpu_ops import GpuOps
from strata.models.weights import dense_bytes, dense_weights, row_tables
from strata.plan.wishes import Wishes

ARCHITECTURES = ("qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen4_exp")
GIB = 1 << 30


@pytest.fixture
def wishes(tmp_path):
    def of(**more) -> Wishes:
        return Wishes(**{"ctx_size": 64, "parallel": 1, "cache_dir": str(tmp_path), "threads": 1, **more})

    return of


def opened(path, wishes):
    return load(path, wishes, Log(stream=io.StringIO()))


def answer(loaded, ids, tokens=3):
    """The tokens of a greedy answer, and what the runner says at its end."""
    loaded.engine.start()
    try:
        session = loaded.engine.submit(Request("a", tuple(ids), tokens))
        return [e.token for e in session.events() if isinstance(e, Token)], loaded.runner.status()
    finally:
        loaded.engine.stop()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tokens_are_the_cpus_at_every_residency_and_every_expert_is_counted_once(name, wishes):
    path, ids = path_of(name, "gguf"), oracle(name).ids[:5]
    cpu = opened(path, wishes(device="cpu"))
    expected, _ = answer(cpu, ids)
    total, hits = cpu.model.store.nbytes, []
    for share in (1.0, 0.5, 0.1, 0.0):
        # A budget above what all experts need is no more than that.
        gib = (2.0 if share == 1.0 else share) * total / GIB
        loaded = opened(path, wishes(device="emulator", vram_gib=gib, adapt_every=2))
        assert isinstance(loaded.runner.ops, GpuOps)
        tokens, status = answer(loaded, ids)
        assert tokens == expected
        experts, shape = status["experts"], loaded.model.shape
        calls = status["rows"] * len(loaded.model.store.banks) * shape.top_k
        assert experts["hits"] + experts["misses_pcie"] + experts["misses_cpu"] == calls > 0
        assert experts["disagreement"] == "" and status["device"] == "host emulator"
        hits.append(experts["hits"] / calls)
    assert hits[0] == 1.0 > hits[1] > hits[3] == 0.0 and hits[1] > hits[2]


@pytest.mark.parametrize("name", ["qwen4_exp"])
def test_drafts_change_no_token_and_rejected_rows_are_undone(name, wishes, monkeypatch):
    monkeypatch.setattr("strata.checks.drafted.RATES", (0.7, 0.4))
    path, ids = headed(name, "gguf"), tuple(oracle(name).ids[:5])
    said, offered = {}, {}
    for device in ("cpu", "emulator"):
        loaded = opened(path, wishes(device=device, draft="3"))
        run = Drafted(loaded, [ids], 7)
        run.requests = run.requests[1:]  # the sampled answer
        said[device, "off"] = run.answers(Cell("off", False, 1), ())[0]
        texts = [ids + answer for answer in said[device, "off"].values()]
        for drafts in ("rehearsed", "3") if device == "emulator" else ():
            runner = run.runner(Cell(drafts, False, 1), texts)
            run.runner = lambda *_, runner=runner: runner
            said[device, drafts] = run.answers(Cell(drafts, False, 1), texts)[0]
            offered[drafts] = runner.status()["drafts"]["drafters"]
            del run.runner
        loaded.runner.close()
    assert len({tuple(sorted(answers.items())) for answers in said.values()}) == 1
    known = offered["rehearsed"]["rehearsed"]
    assert 0 < sum(known["accepted"].values()) < sum(known["offered"].values())
    assert sum(offered["3"]["mtp"]["offered"].values()) > 5


def test_drafts_that_nobody_checks_show(wishes):
    """Negative control."""
    path, ids = headed("qwen3_next", "gguf"), tuple(oracle("qwen3_next").ids[:5])
    loaded = opened(path, wishes(device="emulator", draft="3"))
    honest, gullible = Drafted(loaded, [ids], 7), Drafted(loaded, [ids], 7, tamper=True)
    expected = honest.answers(Cell("off", False, 1), ())[0]
    assert gullible.answers(Cell("3", False, 1), ())[0] != expected
    loaded.runner.close()


def test_a_drafting_head_is_brought_to_the_gpu_and_counted(wishes):
    path = headed("qwen3_next", "gguf")
    found = {}
    for draft in ("off", "2"):
        loaded = opened(path, wishes(device="emulator", draft=draft))
        assert isinstance(loaded.runner.ops, GpuOps)
        head = loaded.drafting.head if loaded.drafting else None
        kept, tables = loaded.runner.ops.device.residency._weights, set(map(id, row_tables(loaded.model)))
        assert all(id(weight) in kept for weight in dense_weights(loaded.model, head) if id(weight) not in tables)
        found[draft] = dense_bytes(loaded.model, head)
        loaded.runner.close()
    assert found["2"] > found["off"]


def test_a_prompt_of_more_rows_than_a_window_and_two_at_once(wishes):
    path, ids = path_of("qwen3_next", "gguf"), oracle("qwen3_next").ids[:37]
    cpu, gpu = (opened(path, wishes(device=d, parallel=2)).runner for d in ("cpu", "emulator"))
    for runner in (cpu, gpu):
        runner.logits = [runner.forward([Window(0, 0, tuple(ids), 2)])]
        runner.states.commit(0, len(ids), runner.ops)
        runner.logits.append(runner.forward([Window(0, len(ids), (3,), 1), Window(1, 0, (5, 7), 1)]))
        runner.close()
    assert all(same_bits(a, b) for a, b in zip(cpu.logits, gpu.logits, strict=True))


def test_a_flipped_bit_in_a_frame_shows(wishes):
    """Negative control."""
    path, ids = path_of("qwen3_moe", "gguf"), oracle("qwen3_moe").ids[:5]
    found = []
    for spoiled in (False, True):
        loaded = opened(path, wishes(device="emulator"))
        experts = loaded.model.experts.inner
        assert isinstance(experts, GpuExperts)
        if spoiled:
            flip_byte(experts)
        found.append(loaded.runner.forward([Window(0, 0, tuple(ids), 1)]))
        loaded.runner.close()
    assert not np.array_equal(*found)


def test_the_status_says_what_is_where_and_vram_is_given_back(wishes):
    loaded = opened(path_of("qwen3_moe", "gguf"), wishes(device="emulator"))
    plan = loaded.engine.status()["plan"]
    assert plan["device"] == {"value": "emulator", "reason": "as asked"}
    there = sum(len(bank.gate) for bank in loaded.model.store.banks.values())
    assert plan["resident"]["value"] == there and plan["vram_experts_mib"]["reason"].startswith("all experts fit")
    assert {"gpu", "vram_weights_mib", "vram_reserve_mib", "rows_in_ram_mib", "pin_mib"} <= set(plan)
    assert "experts" not in plan  # that line is about copies in RAM
    assert loaded.runner.order(Order("vram", mib=0)) == {"arena_mib": 0}
    assert loaded.runner.status()["experts"]["resident"] == 0
    assert loaded.runner.order(Order("vram", mib=64))["arena_mib"] >= 1
    assert loaded.runner.status()["experts"]["resident"] == there
    loaded.runner.close()


def test_what_was_learned_is_used_by_the_next_start(wishes, tmp_path):
    path = path_of("qwen3_moe", "gguf")
    asked = wishes(device="emulator")
    answer(opened(path, asked), oracle("qwen3_moe").ids[:5])  # fewer steps than a round has
    (kept,) = (tmp_path / "profiles").glob("*.json")
    assert max(map(max, json.loads(kept.read_text())["counts"])) > 0
    again = opened(path, asked)
    assert "the most used of earlier runs" in again.engine.status()["plan"]["resident"]["reason"]
    again.runner.close()


def test_a_model_without_experts_runs_there_too(wishes):
    path, ids = path_of("llama", "gguf"), oracle("llama").ids[:5]
    (expected, _), (found, status) = (answer(opened(path, wishes(device=d)), ids) for d in ("cpu", "emulator"))
    assert found == expected and status["experts"] == {}


def test_what_cannot_be_met_is_refused(wishes, monkeypatch):
    path = path_of("qwen3_moe", "gguf")
    with pytest.raises(UsageError, match=r"--device emulator: the naive operations run on the CPU"):
        opened(path, wishes(device="emulator", isa="naive", threads="auto"))
    with pytest.raises(UsageError, match=r"the GPU's memory is too small: weights that every step reads need \d+ MiB"):
        opened(path, wishes(device="emulator", vram_reserve_mib=1 << 24))
    monkeypatch.setattr("strata.runtime.on_device.no_cuda", lambda: "no driver")
    with pytest.raises(UsageError, match=r"--device cuda: no driver"):
        opened(path, wishes(device="cuda"))
    with pytest.raises(UsageError, match=r"--vram-gib: experts have no VRAM on a CPU \(no driver\)"):
        opened(path, wishes(vram_gib=1.0))
