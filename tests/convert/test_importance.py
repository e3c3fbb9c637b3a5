"""What is measured while a model reads a text, against plain sums over what its layers are known to read."""

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch

from convert.folders import config_of, state_of, write_folder
from convert.making import convert, fast, oracle, values
from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.gguf import open_gguf
from strata.checkpoint.locate import open_checkpoint
from strata.checkpoint.typed import string
from strata.checkpoint.writer import TensorSource, write_gguf
from strata.convert import imatrix
from strata.convert.calibrate import WINDOW, measure
from strata.convert.importance import LEAST, PRIOR_ROWS, Column, Columns, importance_of, unvisited
from strata.convert.tensors import Item
from strata.convert.write import read_items
from strata.core.errors import CheckpointError, UsageError
from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.ops import Ops
from strata.models.registry import build_model
from strata.quant.decode import dequantise
from strata.quant.encode import encode
from strata.quant.formats import FORMATS
from strata.runtime.runner import DeviceRunner

TOKENS = np.random.default_rng(0).integers(4, 199, 60).tolist()
Taps = dict[str, dict[str, npt.NDArray[np.float64]]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """qwen3_moe, qwen3_next, qwen4_exp as folders, and as GGUF files under NAME.gguf."""
    path, made = tmp_path_factory.mktemp("models"), {}
    for name in ("qwen3_moe", "qwen3_next", "qwen4_exp"):
        made[name] = write_folder(path / name, state_of(oracle(name)), config_of(oracle(name)))
        convert(made[name], path / f"{name}.gguf")
        made[f"{name}.gguf"] = path / f"{name}.gguf"
    return made


def measured(path: Path, ops: Ops | None = None) -> tuple[Columns, list[Item]]:
    with open_checkpoint(path) as checkpoint:
        items, _ = read_items(checkpoint)
        return measure(checkpoint, ops or fast(), TOKENS, items, lambda *_: None), items


def taps_of(checkpoint: Checkpoint) -> Taps:
    """What every operation reports, over the same tokens."""
    found: Taps = {}

    def tap(name: str, tensors: dict[str, torch.Tensor]) -> None:
        found[name] = {k: t.numpy().astype(np.float64) for k, t in tensors.items()}

    runner = DeviceRunner(build_model(checkpoint, fast()), fast(), Limits(1, len(TOKENS), len(TOKENS)), tap)
    runner.forward([Window(0, 0, tuple(TOKENS), len(TOKENS))])
    return found


def test_sums_are_those_of_what_layers_read(folders: dict[str, Path]) -> None:
    columns, _ = measured(folders["qwen3_moe"])
    with open_checkpoint(folders["qwen3_moe"]) as checkpoint:
        taps = taps_of(checkpoint)
    for layer in range(3):
        attn = columns[f"blk.{layer}.attn_k.weight"]
        assert np.allclose(attn.sums[0], (taps[f"blk.{layer}.attn_norm"]["y"] ** 2).sum(0)) and attn.rows[0] == 60
        x, ids = taps[f"blk.{layer}.router"]["x"], taps[f"blk.{layer}.router"]["ids"]
        assert np.allclose(columns[f"blk.{layer}.ffn_gate_inp.weight"].sums[0], (x**2).sum(0))
        up, down = (columns[f"blk.{layer}.ffn_{p}_exps.weight"] for p in ("up", "down"))
        state = state_of(oracle("qwen3_moe"))
        both = state[f"model.layers.{layer}.mlp.experts.gate_up_proj"].double().numpy()
        for e in range(8):
            rows = x[(ids == e).any(axis=1)]
            assert up.rows[e] == down.rows[e] == len(rows)
            assert np.allclose(up.sums[e], (rows**2).sum(0))
            gate, raised = rows @ both[e, :40].T, rows @ both[e, 40:].T
            inner = gate / (1 + np.exp(-gate)) * raised
            assert np.allclose(down.sums[e], (inner**2).sum(0), rtol=1e-4)
        assert up.rows.sum() == 60 * 3
    head = columns["output.weight"]
    assert head.rows[0] == 60 and np.allclose(head.sums[0], (taps["output_norm"]["y"] ** 2).sum(0))


@pytest.mark.parametrize("name", ["qwen3_next", "qwen4_exp"])
def test_folder_and_file_agree(folders: dict[str, Path], name: str) -> None:
    """Packed projections and tiled columns differ between the two; what a written tensor is weighed by must not."""
    ours, items = measured(folders[name])
    theirs, _ = measured(folders[f"{name}.gguf"])
    assert set(ours) == set(theirs)
    matrices = {i.name for i in items if len(i.shape) > 1 and "conv1d" not in i.name}
    assert matrices - set(ours) <= {"token_embd.weight", "per_layer_token_embd.weight"}
    for name_, column in ours.items():
        assert np.allclose(column.sums, theirs[name_].sums, rtol=1e-3, atol=1e-6), name_
    out = ours["blk.0.ssm_out.weight"].sums[0]
    if name == "qwen4_exp":
        grouped = out.reshape(3, 3, 16).swapaxes(0, 1).reshape(-1)
        assert not np.allclose(grouped, theirs["blk.0.ssm_out.weight"].sums[0], rtol=1e-2)  # control


def test_naive_and_native_operations_hear_the_same(folders: dict[str, Path]) -> None:
    ours, theirs = measured(folders["qwen3_moe"])[0], measured(folders["qwen3_moe"], NaiveOps())[0]
    assert all(
        np.array_equal(c.sums, theirs[n].sums) and np.array_equal(c.rows, theirs[n].rows) for n, c in ours.items()
    )


def stack(sums: list[list[float]], rows: list[int]) -> tuple[Columns, list[Item]]:
    item = Item("blk.0.ffn_gate_exps.weight", (len(rows), 4, len(sums[0])), lambda: iter(()), "F32")
    return {item.name: Column(np.array(sums), np.array(rows))}, [item]


def test_means_and_experts_that_few_tokens_visited() -> None:
    columns, items = stack([[8.0, 0.0], [0.0, 0.0], [20.0, 4.0]], [4, 0, 2])
    means = importance_of(columns, items)["blk.0.ffn_gate_exps.weight"]
    common = np.array([28.0, 4.0]) / 6
    for e, (sums, rows) in enumerate([((8, 0), 4), ((0, 0), 0), ((20, 4), 2)]):
        assert np.allclose(means[e], (np.array(sums) + PRIOR_ROWS * common) / (rows + PRIOR_ROWS))
    assert unvisited(columns) == 1
    single = Item("blk.0.attn_q.weight", (4, 3), lambda: iter(()), "F32")
    found = importance_of({single.name: Column(np.array([[6.0, 0.0, 3.0]]), np.array([3]))}, [single])
    assert np.allclose(found[single.name], [2, LEAST, 1])
    assert importance_of({single.name: Column(np.zeros((1, 3)), np.zeros(1, np.int64))}, [single]) == {}
    with pytest.raises(UsageError, match=r"attn_q.weight: expected 1 x 3, found 1 x 2"):
        importance_of({single.name: Column(np.zeros((1, 2)), np.ones(1, np.int64))}, [single])


def test_file_round_trip_and_other_reader(tmp_path: Path, folders: dict[str, Path]) -> None:
    columns, _ = measured(folders["qwen3_moe"])
    imatrix.save(tmp_path / "i.gguf", columns, ["text.txt"], 60, WINDOW)
    again = imatrix.load(tmp_path / "i.gguf")
    assert again.keys() == columns.keys()
    for name, column in columns.items():
        assert np.allclose(again[name].sums, column.sums, rtol=1e-6) and np.array_equal(again[name].rows, column.rows)
    read = {t.name: t for t in gguf.GGUFReader(tmp_path / "i.gguf").tensors}
    name = "blk.0.ffn_up_exps.weight"
    assert read[f"{name}.in_sum2"].data.shape == (8, 64) and read[f"{name}.counts"].data.shape == (8, 1)
    with open_gguf(tmp_path / "i.gguf") as file:
        assert file.types["imatrix.chunk_count"].value == 1 and file.types["general.type"] == string("imatrix")


def test_files_that_are_none(tmp_path: Path, folders: dict[str, Path]) -> None:
    with pytest.raises(CheckpointError, match=r"general.type: expected 'imatrix'"):
        imatrix.load(folders["qwen3_moe.gguf"])
    sums = TensorSource("a.weight.in_sum2", (2, 4), FORMATS["F32"], np.ones((2, 4), np.float32))
    write_gguf(tmp_path / "a.gguf", {"general.type": string("imatrix")}, [sums])
    with pytest.raises(CheckpointError, match=r"tensor a.weight.counts is missing"):
        imatrix.load(tmp_path / "a.gguf")
    for counts in (np.ones(3, np.float32), np.full(2, -1, np.float32)):
        source = TensorSource("a.weight.counts", (len(counts), 1), FORMATS["F32"], counts)
        write_gguf(tmp_path / "a.gguf", {"general.type": string("imatrix")}, [sums, source])
        with pytest.raises(CheckpointError, match=r"a.weight: expected finite sums and a count for each of 2 matrices"):
            imatrix.load(tmp_path / "a.gguf")


@pytest.mark.parametrize("name", ["IQ3_XXS", "Q2_K"])
def test_weighing_lowers_the_error_of_outputs(folders: dict[str, Path], name: str) -> None:
    """Where inputs have unequal sizes, W x is closer with the weights than without, and worse with wrong ones."""
    rng = np.random.default_rng(5)
    w = values(folders["qwen3_moe.gguf"], "blk.0.attn_q.weight").reshape(-1, 256)
    x = rng.standard_normal((64, 256)) * np.exp(1.5 * rng.standard_normal(256))
    right = np.mean(x**2, axis=0).astype(np.float32)

    def error(weights: npt.NDArray[np.float32] | None) -> float:
        made = dequantise(FORMATS[name], encode(FORMATS[name], w, weights))
        return float(np.mean((x @ (made - w).T) ** 2))

    assert error(right) < 0.8 * error(None) < error(np.ascontiguousarray(1 / right))
