"""Drafting heads against transformers where it has one, between containers, and against the specification."""

import numpy as np
import pytest
import torch

from models.heads import HEADED, HYBRIDS, draft_logits, generic, head_tensors, headed, load_headed
from models.made import Folder, Gguf, load, off, ops_of, oracle, path_of, same_bits
from strata.checkpoint.locate import open_checkpoint
from strata.core.errors import CheckpointError, UnsupportedError
from strata.kernels.naive_ops import NaiveOps
from strata.models.registry import build_draft_head, build_model
from strata.models.source import side_by_side

TOLERANCE = 3e-4


@torch.no_grad()
def expected(name: str) -> np.ndarray:
    """Logits of every pair of the oracle's text, from transformers."""
    made = oracle(name)
    ids = torch.tensor([made.ids])
    hidden = made.model.model(ids, use_cache=False).last_hidden_state[:, :-1]
    positions = torch.arange(hidden.shape[1])[None]
    out = generic(name).forward_layer(0, hidden, positions, None, input_ids=ids[:, 1:])
    return made.model.lm_head(out)[0].numpy()


@pytest.mark.parametrize("form", ["saved", "gguf"])
@pytest.mark.parametrize("name", HYBRIDS)
def test_drafts_are_those_of_transformers(name, form):
    found = draft_logits(headed(name, form), oracle(name).ids)
    assert off(found, expected(name)) <= TOLERANCE
    # Negative control: the pair of another row.
    assert off(found[1:], expected(name)[:-1]) > TOLERANCE


@pytest.mark.parametrize("name", HEADED)
def test_a_folder_a_file_and_a_file_apart_hold_the_same_head(name):
    ids = oracle(name).ids
    folder, file = (draft_logits(headed(name, form), ids) for form in ("saved", "gguf"))
    assert off(folder, file) <= TOLERANCE
    apart = draft_logits(path_of(name, "gguf"), ids, apart=headed(name, "apart"))
    assert same_bits(file, apart)


@pytest.mark.parametrize("name", HEADED)
def test_the_specification_gives_the_same_bits(name):
    ids, path = oracle(name).ids[7:23], headed(name, "gguf")
    assert same_bits(draft_logits(path, ids), draft_logits(path, ids, NaiveOps()))


@pytest.mark.parametrize("name", HEADED)
def test_the_trunk_is_the_same_with_and_without(name):
    with_head, without = load_headed(headed(name, "gguf"))[0], load(path_of(name, "gguf"))
    assert with_head.shape == without.shape and with_head.layouts == without.layouts
    assert len(with_head.store.banks) == len(without.store.banks) + 1


def test_a_model_without_a_head_has_none():
    for name in ("qwen4_exp", "llama"):
        checkpoint = open_checkpoint(path_of(name, "gguf"))
        model = build_model(checkpoint, ops_of())
        assert build_draft_head(checkpoint, model, ops_of()) is None


def test_a_file_apart_without_the_head_is_refused():
    checkpoint, other = (open_checkpoint(path_of("qwen4_exp", form)) for form in ("gguf", "saved"))
    model = build_model(checkpoint, ops_of())
    with pytest.raises(CheckpointError, match="no drafting head for a qwen4exp model of 8 layers"):
        build_draft_head(checkpoint, model, ops_of(), other)


@pytest.mark.parametrize("form", ["saved", "gguf"])
def test_a_tensor_of_the_head_without_a_place_is_refused(form):
    if form == "saved":
        made = Folder("qwen3_next")
        made.tensors |= {k: v.clone() for k, v in head_tensors("qwen3_next").items()}
        made.tensors["mtp.bias"] = torch.zeros(3)
        path, name = made.write(), "mtp.bias"
    else:
        made, name = Gguf("qwen3_next"), "blk.4.nextn.bias.weight"
        with_head = open_checkpoint(headed("qwen3_next", "gguf"))
        made.keys |= {"block_count": 5, "nextn_predict_layers": 1}
        made.tensors = {
            n: np.frombuffer(bytes(with_head.bytes_of(ref)), np.float32).reshape(ref.shape)
            for n, ref in with_head.tensors.items()
        }
        made.tensors[name] = np.zeros(3, np.float32)
        path = made.write()
    with pytest.raises(UnsupportedError, match=name):
        load_headed(path)


def test_matrices_of_different_kinds_do_not_lie_side_by_side():
    model = load(path_of("qwen3_next", "gguf"))
    left = model.embedding
    right = load(path_of("qwen3_moe", "gguf")).embedding
    assert side_by_side(left, left).cols == 2 * left.cols
    half = type(left)(right.format, right.rows - 1, right.cols, (right.planes[0][1:],))
    with pytest.raises(UnsupportedError, match="of one kind, found 199 rows in F32"):
        side_by_side(left, half)
