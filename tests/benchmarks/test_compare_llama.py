"""The comparison with llama.cpp on a GPU: equal bytes, the outputs' reading, and the file that both read."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "device"))

from compare_llama import Comparison, Experts, Figure, limits_of, llama_command, llama_rates, parsed, table
from drawn_file import write
from ours_at_budgets import Budgets, Limit

from strata.checkpoint.locate import open_checkpoint
from strata.convert.shapes import shape_of
from strata.convert.synth import plan_synth
from strata.convert.types import Types

LLAMA = '{"build_commit": "x", "n_ubatch": %d, "samples_ts": [%s]}\n'
"""As llama-bench prints it with -o jsonl, most keys left out."""
DECODE = Figure("decode", 4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiny layers."""
    path = tmp_path_factory.mktemp("drawn") / "tiny.gguf"
    write(path, shape_of("qwen3moe", "tiny", 2, None), Types("Q4_K", None, "Q6_K"))
    return path


def test_the_drawn_file_holds_what_synth_would_write(model: Path) -> None:
    planned = {c.item.name: (c.item.shape, c.format.name) for c in plan_synth(shape_of("qwen3moe", "tiny", 2, None),
               Types("Q4_K", None, "Q6_K"))}  # fmt: skip
    found = {t.name: (tuple(int(n) for n in reversed(t.shape)), t.tensor_type.name) for t in GGUFReader(model).tensors}
    assert found == planned
    routers = [np.array(t.data) for t in GGUFReader(model).tensors if "ffn_gate_inp" in t.name]
    assert len(routers) == 2 and not np.array_equal(*routers)


def test_the_same_seed_gives_the_same_file_and_another_another(model: Path, tmp_path: Path) -> None:
    shape, types = shape_of("qwen3moe", "tiny", 2, None), Types("Q4_K", None, "Q6_K")
    write(tmp_path / "same.gguf", shape, types)
    write(tmp_path / "other.gguf", shape, types, seed=2)
    assert (tmp_path / "same.gguf").read_bytes() == model.read_bytes()
    assert (tmp_path / "other.gguf").read_bytes() != model.read_bytes()


def test_both_engines_get_the_same_bytes_of_experts(model: Path) -> None:
    experts = Experts.of(model)
    stored = sum(t.nbytes for name, t in open_checkpoint(model).tensors.items() if "_exps" in name)
    assert (experts.layers, experts.total_bytes) == (2, stored)
    assert [experts.on_cpu(share) for share in (1.0, 0.5, 0.0)] == [0, 1, 2]
    assert [experts.vram_bytes(n) for n in (0, 1, 2)] == [stored, stored // 2, 0]
    theirs = llama_command(Path("llama-bench"), model, DECODE, 1, 5)
    assert theirs[theirs.index("-ncmoe") + 1] == "1"
    line = {"test": "decode 4", "layers_on_cpu": 1, "rates": [1.0], "peak_vram_mib": 700}
    (limit,) = limits_of([line, line | {"rates": []}], Experts(2, 6 << 30))
    assert limit == {"layers_on_cpu": 1, "kind": "decode", "size": 4, "expert_mib": 3 << 10, "most_mib": 700}


def test_a_model_without_experts_is_refused(tmp_path: Path, model: Path) -> None:
    class Dense:
        tensors: dict[str, object] = {}  # noqa: RUF012

    with pytest.MonkeyPatch.context() as patch, pytest.raises(ValueError, match="expected a model with experts"):
        patch.setattr("compare_llama.open_checkpoint", lambda _: Dense())
        Experts.of(model)


def test_the_faster_micro_batch_counts() -> None:
    assert llama_rates("log line\n" + LLAMA % (512, "10, 12") + LLAMA % (2048, "30, 20")) == [30.0, 20.0]
    with pytest.raises(ValueError, match="expected JSON lines"):
        llama_rates("error: failed to load model\n")


@pytest.fixture
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an nvidia-smi that is found first tells of the memory in use, in MiB."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ncat {tmp_path}/used\n")
    smi.chmod(0o755)
    (tmp_path / "used").write_text("0\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "used"


@pytest.mark.parametrize("block", [1, 64])
def test_a_run_of_ours_that_had_more_vram_does_not_count(
    block: int, used: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []

    def resize(self: Budgets, mib: int | None) -> int:
        asked.append(mib)
        return 0 if mib is None else mib // block * block

    def measure(self: Budgets, limit: Limit, arena_mib: int) -> dict[str, object]:
        return {"peak_vram_mib": arena_mib + 300, "rates": [1.0], "kind": limit.kind, "at": limit.layers_on_cpu}

    monkeypatch.setattr(Budgets, "resize", resize)
    monkeypatch.setattr(Budgets, "measure", measure)
    budgets = Budgets.__new__(Budgets)
    budgets.deadline = float("inf")
    budgets.limits = [Limit(9, "decode", 4, 1000, 1100), Limit(5, "decode", 4, 2000, 2100), Limit(0, "decode", 4, 3, 9)]
    budgets.run()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counts = [(x["at"], x["counts"]) for x in lines]
    assert asked[0] == 1000 and asked[-1] is None
    assert counts[0] == (9, False) and {at for at, counted in counts if counted} == {9, 5, 0}
    if block == 1:
        assert asked == [1000, 800, 1800, None]


def test_llamas_lines_and_the_table(model: Path, tmp_path: Path, used: Path) -> None:
    llama = tmp_path / "llama-bench"
    llama.write_text(f"#!/bin/sh\necho 1000 > {used}\nsleep 0.5\nprintf '%s' '{LLAMA % (512, '10, 12')}'\n")
    llama.chmod(0o755)
    comparison = Comparison(parsed([str(model), "--llama", str(llama), "--out", str(tmp_path / "out.jsonl")]))
    theirs = comparison.llama(DECODE, 1)
    assert (theirs["rates"], theirs["peak_vram_mib"], theirs["counts"]) == ([10.0, 12.0], 1000, True)
    ours = {"engine": "strata", "test": "decode 4", "layers_on_cpu": 1, "peak_vram_mib": 990}
    comparison.kept(ours | {"rates": [99.0], "counts": False})
    comparison.kept(ours | {"rates": [22.0, 33.0, 44.0], "counts": True})
    kept = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert "| 1 of 2 layers' | decode 4 | 33.0 (22.0 to 44.0) | 11.0 (10.0 to 12.0) | 3.00 | 990 | 1000 |" in table(
        kept
    )


def test_a_process_that_fails_is_written_down_and_does_not_count(model: Path, tmp_path: Path) -> None:
    llama = tmp_path / "llama-bench"
    llama.write_text("#!/bin/sh\necho no GPU >&2\nexit 1\n")
    llama.chmod(0o755)
    comparison = Comparison(parsed([str(model), "--llama", str(llama), "--out", str(tmp_path / "out.jsonl")]))
    line = comparison.llama(DECODE, 1)
    assert not line["counts"] and "no GPU" in line["error"]
    assert "| decode 4 | - | - | - |" in table([line])
    assert limits_of([line], comparison.experts) == []


def test_ours_runs_at_growing_budgets_from_one_start(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        {
            "engine": "llama.cpp",
            "test": "prompt 5",
            "layers_on_cpu": n,
            "rates": [1.0],
            "peak_vram_mib": 1,
            "counts": True,
        }
        for n in (0, 1)
    ]
    theirs, out = tmp_path / "theirs.jsonl", tmp_path / "out.jsonl"
    theirs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [str(model), "--theirs", str(theirs), "--device", "emulator", "--repeats", "1", "--out", str(out)]
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    Comparison(parsed(words)).run()
    kept = [json.loads(line) for line in out.read_text().splitlines()]
    ours = [line for line in kept if line["engine"] == "strata"]
    assert [(x["layers_on_cpu"], x["test"], x["counts"]) for x in ours] == [
        (1, "prompt 5", True),
        (0, "prompt 5", True),
    ]
    assert ours[0]["misses_cpu"] + ours[0]["misses_pcie"] > 0 == ours[1]["misses_cpu"] + ours[1]["misses_pcie"]
    assert ours[0]["resident"] < ours[1]["resident"] == 32
