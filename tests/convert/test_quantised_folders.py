"""Folders in FP8 and NVFP4: as models, and as GGUF files, against the same numbers in plain floats."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from convert.folders import State, config_of, fp8_blocks, nvfp4, per_expert, state_of, write_folder
from convert.making import IDS, convert, fast, logits, oracle, values
from strata.checkpoint.gguf import open_gguf
from strata.checkpoint.locate import open_checkpoint
from strata.convert.types import Types
from strata.core.errors import CheckpointError, StrataError, UnsupportedError
from strata.kernels.naive_ops import NaiveOps
from strata.models.registry import build_model

KEPT = ("norm", "mlp.gate.", "embed_tokens", "shared_expert_gate", "conv1d", "A_log", "dt_bias", "ple_embedding")
SHORT = IDS[:8]


def matrices(state: State) -> list[str]:
    """What quantised checkpoints quantise."""
    return [n for n, t in state.items() if t.ndim > 1 and not any(k in n for k in KEPT) and t.is_floating_point()]


def in_blocks(state: State) -> tuple[State, State]:
    """(folder with one scale per 128 x 128, the same numbers in float32)."""
    stored, plain = dict(state), dict(state)
    for name in matrices(state):
        codes, scale, plain[name] = fp8_blocks(state[name])
        stored[name] = codes
        stored[f"{name}_scale_inv"] = scale
    return stored, plain


def with_one_scale(state: State) -> tuple[State, State]:
    """One scale per matrix."""
    stored, plain = dict(state), dict(state)
    for name in matrices(state):
        scale = torch.tensor(0.015625) * (1 + len(name) % 3)
        stored[name] = (state[name] / scale).to(torch.float8_e4m3fn)
        stored[name.replace(".weight", ".weight_scale")] = scale
        stored[name.replace(".weight", ".input_scale")] = torch.tensor(1.0)
        plain[name] = stored[name].float() * scale
    return stored, plain


def in_pairs(state: State) -> tuple[State, State]:
    """NVFP4, every matrix with a second scale of its own."""
    stored, plain = dict(state), dict(state)
    for name in matrices(state):
        packed, scale, second, plain[name] = nvfp4(state[name], 2.0 ** -(4 + len(name) % 3))
        base = name.removesuffix("weight") + "weight" if name.endswith(".weight") else f"{name}_weight"
        stored[name] = packed
        stored[f"{base}_scale"], stored[f"{base}_scale_2"] = scale, second
    return stored, plain


FORMS: dict[str, Callable[[State], tuple[State, State]]] = {
    "FP8 blocks": in_blocks,
    "FP8 with one scale": with_one_scale,
    "NVFP4": in_pairs,
}


def pair_of_folders(
    tmp_path: Path, name: str, form: str, stacked: bool = False, nested: bool = False
) -> tuple[Path, Path, State]:
    state = state_of(oracle(name, wide=True))
    stored, plain = FORMS[form](state if stacked else per_expert(state))
    config = config_of(oracle(name, wide=True))
    coded = write_folder(tmp_path / "coded", stored, config, nested)
    return coded, write_folder(tmp_path / "plain", plain, config, nested), plain


@pytest.mark.parametrize("form", ["FP8 blocks", "FP8 with one scale"])
@pytest.mark.parametrize("name", ["qwen3_moe", "qwen3_next"])
def test_fp8_folder_as_model_and_as_file(tmp_path: Path, name: str, form: str) -> None:
    nested = name == "qwen3_next"
    coded, plain, numbers = pair_of_folders(tmp_path, name, form, nested=nested)
    want = logits(plain, SHORT, fast())
    # a scale of the whole matrix multiplies the product, not the weights: another rounding
    assert np.abs(logits(coded, SHORT, fast()) - want).max() <= (0 if form == "FP8 blocks" else 1e-4)
    convert(coded, tmp_path / "full.gguf", Types("F32"))
    assert np.abs(logits(tmp_path / "full.gguf", SHORT, fast()) - want).max() < 1e-4
    got = values(tmp_path / "full.gguf", "blk.2.ffn_up_exps.weight")
    assert np.array_equal(got[3], numbers["model.layers.2.mlp.experts.3.up_proj.weight"].numpy())
    choices = convert(coded, tmp_path / "kept.gguf")
    kept = {c.item.name: c for c in choices}["blk.0.ffn_down_exps.weight"]
    assert (kept.format.name, kept.asked, kept.reason) == ("BF16", "FP8", "GGUF has no FP8")


@pytest.mark.parametrize("form", ["FP8 blocks", "NVFP4"])
def test_stacked_experts_have_stacked_scales(tmp_path: Path, form: str) -> None:
    coded, plain, numbers = pair_of_folders(tmp_path, "qwen3_moe", form, stacked=True)
    convert(coded, tmp_path / "full.gguf", Types("F32"))
    want = numbers["model.layers.1.mlp.experts.gate_up_proj"].numpy()
    for part, rows in (("gate", slice(0, 256)), ("up", slice(256, 512))):
        assert np.array_equal(values(tmp_path / "full.gguf", f"blk.1.ffn_{part}_exps.weight"), want[:, rows])
    if form == "FP8 blocks":
        assert np.array_equal(logits(coded, SHORT, fast()), logits(plain, SHORT, fast()))


@pytest.mark.parametrize("stacked", [False, True])
def test_nvfp4_is_repacked_without_loss(tmp_path: Path, stacked: bool) -> None:
    coded, _, numbers = pair_of_folders(tmp_path, "qwen3_moe", "NVFP4", stacked)
    choices = {c.item.name: c for c in convert(coded, tmp_path / "kept.gguf")}
    assert choices["blk.0.attn_q.weight"].format.name == "NVFP4" and choices["blk.0.attn_q.weight"].copied
    with open_gguf(tmp_path / "kept.gguf") as file:
        assert file.tensors["blk.0.ffn_down_exps.scale"].shape == (8,)
        assert file.tensors["blk.0.attn_q.scale"].shape == (1,)
    assert np.array_equal(
        values(tmp_path / "kept.gguf", "blk.0.attn_q.weight"), numbers["model.layers.0.self_attn.q_proj.weight"].numpy()
    )
    down = values(tmp_path / "kept.gguf", "blk.2.ffn_down_exps.weight")
    want = (
        numbers["model.layers.2.mlp.experts.down_proj"]
        if stacked
        else torch.stack([numbers[f"model.layers.2.mlp.experts.{e}.down_proj.weight"] for e in range(8)])
    )
    assert np.array_equal(down, want.numpy())
    # the same integers and scales: the canonical product gives the same bits
    assert np.array_equal(logits(tmp_path / "kept.gguf", SHORT, fast()), logits(coded, SHORT, fast()))


def test_nvfp4_where_heads_are_tiled(tmp_path: Path) -> None:
    coded, _, numbers = pair_of_folders(tmp_path, "qwen3_5_moe", "NVFP4")
    choices = {c.item.name: c for c in convert(coded, tmp_path / "kept.gguf")}
    plain = convert(write_folder(tmp_path / "f", numbers, config_of(oracle("qwen3_5_moe", True))), tmp_path / "p.gguf")
    assert plain
    for leaf in ("attn_qkv", "attn_gate", "ssm_out"):
        assert choices[f"blk.0.{leaf}.weight"].copied
        got = values(tmp_path / "kept.gguf", f"blk.0.{leaf}.weight")
        assert np.array_equal(got, values(tmp_path / "p.gguf", f"blk.0.{leaf}.weight"))


def test_a_wrong_scale_shows(tmp_path: Path) -> None:
    coded, plain, _ = pair_of_folders(tmp_path, "qwen3_moe", "FP8 blocks")
    stored, _ = in_blocks(per_expert(state_of(oracle("qwen3_moe", wide=True))))
    stored["model.layers.0.self_attn.q_proj.weight_scale_inv"][0, 1] *= 2
    wrong = write_folder(tmp_path / "wrong", stored, config_of(oracle("qwen3_moe", wide=True)))
    assert np.abs(logits(wrong, SHORT, fast()) - logits(plain, SHORT, fast())).max() > 1e-2
    assert coded.is_dir()


@pytest.mark.parametrize("common", [True, False])
def test_fp8_table_of_ngrams(tmp_path: Path, common: bool) -> None:
    state, base = state_of(oracle("qwen4_exp")), "model.layers.1.ple.ple_embedding.ngram_embedding"
    table, scale = state.pop(f"{base}.weight"), torch.tensor(0.0078125)
    codes = (table / scale).to(torch.float8_e4m3fn)
    parts = torch.chunk(codes, 4)
    plain, stored = dict(state), dict(state)
    plain[f"{base}.weight"] = codes.float() * scale
    for i, part in enumerate(parts):
        stored[f"{base}.shard_{i}.weight"] = part.contiguous()
        if not common:
            stored[f"{base}.shard_{i}.weight_scale"] = scale.clone()
    if common:
        stored[f"{base}.weight_scale"] = scale
    config = config_of(oracle("qwen4_exp"))
    a, b = write_folder(tmp_path / "a", stored, config), write_folder(tmp_path / "b", plain, config)
    assert np.array_equal(logits(a, IDS, fast()), logits(b, IDS, fast()))
    convert(a, tmp_path / "t.gguf", Types("F32"))
    assert np.array_equal(values(tmp_path / "t.gguf", "per_layer_token_embd.weight"), plain[f"{base}.weight"].numpy())


Q = "model.layers.0.self_attn.q_proj.weight"


def broken(tmp_path: Path, form: str, change: Callable[[State, dict[str, Any]], None]) -> Path:
    stored, _ = FORMS[form](per_expert(state_of(oracle("qwen3_moe", wide=True))))
    config = config_of(oracle("qwen3_moe", wide=True))
    change(stored, config)
    return write_folder(tmp_path / "broken", stored, config)


def put(name: str, tensor: torch.Tensor) -> Callable[[State, dict[str, Any]], None]:
    return lambda stored, config: stored.update({name: tensor})


def drop(name: str) -> Callable[[State, dict[str, Any]], None]:
    return lambda stored, config: stored.__delitem__(name)


def small_blocks(stored: State, config: dict[str, Any]) -> None:
    config["quantization_config"] = {"weight_block_size": [64, 64]}


@pytest.mark.parametrize(
    ("form", "change", "error", "text"),
    [
        ("FP8 blocks", put(Q + "_scale_inv", torch.ones(3, 2)), CheckpointError, r"q_proj.weight_scale_inv: expected"),
        ("FP8 blocks", small_blocks, UnsupportedError, r"weight_block_size: expected \[128, 128\], found \[64, 64\]"),
        (
            "FP8 blocks",
            put(Q, torch.zeros(256, 256)),
            CheckpointError,
            r"q_proj.weight: expected float8_e4m3fn, found F32",
        ),
        (
            "FP8 with one scale",
            put(Q + "_scale", torch.ones(256, 1)),
            UnsupportedError,
            r"weight_scale: expected one value",
        ),
        ("NVFP4", put(Q, torch.zeros(256, 128)), CheckpointError, r"q_proj.weight: expected uint8 pairs, found F32"),
        ("NVFP4", drop(Q + "_scale"), CheckpointError, r"q_proj.weight: expected a weight_scale beside weight_scale_2"),
        ("NVFP4", drop(Q + "_scale_2"), CheckpointError, r"q_proj.weight: expected float8_e4m3fn, found U8"),
    ],
)
def test_what_is_wrong_with_scales_is_named(
    tmp_path: Path, form: str, change: Callable[[State, dict[str, Any]], None], error: type[StrataError], text: str
) -> None:
    source = broken(tmp_path, form, change)
    with pytest.raises(error, match=text), open_checkpoint(source) as checkpoint:
        build_model(checkpoint, NaiveOps())
    with pytest.raises(error, match=text):
        convert(source, tmp_path / "out.gguf", Types("F32"))
    assert not (tmp_path / "out.gguf").exists()


def test_scales_that_gguf_cannot_hold(tmp_path: Path) -> None:
    scales = torch.full((256, 16), 1.0)
    scales[3, 2] = -1
    source = broken(tmp_path, "NVFP4", put(Q + "_scale", scales.to(torch.float8_e4m3fn)))
    with pytest.raises(UnsupportedError, match=r"q_proj.weight: NVFP4: a scale is negative or not a number"):
        convert(source, tmp_path / "out.gguf")
    assert list(tmp_path.glob("*.gguf")) == list(tmp_path.glob(".*.part")) == []
