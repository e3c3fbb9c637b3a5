"""Qwen3-Next (transformers Qwen3NextForCausalLM; GGUF architecture qwen3next).

The delta net's projections are packed by key head: in_proj_qkvz and in_proj_ba in safetensors; GGUF files keep ssm_ba
packed and
hold [q | k | v] and z apart (attn_qkv, attn_gate), older ones keep everything packed (ssm_in). Value heads stay
grouped.
"""

from strata.checkpoint.metadata import Metadata
from strata.kernels.ops import Ops
from strata.layers.delta_net import PackedInputs
from strata.models import hybrid
from strata.models.base import PreNormModel
from strata.models.config import (
    gguf_attention_layers,
    gguf_decoder,
    gguf_delta,
    hf_attention_layers,
    hf_decoder,
    hf_delta,
)
from strata.models.parts import Parts, delta_layout
from strata.models.source import Rule, Source
from strata.state.layout import DeltaLayout

ARCHITECTURE = "qwen3next"
HF_TYPES = ("qwen3_next",)

RULES = hybrid.RULES | {
    "ssm_in": Rule("linear_attn.in_proj_qkvz"),
    "ssm_ba": Rule("linear_attn.in_proj_ba"),
}
EXPERTS_AT = hybrid.EXPERTS_AT
EXPERT_LEAVES = hybrid.EXPERT_LEAVES


def packed_inputs(parts: Parts, layer: int, d: DeltaLayout) -> PackedInputs:
    """Projections packed by key head, in any of the three forms."""
    s, b, hidden = parts.source, f"blk.{layer}.", parts.config.hidden
    inner = d.value_heads * d.value_dim
    ba = s.weight(b + "ssm_ba", 2 * d.value_heads, hidden)
    if s.has(b + "ssm_in"):
        return PackedInputs(s.weight(b + "ssm_in", d.channels + inner, hidden), None, ba, d)
    z = s.weight(b + "attn_gate", inner, hidden)
    return PackedInputs(s.weight(b + "attn_qkv", d.channels, hidden), z, ba, d)


def build(source: Source, meta: Metadata, vocabulary: int, ops: Ops) -> PreNormModel:
    """The model from its tensors."""
    if source.container == "gguf":
        c, d = gguf_decoder(meta, ARCHITECTURE), gguf_delta(meta, ARCHITECTURE)
        attention = gguf_attention_layers(meta, ARCHITECTURE, c.layers)
    else:
        c, d = hf_decoder(meta, 0.25, renormalise=True), hf_delta(meta)
        attention = hf_attention_layers(meta, c.layers)
    layout = delta_layout(d, "grouped")
    return hybrid.build_hybrid(ARCHITECTURE, Parts(source, c), layout, packed_inputs, attention, vocabulary, ops)
