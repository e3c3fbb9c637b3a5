"""Files that would give wrong output are refused, by file and by the name of what is wrong."""

import re

import numpy as np
import pytest
import torch
from gguf import GGUFValueType as V

from models.made import Folder, Gguf, changed, load, oracle, path_of
from oracles.build import ORACLES
from strata.core.errors import CheckpointError, StrataError, UnsupportedError


def without(name):
    return lambda made: made.tensors.pop(name)


def resized(name, change):
    def cut(made):
        made.tensors[name] = change(made.tensors[name])

    return cut


def added(name, *shape):
    def add(made):
        zeros = torch.zeros(shape) if isinstance(made, Folder) else np.zeros(shape, np.float32)
        made.tensors[name] = zeros

    return add


def key(name, value):
    return lambda made: made.keys.update({name: value})


def array(name, values, kind):
    return lambda made: made.arrays.update({name: (values, kind)})


def config(**values):
    return lambda made: made.config.update(values)


def padded(made):
    """Expert rows padded with zeros to whole blocks, as some uploads have them."""
    name = "blk.1.ffn_down_exps.weight"
    made.tensors[name] = np.pad(made.tensors[name], ((0, 0), (0, 0), (0, 24)))


def architecture(made):
    made.architecture = "mamba2"
    made.keys.clear()


GGUF = {
    "a missing tensor": ("llama", without("blk.1.attn_k.weight"), "tensor blk.1.attn_k.weight is missing"),
    "a missing expert stack": ("qwen3_moe", without("blk.2.ffn_up_exps.weight"), "blk.2.ffn_up_exps.weight is missing"),
    "a missing vocabulary": ("llama", without("token_embd.weight"), "tensor token_embd.weight is missing"),
    "a missing n-gram table": (
        "qwen4_exp",
        without("per_layer_token_embd.weight"),
        "per_layer_token_embd.weight is mis",
    ),
    "a short matrix": (
        "llama",
        resized("blk.1.attn_k.weight", lambda x: x[:-1]),
        "tensor blk.1.attn_k.weight: expected shape [48, 64], found [47, 64]",
    ),
    "a turned matrix": (
        "llama",
        resized("blk.1.attn_output.weight", lambda x: x.T),
        "tensor blk.1.attn_output.weight: expected shape [64, 96], found [96, 64]",
    ),
    "a turned convolution": (
        "qwen3_next",
        resized("blk.0.ssm_conv1d.weight", lambda x: x.T),
        "tensor blk.0.ssm_conv1d.weight: expected shape [240, 4], found [4, 240]",
    ),
    "a short norm": (
        "llama",
        resized("blk.2.ffn_norm.weight", lambda x: x[:-1]),
        "tensor blk.2.ffn_norm.weight: expected shape [64], found [63]",
    ),
    "a short n-gram table": (
        "qwen4_exp",
        resized("per_layer_token_embd.weight", lambda x: x[:1000]),
        "tensor per_layer_token_embd.weight: expected",
    ),
    "too few experts": (
        "qwen3_moe",
        resized("blk.0.ffn_gate_exps.weight", lambda x: x[:7]),
        "tensor blk.0.ffn_gate_exps.weight: expected shape [8, 40, 64], found [7, 40, 64]",
    ),
    "padded expert rows": (
        "qwen3_moe",
        padded,
        "tensor blk.1.ffn_down_exps.weight: rows are padded to 64 values, the model has 40",
    ),
    "a bias": ("qwen3_moe", added("blk.0.attn_q.bias", 96), "tensor blk.0.attn_q.bias: this architecture has no place"),
    "two biases": ("llama", lambda m: [added(f"blk.{i}.attn_q.bias", 96)(m) for i in range(2)], "bias and 1 more"),
    "an architecture that is not built": ("llama", architecture, "architecture 'mamba2' is not built"),
    "yarn": ("llama", key("rope.scaling.type", "yarn"), "key llama.rope.scaling.type: rotary scaling 'yarn'"),
    "a linear factor without a type": (
        "llama",
        key("rope.scaling.factor", 4.0),
        "llama.rope.scaling.factor: rotary scal",
    ),
    "an older linear factor": (
        "llama",
        key("rope.scale_linear", 2.0),
        "key llama.rope.scale_linear: rotary scaling by 2",
    ),
    "experts gated by sigmoid": (
        "qwen3_moe",
        key("expert_gating_func", 2),
        "qwen3moe.expert_gating_func: only softmax",
    ),
    "heads that cannot share": (
        "llama",
        key("attention.head_count_kv", 3),
        "4 heads cannot share 3 key and value heads",
    ),
    "more key heads than heads": (
        "llama",
        key("attention.head_count_kv", 8),
        "llama.attention.head_count_kv: expected",
    ),
    "an odd number of rotary dims": ("llama", key("rope.dimension_count", 7), "7 rotary dims: expected an even number"),
    "key and value heads of two sizes": ("llama", key("attention.value_length", 16), "key and value heads differ"),
    "value heads that cannot be paired": (
        "qwen3_next",
        key("ssm.group_count", 2),
        "9 value heads cannot be shared out",
    ),
    "more experts used than there are": (
        "qwen3_moe",
        key("expert_used_count", 9),
        "qwen3moe.expert_used_count: expected",
    ),
    "no experts where there must be some": ("qwen3_moe", key("expert_count", 0), "key qwen3moe.expert_count: expected"),
    "too short a list of layers": (
        "qwen3_next",
        array("attention.recurrent_layers", [True, True], V.BOOL),
        "qwen3next.attention.recurrent_layers: expected one entry per layer",
    ),
    "another layer's kind": (
        "qwen3_next",
        array("attention.recurrent_layers", [True, True, False, False], V.BOOL),
        "tensor blk.2.attn_qkv.weight: expected shape [384, 64], found [240, 64]",
    ),
    "too few ratios": (
        "qwen4_exp",
        array("attention.compress_ratios", [0, 0, 0, 4], V.UINT32),
        "attention.compress_ratios: expected one entry per layer",
    ),
    "two n-gram layers": ("qwen4_exp", array("ple.layers", [1, 2], V.UINT32), "one n-gram layer is supported, found 2"),
    "an n-gram layer that has no tensors": (
        "qwen4_exp",
        array("ple.layers", [2], V.UINT32),
        "tensor blk.2.ple_key.weight is missing",
    ),
    "too few hash multipliers": (
        "qwen4_exp",
        array("ple.layer_multipliers", [3, 5], V.UINT64),
        "qwen4exp.ple.layer_multipliers: expected an array of 3 integers",
    ),
}


@pytest.mark.parametrize("case", GGUF)
def test_a_gguf_file_is_refused(case):
    name, change, words = GGUF[case]
    path = changed(Gguf(name), change)
    with pytest.raises(StrataError, match=re.escape(words)) as raised:
        load(path)
    assert isinstance(raised.value, CheckpointError | UnsupportedError)
    assert str(path) in raised.value.message and "\n" not in raised.value.message


def rope(**values):
    def change(made):
        made.config["rope_parameters"] = {"rope_theta": 100.0, **values}

    return change


def older(**values):
    def change(made):
        del made.config["rope_parameters"]
        made.config["rope_scaling"] = values

    return change


Q = "model.layers.0.self_attn.q_proj"
FOLDERS = {
    "a missing tensor": ("llama", without(f"{Q}.weight"), f"tensor {Q}.weight is missing"),
    "a missing expert": (
        "mixtral",
        without("model.layers.1.block_sparse_moe.experts.5.w2.weight"),
        "model.layers.1.block_sparse_moe.experts.5.w2.weight is missing",
    ),
    "a short matrix": (
        "llama",
        resized(f"{Q}.weight", lambda x: x[:-1]),
        f"tensor {Q}.weight: expected shape [96, 64]",
    ),
    "a bias": ("llama", added(f"{Q}.bias", 96), f"tensor {Q}.bias: this architecture has no place"),
    "an output matrix that is missing, not tied": (
        "llama",
        lambda made: (made.tensors.pop("lm_head.weight"), made.config.update(tie_word_embeddings=False)),
        "tensor lm_head.weight is missing",
    ),
    "an architecture that is not built": (
        "llama",
        config(model_type="gpt_neox"),
        "architecture 'gpt_neox' is not built",
    ),
    "yarn": ("llama", rope(rope_type="yarn", factor=4.0), "key rope_parameters.rope_type: rotary scaling 'yarn'"),
    "llama3's scaling": ("llama", rope(rope_type="llama3", factor=8.0), "rotary scaling 'llama3' is not built"),
    "an older linear scaling": (
        "llama",
        older(type="linear", factor=2.0),
        "key rope_scaling.type: rotary scaling 'linear'",
    ),
    "an older yarn": (
        "llama",
        older(rope_type="yarn", factor=2.0),
        "key rope_scaling.rope_type: rotary scaling 'yarn'",
    ),
    "attention with bias": ("qwen3_moe", config(attention_bias=True), "key attention_bias"),
    "feed-forward blocks with bias": ("llama", config(mlp_bias=True), "key mlp_bias"),
    "another activation": ("llama", config(hidden_act="gelu"), "key hidden_act: expected 'silu', found 'gelu'"),
    "sliding windows": ("mixtral", config(sliding_window=4096), "key sliding_window"),
    "layers without experts": ("qwen3_moe", config(mlp_only_layers=[1]), "key mlp_only_layers"),
    "heads that cannot share": ("llama", config(num_key_value_heads=3), "4 heads cannot share 3 key and value heads"),
    "value heads that cannot be paired": (
        "qwen3_next",
        config(linear_num_key_heads=2),
        "9 value heads cannot be shared",
    ),
    "a layer type that is not known": (
        "qwen3_next",
        config(layer_types=["linear_attention"] * 3 + ["sliding_attention"]),
        "key layer_types: expected 4 known types",
    ),
    "several ends of text for the hash": ("qwen4_exp", config(eos_token_id=[3, 4]), "the n-gram hash needs one id"),
    "no end of text for the hash": ("qwen4_exp", config(eos_token_id=None), "the n-gram hash needs one id, found None"),
    "an end of text beyond the vocabulary": ("qwen4_exp", config(eos_token_id=199), "needs one id, found 199"),
    "an output gate of nonsense": (
        "qwen4_exp",
        config(output_gate_type="relu"),
        "key output_gate_type: expected sigmoid or silu, found 'relu'",
    ),
    "two index key heads": ("qwen4_exp", config(indexer_kv_heads=2), "key indexer_kv_heads: one key head is supported"),
    "a budget of broken blocks": ("qwen4_exp", config(indexer_budget=10), "10 tokens are no whole blocks of 4"),
    "rotary dims beyond the indexer's": (
        "qwen4_exp",
        lambda made: made.config["rope_parameters"].update(partial_rotary_factor=1.0),
        "32 rotary dims do not fit the indexer's 24",
    ),
    "a shard that is missing": (
        "qwen4_exp",
        without("model.layers.1.ple.ple_embedding.ngram_embedding.shard_2.weight"),
        "tensor model.layers.1.ple.ple_embedding.ngram_embedding.shard_2.weight is missing",
    ),
    "a stacked matrix with rows to spare": (
        "qwen4_exp",
        resized("model.layers.3.self_attn.indexer.index_qk_proj.weight", lambda x: torch.cat([x, x[:24]])),
        "index_qk_proj.weight: expected 120 rows, found 144",
    ),
    "a stacked matrix whose parts overlap": (
        "qwen4_exp",
        resized("model.layers.3.self_attn.indexer.index_qk_proj.weight", lambda x: x[:110]),
        "index_qk_proj.weight: expected 120 rows, found 110",
    ),
    "a hash without its buffer": (
        "qwen4_exp",
        without("model.layers.1.ple.ple_embedding.ngram_heads_offsets"),
        "ngram_heads_offsets is missing",
    ),
    "a hash buffer of floats": (
        "qwen4_exp",
        resized("model.layers.1.ple.ple_embedding.ngram_heads_offsets", lambda x: x.float()),
        "ngram_heads_offsets: expected int64, found F32",
    ),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_is_refused(case):
    name, change, words = FOLDERS[case]
    path = changed(Folder(name), change)
    with pytest.raises(StrataError, match=re.escape(words)) as raised:
        load(path)
    assert isinstance(raised.value, CheckpointError | UnsupportedError)
    assert str(path) in raised.value.message and "\n" not in raised.value.message


@pytest.mark.parametrize("name", ORACLES)
def test_every_tensor_is_needed(name):
    """No tensor of a file is read without being checked for: each one that goes missing is named (or is tied)."""
    whole = Gguf(name)
    missing = [n for n in whole.tensors if n.startswith(("blk.1.", "blk.3.", "output", "token", "per_layer"))]
    for gone in missing:
        kept = whole.tensors.pop(gone)
        path = whole.write()
        whole.tensors[gone] = kept
        if gone == "output.weight":
            load(path)
            continue
        with pytest.raises(CheckpointError, match=re.escape(gone)):
            load(path)
        path.unlink()


def test_the_oracles_themselves_are_accepted():
    """Negative control of all refusals above."""
    for name in ORACLES:
        assert load(path_of(name, "gguf")).shape == load(path_of(name, "saved")).shape
        assert load(changed(Folder(name), lambda _: None)).shape.vocabulary == oracle(name).model.config.vocab_size
