"""Tiny oracles with a drafting head, as folders and GGUF files, and the head's passes without an engine.

transformers' generic MtpModel is the head of the hybrids. It has none for qwen4_exp: there the head is noise around a
copy of a layer's shapes, and what it must give is held to the demo model (tests/demo).
"""

import functools
from pathlib import Path

import numpy as np
import torch
from transformers.modeling_layers import MtpModel

from models.made import Folder, Gguf, ops_of, oracle
from oracles.build import randomise
from oracles.gguf_writer import Transformer
from strata.checkpoint.locate import open_checkpoint
from strata.core.window import Window
from strata.kernels.ops import Ops
from strata.layers.batch import Batch
from strata.models.base import Model
from strata.models.drafting import DraftHead
from strata.models.registry import build_draft_head, build_model
from strata.runtime.pack import StepInputs, StepShape
from strata.state.sequence import SequenceStates

HYBRIDS = ("qwen3_next", "qwen3_5_moe")
HEADED = (*HYBRIDS, "qwen4_exp")
GENERIC = {
    "enorm": "pre_fc_norm_embedding",
    "hnorm": "pre_fc_norm_hidden",
    "eh_proj": "fc",
    "post_norm": "norm",
}


@functools.cache
def generic(name: str) -> torch.nn.Module:
    """transformers' head on the oracle's embedding and output."""
    model = oracle(name).model
    config = model.config
    config.num_mtp_layers, config.mtp_layer_types = 1, ["full_attention"]
    head = MtpModel(model, 1).eval()
    randomise(head.layers, 7)
    return head


@functools.cache
def head_tensors(name: str) -> dict[str, torch.Tensor]:
    """By their names in a safetensors folder."""
    if name in HYBRIDS:
        found = {}
        for key, value in generic(name).layers[0].state_dict().items():
            first, _, rest = key.partition(".")
            full = f"mtp.layers.0.{rest}" if first == "mtp_block" else f"mtp.{GENERIC[first]}.{rest}"
            found[full] = value.detach()
        return found
    c, generator = oracle(name).model.config, torch.Generator().manual_seed(5)
    layer = next(i for i, kind in enumerate(c.layer_types) if kind != "linear_attention")
    copied = {k: v for k, v in oracle(name).model.state_dict().items() if k.startswith(f"model.layers.{layer}.")}
    shapes = {f"mtp.layers.0.{k.split('.', 3)[3]}": v.shape for k, v in copied.items() if ".ple." not in k}
    mixer = {k: v for k, v in oracle(name).model.state_dict().items() if k.startswith("model.hyper_connection_mixer.")}
    shapes |= {k.replace("model.", "mtp.", 1): v.shape for k, v in mixer.items() if "inject" not in k}
    wide = c.hc_count * c.hidden_size
    shapes |= {
        "mtp.fc_embedding.weight": (c.hidden_size, c.hidden_size),
        "mtp.fc_hidden.weight": (c.hidden_size, c.hidden_size),
        "mtp.pre_fc_norm_embedding.weight": (c.hidden_size,),
        "mtp.pre_fc_norm_hidden.weight": (wide,),
    }
    return {k: torch.randn(s, generator=generator) * 1.5 / s[-1] ** 0.5 for k, s in sorted(shapes.items())}


@functools.cache
def headed(name: str, form: str) -> Path:
    """The oracle's file with its head: "saved" (a folder), "gguf" (trailing block), "apart" (the head's GGUF alone)."""
    if form == "saved":
        folder = Folder(name)
        folder.tensors |= {k: v.clone() for k, v in head_tensors(name).items()}
        return folder.write()
    made = Gguf(name)
    layers = made.keys["block_count"]
    extra = gguf_tensors(name, layers)
    made.keys |= {"block_count": layers + 1, "nextn_predict_layers": 1}
    for key, (values, _) in made.arrays.items():
        if key == "attention.compress_ratios":
            values.append(0)
    made.tensors = {**({} if form == "apart" else made.tensors), **extra}
    return made.write()


def gguf_tensors(name: str, layer: int) -> dict[str, np.ndarray]:
    """The head as the converter of llama.cpp writes it."""
    writer = Transformer(oracle(name))
    writer.state = {k: v.numpy() for k, v in head_tensors(name).items()}
    p, b, n = "mtp.layers.0.", f"blk.{layer}.", f"blk.{layer}.nextn."
    writer.norms(p, b)
    writer.attention(p, b)
    writer.feed(p, b)
    writer.extras(p, b)
    for leaf, short in (
        ("pre_fc_norm_embedding", "enorm"),
        ("pre_fc_norm_hidden", "hnorm"),
        ("norm", "shared_head_norm"),
    ):
        writer.copy(f"mtp.{leaf}.weight", f"{n}{short}.weight", norm=True)
    for leaf, short in (("hc_norm", "norm"), ("input_mix_weight_down", "down"), ("input_mix_weight_up", "up")):
        writer.copy(f"mtp.hyper_connection_mixer.{leaf}.weight", f"{n}hc_head_{short}.weight", leaf == "hc_norm")
    writer.copy("mtp.fc.weight", f"{n}eh_proj.weight")
    if "mtp.fc_hidden.weight" in writer.state:
        halves = [writer.state[f"mtp.fc_{half}.weight"] for half in ("embedding", "hidden")]
        writer.out[f"{n}eh_proj.weight"] = np.concatenate(halves, axis=1)
    return writer.out


def load_headed(path: Path, ops: Ops | None = None, apart: Path | None = None) -> tuple[Model, DraftHead]:
    checkpoint, used = open_checkpoint(path), ops or ops_of()
    model = build_model(checkpoint, used)
    head = build_draft_head(checkpoint, model, used, open_checkpoint(apart) if apart else None)
    assert head is not None
    return model, head


def batch_of(states: SequenceStates, window: Window, ops: Ops) -> Batch:
    inputs = StepInputs(StepShape.of([window], False))
    inputs.fill([window])
    return Batch(inputs.tokens, inputs.rows, states, ops)


def draft_logits(path: Path, ids: list[int], ops: Ops | None = None, apart: Path | None = None) -> np.ndarray:
    """float32 [T - 1, vocabulary]: after every pair of a text, read in two pieces."""
    used = ops or ops_of()
    model, head = load_headed(path, used, apart)
    states, found = SequenceStates([*model.layouts, *head.layouts], 1, 1024), []
    states.reserve(0, ids, 0, keep=False)
    residual = model.trunk(batch_of(states, Window(0, 0, tuple(ids), 0), used)).clone()
    half = len(ids) // 2
    for first, stop in ((0, half), (half, len(ids) - 1)):
        batch = batch_of(states, Window(0, first, tuple(ids[first + 1 : stop + 1]), 0), used)
        hidden = head.run(head.start(residual[first:stop].contiguous(), batch), batch)
        found.append(head.logits(hidden, batch).numpy().copy())
    return np.concatenate(found)
