"""Writing and requantising GGUF files."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from convert.folders import config_of, state_of, write_folder
from convert.making import convert, fast, logits, oracle, values
from strata.checkpoint.gguf import open_gguf
from strata.checkpoint.typed import ValueType, array, f32, string, u32
from strata.checkpoint.writer import TensorSource, write_gguf
from strata.convert.gguf_tensors import gguf_items
from strata.convert.tensors import Item
from strata.convert.types import Types, choose
from strata.convert.write import EQUAL, weighed, write_model
from strata.core.errors import CheckpointError, UsageError
from strata.quant.encode import encode
from strata.quant.formats import FORMATS


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """qwen3_moe with widths of 256, in float32."""
    built, path = oracle("qwen3_moe", wide=True), tmp_path_factory.mktemp("plain")
    convert(write_folder(path / "folder", state_of(built), config_of(built)), path / "plain.gguf")
    return path / "plain.gguf"


@pytest.mark.parametrize("name", ["Q4_K", "IQ3_S", "IQ4_NL", "MXFP4", "Q2_0", "Q8_0", "BF16"])
def test_matrices_are_what_the_encoder_makes(tmp_path: Path, plain: Path, name: str) -> None:
    convert(plain, tmp_path / "q.gguf", Types("F32", patterns=[(r"blk\.1\.attn_k\.|blk\.2\.ffn_up", name)]))
    for tensor in ("blk.1.attn_k.weight", "blk.2.ffn_up_exps.weight"):
        want = values(plain, tensor)
        raw = encode(FORMATS[name], want.reshape(-1, want.shape[-1]))
        with open_gguf(tmp_path / "q.gguf") as file:
            assert file.tensors[tensor].format.name == name
            assert file.bytes_of(file.tensors[tensor]).tobytes() == raw.tobytes()
            assert file.types["general.quantization_version"] == u32(2)
    assert np.array_equal(values(tmp_path / "q.gguf", "output_norm.weight"), values(plain, "output_norm.weight"))


def test_what_has_the_asked_format_is_copied(tmp_path: Path, plain: Path) -> None:
    convert(plain, tmp_path / "a.gguf", Types("Q4_K", down="Q6_K", embedding="Q4_K"))
    again = convert(tmp_path / "a.gguf", tmp_path / "b.gguf", Types("Q4_K", down="Q8_0", embedding="Q4_K"))
    changed = {c.item.name for c in again if not c.copied}
    assert changed == {f"blk.{i}.ffn_down_exps.weight" for i in range(3)}
    with open_gguf(tmp_path / "a.gguf") as a, open_gguf(tmp_path / "b.gguf") as b:
        same = [n for n in a.tensors if np.array_equal(a.bytes_of(a.tensors[n]), b.bytes_of(b.tensors[n]))]
        assert set(a.tensors) - set(same) == changed


def test_nothing_depends_on_threads(tmp_path: Path, plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strata.convert.tensors.PIECE_VALUES", 4096)
    types = Types("Q4_K", patterns=[(r"blk\.0\.ffn_(up|down)_exps", "IQ3_S"), ("blk.1.ffn_up_exps", "IQ4_NL")])
    for threads in (1, 4):
        convert(plain, tmp_path / "same.gguf", types, threads=threads)
        (tmp_path / "same.gguf").rename(tmp_path / f"{threads}.bin")
    assert (tmp_path / "1.bin").read_bytes() == (tmp_path / "4.bin").read_bytes()


def test_progress_reaches_the_end(tmp_path: Path, plain: Path) -> None:
    said: list[tuple[str, int, int]] = []
    with open_gguf(plain) as file:
        choices = [choose(i, Types("Q8_0")) for i in gguf_items(file)]
        write_model(tmp_path / "p.gguf", choices, file.types, lambda *step: said.append(step), threads=2)
    total = sum(c.item.count for c in choices)
    assert [done for _, done, _ in said] == sorted(done for _, done, _ in said)
    assert said[-1][1:] == (total, total) and {name for name, _, _ in said} == {c.item.name for c in choices}


def second_scales(path: Path, scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A file with an NVFP4 stack and second scales; returns the numbers it holds."""
    write_scaled(path, scales)
    return values(path, "blk.0.ffn_up_exps.weight")


def write_scaled(path: Path, scales: npt.NDArray[np.float32]) -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, 64)).astype(np.float32)
    raw = encode(FORMATS["NVFP4"], x.reshape(-1, 64))
    keys = {"general.architecture": string("qwen3moe"), "qwen3moe.block_count": u32(1)}
    tensors = [
        TensorSource("blk.0.ffn_up_exps.weight", (2, 4, 64), FORMATS["NVFP4"], raw),
        TensorSource("blk.0.ffn_up_exps.scale", scales.shape, FORMATS["F32"], scales),
        TensorSource("blk.0.ffn_up_exps.input_scale", (1,), FORMATS["F32"], np.ones(1, np.float32)),
    ]
    write_gguf(path, keys, tensors)


def test_second_scales_are_kept_or_folded_in(tmp_path: Path) -> None:
    want = second_scales(tmp_path / "s.gguf", np.array([0.5, 3], np.float32))
    convert(tmp_path / "s.gguf", tmp_path / "kept.gguf", Types("NVFP4"))
    convert(tmp_path / "s.gguf", tmp_path / "folded.gguf", Types("F32"))
    with open_gguf(tmp_path / "kept.gguf") as kept, open_gguf(tmp_path / "folded.gguf") as folded:
        assert set(kept.tensors) == {"blk.0.ffn_up_exps.weight", "blk.0.ffn_up_exps.scale"}
        assert set(folded.tensors) == {"blk.0.ffn_up_exps.weight"}
    for name in ("kept", "folded"):
        assert np.array_equal(values(tmp_path / f"{name}.gguf", "blk.0.ffn_up_exps.weight"), want)
    one = second_scales(tmp_path / "one.gguf", np.full(1, 0.5, np.float32))
    convert(tmp_path / "one.gguf", tmp_path / "spread.gguf", Types("F32"))
    assert np.array_equal(values(tmp_path / "spread.gguf", "blk.0.ffn_up_exps.weight"), one)
    with pytest.raises(CheckpointError, match=r"ffn_up_exps.scale: expected 1 or 2 values, found 3"):
        write_scaled(tmp_path / "bad.gguf", np.ones(3, np.float32))
        convert(tmp_path / "bad.gguf", tmp_path / "out.gguf", Types("F32"))


def test_small_weights_keep_their_precision_in_nvfp4(tmp_path: Path) -> None:
    x = (0.002 * np.random.default_rng(1).standard_normal((64, 256))).astype(np.float32)

    def error(name: str) -> float:
        item = Item(name, x.shape, lambda: iter([(0, x)]), "F32")
        write_model(tmp_path / "n.gguf", [choose(item, Types("NVFP4"))], {}, lambda *_: None)
        return float(np.sqrt(np.mean((values(tmp_path / "n.gguf", name) - x) ** 2)) / x.std())

    assert error("blk.0.attn_q.weight") < 0.11
    assert error("blk.0.unknown.weight") > 0.15  # control: a name whose second scale no reader knows


def test_formats_that_need_importance(tmp_path: Path, plain: Path) -> None:
    types = Types("F32", patterns=[("attn_q.weight", "IQ2_XXS")])
    with pytest.raises(
        UsageError, match=r"tensor blk.0.attn_q.weight: IQ2_XXS needs to know which columns matter"
    ) as e:
        convert(plain, tmp_path / "q.gguf", types)
    assert e.value.hint is not None and "--calibrate" in e.value.hint
    assert not (tmp_path / "q.gguf").exists()
    some = {"blk.0.attn_q.weight": np.ones(256, np.float32)}
    reasons = {c.item.name: c.reason for c in convert(plain, tmp_path / "q.gguf", types, importance=some)}
    assert reasons["blk.0.attn_q.weight"] == "" and reasons["blk.1.attn_q.weight"] == EQUAL
    assert "output_norm.weight" in reasons and EQUAL not in reasons["output_norm.weight"]


def test_importance_reaches_the_expert_it_belongs_to(tmp_path: Path, plain: Path) -> None:
    name, rng = "blk.1.ffn_gate_exps.weight", np.random.default_rng(3)
    weights = (rng.random((8, 256)) ** 4 + 1e-3).astype(np.float32)
    types = Types("F32", patterns=[(name, "IQ3_XXS")])
    convert(plain, tmp_path / "q.gguf", types, importance={name: weights})
    x = values(plain, name)
    with open_gguf(tmp_path / "q.gguf") as file:
        raw = file.bytes_of(file.tensors[name]).reshape(8, -1)
        for e in range(8):
            assert raw[e].tobytes() == encode(FORMATS["IQ3_XXS"], x[e], weights[e]).tobytes()
        assert raw[0].tobytes() != encode(FORMATS["IQ3_XXS"], x[0], weights[1]).tobytes()
    with pytest.raises(UsageError, match=r"importance data for 255 columns"):
        convert(plain, tmp_path / "r.gguf", types, importance={name: weights[:, 1:]})
    assert not (tmp_path / "r.gguf").exists()


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    x = np.full((4, 32), np.nan, np.float32)
    item = Item("blk.0.attn_q.weight", x.shape, lambda: iter([(0, x)]), "F32")
    (tmp_path / "old.gguf").write_bytes(b"old")
    with pytest.raises(UsageError, match=r"tensor blk.0.attn_q.weight: Q8_0 cannot hold nan"):
        write_model(tmp_path / "old.gguf", weighed([choose(item, Types("Q8_0"))], None), {}, lambda *_: None)
    assert (tmp_path / "old.gguf").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_alignment_and_split_keys_belong_to_the_source(tmp_path: Path) -> None:
    keys = {"general.architecture": string("qwen3moe"), "qwen3moe.block_count": u32(1), "split.count": u32(1)}
    keys |= {"x.f": f32(0.1), "x.many": array(ValueType.UINT64, [1 << 60])}
    x = np.ones((2, 32), np.float32)
    write_gguf(tmp_path / "a.gguf", keys, [TensorSource("blk.0.attn_q.weight", (2, 32), FORMATS["F32"], x)], 64)
    convert(tmp_path / "a.gguf", tmp_path / "b.gguf", Types("Q8_0"))
    with open_gguf(tmp_path / "b.gguf") as file:
        assert "split.count" not in file.types and "general.alignment" not in file.types
        assert file.types["x.f"] == f32(0.1) and file.types["x.many"] == array(ValueType.UINT64, [1 << 60])


def test_a_requantised_model_still_says_the_same(tmp_path: Path, plain: Path) -> None:
    want, errors = logits(plain, ops=fast()), {}
    for name in ("Q8_0", "Q2_K"):
        convert(plain, tmp_path / "q.gguf", Types(name))
        errors[name] = float(np.abs(logits(tmp_path / "q.gguf", ops=fast()) - want).mean() / np.abs(want).mean())
    assert 0 < errors["Q8_0"] < 0.15 and errors["Q2_K"] > 4 * errors["Q8_0"]
