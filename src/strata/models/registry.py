"""Which file builds which architecture; the one place that turns a checkpoint into a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.metadata import Metadata
from strata.core.errors import CheckpointError, UnsupportedError
from strata.kernels.ops import Ops
from strata.models import drafting, hybrid_head, llama, qwen3moe, qwen3next, qwen4_exp, qwen4_exp_head, qwen35moe
from strata.models.base import Model
from strata.models.drafting import BuildHead, DraftHead
from strata.models.gguf_source import GgufSource
from strata.models.hf_source import HfSource
from strata.models.source import Rule, Source, require

Build = Callable[[Source, Metadata, int, Ops], Model]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model file's surface."""

    build: Build
    rules: Mapping[str, Rule]
    experts_at: tuple[str, ...]
    expert_leaves: tuple[str, str, str]
    build_head: BuildHead | None = None
    """Of the drafting head, where one is built."""


ARCHITECTURES: dict[str, Architecture] = {
    "qwen3moe": Architecture(qwen3moe.build, qwen3moe.RULES, qwen3moe.EXPERTS_AT, qwen3moe.EXPERT_LEAVES),
    "qwen3next": Architecture(
        qwen3next.build, qwen3next.RULES, qwen3next.EXPERTS_AT, qwen3next.EXPERT_LEAVES, hybrid_head.build_head
    ),
    "qwen35moe": Architecture(
        qwen35moe.build, qwen35moe.RULES, qwen35moe.EXPERTS_AT, qwen35moe.EXPERT_LEAVES, hybrid_head.build_head
    ),
    "qwen4exp": Architecture(
        qwen4_exp.build, qwen4_exp.RULES, qwen4_exp.EXPERTS_AT, qwen4_exp.EXPERT_LEAVES, qwen4_exp_head.build_head
    ),
    "llama": Architecture(llama.build, llama.RULES, llama.EXPERTS_AT, llama.EXPERT_LEAVES),
}
"""By GGUF's name of the architecture."""

HF_TYPES: dict[str, str] = {
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen3_5_moe": "qwen35moe",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen4_exp": "qwen4exp",
    "qwen4_exp_text": "qwen4exp",
    "llama": "llama",
    "mixtral": "llama",
}
"""config.json's model_type to the name above."""


def architecture_of(checkpoint: Checkpoint) -> str:
    """GGUF's name of the checkpoint's architecture; UnsupportedError when there is no file for it."""
    meta = checkpoint.metadata
    if checkpoint.kind == "gguf":
        found = meta.string("general.architecture")
        known = found in ARCHITECTURES
    else:
        found = meta.string("model_type")
        known = found in HF_TYPES
    if not known:
        raise UnsupportedError(
            f"{checkpoint.path}: architecture {found!r} is not built", f"known: {', '.join(sorted(ARCHITECTURES))}"
        )
    return found if checkpoint.kind == "gguf" else HF_TYPES[found]


def open_source(checkpoint: Checkpoint, name: str) -> Source:
    """The checkpoint's tensors under our names."""
    entry = ARCHITECTURES[name]
    if checkpoint.kind == "safetensors":
        return HfSource(checkpoint, entry.rules, entry.experts_at, entry.expert_leaves)
    return GgufSource(checkpoint, draft_blocks(checkpoint.metadata, name))


def draft_blocks(meta: Metadata, name: str) -> list[str]:
    """How the names of the layers begin that only propose tokens: the last ones."""
    blocks = meta.integer(f"{name}.block_count", 1, 4096)
    count = meta.integer(f"{name}.nextn_predict_layers", 0, blocks, default=0)
    return [f"blk.{i}." for i in range(blocks - count, blocks)]


def open_head_source(checkpoint: Checkpoint, name: str, layers: int) -> Source:
    """The tensors of the drafting head of a trunk of `layers` layers; one head of one layer is built."""
    entry = ARCHITECTURES[name]
    if checkpoint.kind == "safetensors":
        rules = {**entry.rules, **drafting.RULES, **drafting.PAIR}
        return HfSource(checkpoint, rules, entry.experts_at, entry.expert_leaves, layers)
    return GgufSource(checkpoint, [f"blk.{layers}."], head=True)


def vocabulary_size(checkpoint: Checkpoint) -> int:
    """Rows of the embedding."""
    name = "token_embd.weight" if checkpoint.kind == "gguf" else "model.embed_tokens.weight"
    ref = require(checkpoint, name)
    if len(ref.shape) != 2:
        raise CheckpointError(f"{ref.file}: tensor {name}: expected a matrix, found shape {list(ref.shape)}")
    return ref.shape[0]


def build_model(checkpoint: Checkpoint, ops: Ops) -> Model:
    """The model of a checkpoint. Refuses tensors that no part of the architecture reads."""
    name = architecture_of(checkpoint)
    source = open_source(checkpoint, name)
    model = ARCHITECTURES[name].build(source, checkpoint.metadata, vocabulary_size(checkpoint), ops)
    source.check_all_used()
    return model


def build_draft_head(
    checkpoint: Checkpoint, model: Model, ops: Ops, apart: Checkpoint | None = None
) -> DraftHead | None:
    """The drafting head of `model`, which was built from `checkpoint`; None where there is none. Its experts join the
    model's store.

    `apart` is the file that holds it, when the model's own does not. CheckpointError when that file has no such head,
    UnsupportedError when a tensor of the head has no place.
    """
    name, file = model.shape.architecture, checkpoint if apart is None else apart
    build = ARCHITECTURES[name].build_head
    source = open_head_source(file, name, model.shape.layers)
    if build is None or not source.has(f"blk.{model.shape.layers}.nextn.enorm"):
        if apart is not None:
            raise CheckpointError(f"{apart.path}: no drafting head for a {name} model of {model.shape.layers} layers")
        return None
    head = build(source, checkpoint.metadata, model, ops)
    source.check_all_used()
    return head
