"""The comparison with llama.cpp on a GPU: equal bytes, the outputs' reading, and the file that both read."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "device"))

from compare_llama import Comparison, Experts, Figure, llama_command, llama_rates, our_command, our_rates, parsed, table
from drawn_file import write

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
    ours = our_command(model, DECODE, 3 << 29, 5)
    assert ours[ours.index("--vram-gib") + 1] == "1.5000"


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
    with pytest.raises(ValueError, match="expected a JSON line"):
        our_rates("")


def engine(folder: Path, name: str, output: str, mib: int) -> Path:
    """A program that prints `output`; while it runs, nvidia-smi (another such program) tells `mib`."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {mib} > {folder}/used\nsleep 0.4\nprintf '%s' '{output}'\n")
    path.chmod(0o755)
    return path


def test_a_run_of_ours_that_had_more_vram_does_not_count(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ncat {tmp_path}/used\n")
    smi.chmod(0o755)
    (tmp_path / "used").write_text("0\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    llama = engine(tmp_path, "llama-bench", LLAMA % (512, "10, 12"), 1000)
    asked: list[int | None] = []

    def ours(*words: object) -> list[str]:
        asked.append(words[2])  # type: ignore[arg-type]
        return [str(engine(tmp_path, "ours", '{"runs": [22, 33, 44]}', 1300 if len(asked) == 1 else 1010))]

    monkeypatch.setattr("compare_llama.our_command", ours)
    comparison = Comparison(parsed([str(model), "--llama", str(llama), "--out", str(tmp_path / "out.jsonl")]))
    comparison.experts = Experts(2, 2 << 30)
    comparison.pair(DECODE, 1)
    assert asked == [1 << 30, (1 << 30) - (300 << 20)]
    kept = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(x["engine"], x["counts"], x["peak_vram_mib"]) for x in kept] == [
        ("llama.cpp", True, 1000), ("strata", False, 1300), ("strata", True, 1010)]  # fmt: skip
    assert "| 1 of 2 layers' | decode 4 | 33.0 (22.0 to 44.0) | 11.0 (10.0 to 12.0) | 3.00 | 1010 | 1000 |" in table(
        kept
    )


def test_a_process_that_fails_is_written_down_and_does_not_count(model: Path, tmp_path: Path) -> None:
    options = parsed([str(model), "--llama", "x", "--out", str(tmp_path / "out.jsonl")])
    line = Comparison(options).measure(
        {"engine": "llama.cpp", "test": "decode 4", "layers": 2, "layers_on_cpu": 1},
        [sys.executable, "-c", "import sys; sys.exit('no GPU')"],
    )
    assert not line["counts"] and "no GPU" in line["error"]
    assert "| decode 4 | - | - | - |" in table([line])
