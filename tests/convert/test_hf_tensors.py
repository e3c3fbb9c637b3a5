"""Folders become GGUF files that mean the same: against the folder itself, and against a second converter."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from convert.folders import config_of, per_expert, state_of, write_folder
from convert.making import convert, logits, oracle
from oracles.build import ORACLES
from oracles.gguf_writer import write
from strata.checkpoint.gguf import GgufCheckpoint, open_gguf
from strata.convert import transforms
from strata.core.errors import CheckpointError, UnsupportedError

HYBRIDS = ("qwen3_next", "qwen3_5_moe", "qwen4_exp")


def folder(tmp_path: Path, name: str, form: str) -> Path:
    """stacked: experts in one tensor; single: one by one, as save_pretrained writes them; nested: multimodal names."""
    state, config = state_of(oracle(name)), config_of(oracle(name))
    if form == "single":
        state = per_expert(state)
        if name == "mixtral":
            state = {
                n.replace(".mlp.", ".block_sparse_moe.")
                .replace("gate_proj.w", "w1.w")
                .replace("up_proj.w", "w3.w")
                .replace("down_proj.w", "w2.w"): t
                for n, t in state.items()
            }
    return write_folder(tmp_path / f"{name}-{form}", state, config, nested=form == "nested")


@pytest.mark.parametrize("name", ORACLES)
def test_same_logits_as_the_folder_and_same_tensors_as_another_converter(tmp_path: Path, name: str) -> None:
    source = folder(tmp_path, name, "single")
    convert(source, tmp_path / "ours.gguf")
    assert np.abs(logits(tmp_path / "ours.gguf") - logits(source)).max() < 2e-5
    write(oracle(name), tmp_path / "theirs.gguf")
    with open_gguf(tmp_path / "ours.gguf") as ours, open_gguf(tmp_path / "theirs.gguf") as theirs:
        assert same_tensors(ours, theirs)
        if name != "mixtral":
            for key, typed in theirs.types.items():
                if not key.endswith(("file_type", "feed_forward_length")):
                    assert ours.types[key] == typed, key


def same_tensors(a: GgufCheckpoint, b: GgufCheckpoint) -> bool:
    """Equal names, shapes, formats and bytes (decay rates to the last bit but one: two exponentials)."""
    return set(a.tensors) == set(b.tensors) and all(
        ref.shape == b.tensors[n].shape and ref.format == b.tensors[n].format and same_bytes(a, b, n)
        for n, ref in a.tensors.items()
    )


def same_bytes(a: GgufCheckpoint, b: GgufCheckpoint, name: str) -> bool:
    x, y = (np.ascontiguousarray(f.bytes_of(f.tensors[name])) for f in (a, b))
    if name.endswith("ssm_a"):
        return bool(np.allclose(x.view(np.float32), y.view(np.float32), rtol=3e-7, atol=0))
    return np.array_equal(x, y)


@pytest.mark.parametrize("form", ["stacked", "nested"])
@pytest.mark.parametrize("name", ["qwen3_moe", "qwen4_exp", "mixtral"])
def test_every_form_of_a_folder_gives_the_same_file(tmp_path: Path, name: str, form: str) -> None:
    convert(folder(tmp_path, name, "single"), tmp_path / "a.gguf")
    convert(folder(tmp_path, name, form), tmp_path / "b.gguf")
    with open_gguf(tmp_path / "a.gguf") as a, open_gguf(tmp_path / "b.gguf") as b:
        assert same_tensors(a, b) and a.types.keys() == b.types.keys()


def test_untiled_heads_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder(tmp_path, "qwen3_5_moe", "stacked")
    monkeypatch.setattr(transforms, "TILED", ())
    convert(source, tmp_path / "wrong.gguf")
    assert np.abs(logits(tmp_path / "wrong.gguf") - logits(source)).max() > 0.1


def with_drafting(name: str) -> dict[str, object]:
    """The oracle's tensors with a drafting layer made of its last attention layer, under the names of 2.4."""
    state = state_of(oracle(name))
    last = oracle(name).model.config.num_hidden_layers - 1
    prefix = f"model.layers.{last}."
    for full, tensor in list(state.items()):
        if full.startswith(prefix):
            state[f"mtp.layers.0.{full.removeprefix(prefix)}"] = tensor.clone()
    hidden, embed = oracle(name).model.config.hidden_size, state["model.embed_tokens.weight"]
    state["mtp.pre_fc_norm_embedding.weight"] = embed[0].clone()
    if name == "qwen4_exp":
        for side in ("embedding", "hidden"):
            state[f"mtp.fc_{side}.weight"] = embed[:hidden].clone() * (2 if side == "hidden" else 1)
        for full, tensor in list(state.items()):
            if full.startswith("model.hyper_connection_mixer."):
                state[full.replace("model.", "mtp.")] = tensor.clone()
        state["mtp.pre_fc_norm_hidden.weight"] = state["mtp.hyper_connection_mixer.hc_norm.weight"].clone()
    else:
        state["mtp.fc.weight"] = embed[:hidden].repeat(1, 2).clone()
        state["mtp.pre_fc_norm_hidden.weight"] = embed[1].clone()
        state["mtp.norm.weight"] = embed[2].clone()
    return dict(state)


@pytest.mark.parametrize("name", HYBRIDS)
def test_drafting_layer(tmp_path: Path, name: str) -> None:
    state, layers = with_drafting(name), oracle(name).model.config.num_hidden_layers
    source = write_folder(tmp_path / "mtp", state, config_of(oracle(name)))  # type: ignore[arg-type]
    convert(source, tmp_path / "m.gguf")
    read = {t.name: t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    b = f"blk.{layers}."
    ours = {n.removeprefix(b) for n in read if n.startswith(b)}
    trunk = {n.removeprefix(f"blk.{layers - 1}.") for n in read if n.startswith(f"blk.{layers - 1}.")}
    own = {"nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight"}
    own |= (
        {f"nextn.hc_head_{p}.weight" for p in ("norm", "down", "up")}
        if name == "qwen4_exp"
        else {"nextn.shared_head_norm.weight"}
    )
    assert ours == trunk | own
    enorm = state["mtp.pre_fc_norm_embedding.weight"].numpy() + 1  # type: ignore[attr-defined]
    assert np.array_equal(read[b + "nextn.enorm.weight"].data, enorm)
    joint = read[b + "nextn.eh_proj.weight"].data
    hidden = oracle(name).model.config.hidden_size
    assert joint.shape == (hidden, 2 * hidden)
    factor = 2 if name == "qwen4_exp" else 1
    assert np.array_equal(joint[:, hidden:], factor * joint[:, :hidden])  # the embedding's half comes first
    for leaf in ("attn_q_norm.weight", "ffn_gate_exps.weight", "ffn_gate_inp_shexp.weight"):
        assert np.array_equal(read[b + leaf].data, read[f"blk.{layers - 1}.{leaf}"].data)
    assert np.array_equal(logits(tmp_path / "m.gguf"), logits(plain(tmp_path, name)))


def plain(tmp_path: Path, name: str) -> Path:
    """The same oracle's file without a drafting layer."""
    convert(folder(tmp_path, name, "stacked"), tmp_path / "plain.gguf")
    return tmp_path / "plain.gguf"


@pytest.mark.parametrize("name", ["qwen3_next", "qwen4_exp"])
def test_drafting_layer_left_out(tmp_path: Path, name: str) -> None:
    source = write_folder(tmp_path / "mtp", with_drafting(name), config_of(oracle(name)))  # type: ignore[arg-type]
    convert(source, tmp_path / "short.gguf", drafting=False)
    convert(source, tmp_path / "full.gguf")
    convert(tmp_path / "full.gguf", tmp_path / "again.gguf", drafting=False)
    with open_gguf(plain(tmp_path, name)) as want:
        for other in ("short", "again"):
            with open_gguf(tmp_path / f"{other}.gguf") as got:
                assert same_tensors(got, want), other
                for key, typed in want.types.items():
                    assert key == "general.name" or got.types[key] == typed


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    state = state_of(oracle("qwen3_moe"))
    state["model.layers.0.mlp.extra.weight"] = state["model.norm.weight"].clone()
    source = write_folder(tmp_path / "m", state, config_of(oracle("qwen3_moe")))
    with pytest.raises(UnsupportedError, match=r"tensor model.layers.0.mlp.extra.weight has no place in a qwen3moe"):
        convert(source, tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()


def test_experts_of_different_shapes_are_refused(tmp_path: Path) -> None:
    state = per_expert(state_of(oracle("qwen3_moe")))
    name = "model.layers.1.mlp.experts.3.up_proj.weight"
    state[name] = state[name][:-1].contiguous()
    source = write_folder(tmp_path / "m", state, config_of(oracle("qwen3_moe")))
    with pytest.raises(CheckpointError, match=r"experts.3.up_proj.weight: expected 40 x 64, found 39 x 64"):
        convert(source, tmp_path / "out.gguf")


def test_what_gguf_cannot_say_is_refused(tmp_path: Path) -> None:
    config = config_of(oracle("qwen3_moe")) | {"norm_topk_prob": False}
    source = write_folder(tmp_path / "m", state_of(oracle("qwen3_moe")), config)
    with pytest.raises(UnsupportedError, match="norm_topk_prob: GGUF cannot express false"):
        convert(source, tmp_path / "out.gguf")
