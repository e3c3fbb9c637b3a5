"""Whole models against transformers in float32, and the compiled operations against their specification."""

import numpy as np
import pytest
import torch

from models.made import Folder, Gguf, changed, logits_of, off, oracle, path_of, same_bits
from oracles.build import ORACLES
from oracles.gguf_writer import tile
from strata.kernels.naive_ops import NaiveOps

TOLERANCE = 3e-4
FORMS = ("saved", "gguf")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ORACLES)
def test_logits_are_those_of_transformers(name, form):
    made = oracle(name)
    expected = made.logits().numpy()
    assert off(logits_of(path_of(name, form), made.ids), expected) <= TOLERANCE


@pytest.mark.parametrize("name", ORACLES)
def test_the_specification_gives_the_same_bits(name):
    """16 tokens around the end-of-text token at 17, beyond the selection's budget of 8."""
    ids, path = oracle(name).ids[7:23], path_of(name, "gguf")
    assert same_bits(logits_of(path, ids), logits_of(path, ids, NaiveOps(), (11, 5)))


@pytest.mark.parametrize("name", ORACLES)
def test_one_changed_weight_shows(name):
    """Negative control: the comparison sees a single value of the last layer's output matrix."""

    def change(made):
        matrix = next(n for n in sorted(made.tensors, reverse=True) if n.startswith("blk.2.") and "down" in n)
        made.tensors[matrix] = made.tensors[matrix].copy()
        made.tensors[matrix].reshape(-1)[: 40 * 8] *= -1

    made = oracle(name)
    found = logits_of(changed(Gguf(name), change), made.ids)
    assert off(found, made.logits().numpy()) > TOLERANCE


def test_blocks_of_equal_score_are_kept_from_the_end():
    """All scores are 0: transformers leaves the order of ties open, so it is told ours here (the later block wins)."""
    made, budget = oracle("qwen4_exp"), 2
    weights = [m.index_qk_proj.weight for n, m in made.model.named_modules() if n.endswith("indexer")]
    kept = [w.detach().clone() for w in weights]
    plain = torch.Tensor.topk

    def later_first(scores, k, dim=-1, **rest):
        if scores.ndim != 1 or bool(scores.any()):
            return plain(scores, k, dim=dim, **rest)
        order = torch.arange(len(scores) - 1, -1, -1)[:k]
        return torch.return_types.topk((scores[order], order))

    def flat(made):
        for name in [n for n in made.tensors if n.endswith("indexer.q_proj.weight")]:
            made.tensors[name] = np.zeros_like(made.tensors[name])

    try:
        with torch.no_grad():
            for w in weights:
                w[: 4 * 24] = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "topk", later_first)
            expected = made.logits().numpy()
        first_wins = made.logits().numpy()
    finally:
        with torch.no_grad():
            for w, value in zip(weights, kept, strict=True):
                w.copy_(value)
    found = logits_of(changed(Gguf("qwen4_exp"), flat), made.ids)
    assert off(found, expected) <= TOLERANCE
    # Negative control: another order of the ties gives other logits as soon as a block is dropped.
    dropped = (budget + 1) * 4
    assert off(found[dropped:], first_wins[dropped:]) > TOLERANCE


def fuse_attention(made):
    for i in range(3):
        parts = [made.tensors.pop(f"blk.{i}.attn_{side}.weight") for side in "qkv"]
        made.tensors[f"blk.{i}.attn_qkv.weight"] = np.concatenate(parts)


def fuse_experts(made):
    for i in range(3):
        parts = [made.tensors.pop(f"blk.{i}.ffn_{side}_exps.weight") for side in ("gate", "up")]
        made.tensors[f"blk.{i}.ffn_gate_up_exps.weight"] = np.concatenate(parts, 1)


def pack_inputs(made):
    """The older files of Qwen3-Next keep q, k, v and z by key head in one matrix, as safetensors do."""
    state = oracle("qwen3_next").model.state_dict()
    for i in range(3):
        del made.tensors[f"blk.{i}.attn_qkv.weight"], made.tensors[f"blk.{i}.attn_gate.weight"]
        made.tensors[f"blk.{i}.ssm_in.weight"] = state[f"model.layers.{i}.linear_attn.in_proj_qkvz.weight"].numpy()


def stack_streams(made):
    for name in [n for n in made.tensors if "hc_" in n and n.endswith("norm.weight")]:
        made.tensors[name] = made.tensors[name].reshape(4, -1)


def norm_shapes(made):
    """Convolutions may keep a middle axis of one."""
    for name in [n for n in made.tensors if n.endswith("conv1d.weight")]:
        made.tensors[name] = made.tensors[name][:, None]


def drafting_layer(made):
    made.keys["nextn_predict_layers"] = 1
    made.keys["block_count"] += 1
    made.tensors["blk.3.nextn.eh_proj.weight"] = np.zeros((64, 128), np.float32)
    made.tensors["blk.3.attn_q.weight"] = np.zeros((96, 64), np.float32)


VARIANTS = {
    "fused q, k, v": ("llama", fuse_attention),
    "fused q, k, v with norms": ("qwen3_moe", fuse_attention),
    "fused gate and up": ("qwen3_moe", fuse_experts),
    "packed delta-net inputs": ("qwen3_next", pack_inputs),
    "norms of streams as rows": ("qwen4_exp", stack_streams),
    "convolutions with a middle axis": ("qwen4_exp", norm_shapes),
    "a drafting layer behind the trunk": ("qwen3_moe", drafting_layer),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_forms_of_the_same_weights_give_the_same_bits(variant):
    name, change = VARIANTS[variant]
    ids = oracle(name).ids[:30]
    assert same_bits(logits_of(changed(Gguf(name), change), ids), logits_of(path_of(name, "gguf"), ids))


@pytest.mark.parametrize("as_flags", [True, False])
def test_a_list_of_recurrent_layers_wins_over_the_interval(as_flags):
    def change(made):
        listed = [(i + 1) % 4 != 0 for i in range(4)]
        kinds = type(next(iter(made.arrays.values()))[1])
        made.arrays["attention.recurrent_layers"] = (
            (listed, kinds.BOOL) if as_flags else ([int(b) for b in listed], kinds.UINT32)
        )
        made.keys["full_attention_interval"] = 2

    ids = oracle("qwen3_5_moe").ids[:30]
    path = changed(Gguf("qwen3_5_moe"), change)
    assert same_bits(logits_of(path, ids), logits_of(path_of("qwen3_5_moe", "gguf"), ids))


def test_a_file_without_an_output_matrix_uses_the_embedding():
    def tied(made):
        del made.tensors["output.weight"]

    def doubled(made):
        made.tensors["output.weight"] = made.tensors["token_embd.weight"]

    ids = oracle("llama").ids
    ours, theirs = (logits_of(changed(Gguf("llama"), change), ids) for change in (tied, doubled))
    assert same_bits(ours, theirs)
    assert not same_bits(ours, logits_of(path_of("llama", "gguf"), ids))


def test_a_folder_without_an_output_matrix_is_tied_when_it_says_so():
    def tied(made):
        made.config["tie_word_embeddings"] = True
        made.config.pop("quantization_config", None)
        del made.tensors["lm_head.weight"]

    ids = oracle("llama").ids
    embedding = oracle("llama").model.get_input_embeddings().weight
    head = oracle("llama").model.lm_head
    with torch.no_grad():
        kept = head.weight.clone()
        head.weight.copy_(embedding)
        expected = oracle("llama").logits().numpy()
        head.weight.copy_(kept)
    assert off(logits_of(changed(Folder("llama"), tied), ids), expected) <= TOLERANCE


def test_shards_of_the_ngram_table_are_joined_by_number_not_by_name():
    """Twelve shards: by name, 10 and 11 would come before 2."""

    def split(made):
        base = "model.layers.1.ple.ple_embedding.ngram_embedding"
        names = sort_by_number(n for n in made.tensors if n.startswith(base))
        parts = [made.tensors.pop(n) for n in names]
        for i, part in enumerate(torch.tensor_split(torch.cat(parts), 12)):
            made.tensors[f"{base}.shard_{i}.weight"] = part.clone()

    made = oracle("qwen4_exp")
    path = changed(Folder("qwen4_exp"), split)
    assert same_bits(logits_of(path, made.ids[:30]), logits_of(path_of("qwen4_exp", "saved"), made.ids[:30]))


def sort_by_number(names):
    return sorted(names, key=lambda n: int("".join(c for c in n.rsplit(".", 2)[-2] if c.isdigit()) or 0))


def test_value_heads_in_the_wrong_order_show():
    """Negative control: tiled and grouped heads are different models."""

    def grouped(made):
        name = "blk.0.attn_gate.weight"
        made.tensors[name] = tile(made.tensors[name], 3, 16)

    made = oracle("qwen3_5_moe")
    assert off(logits_of(changed(Gguf("qwen3_5_moe"), grouped), made.ids), made.logits().numpy()) > TOLERANCE
