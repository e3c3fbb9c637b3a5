"""Qwen3.5 and Qwen3.6 MoE, text part (transformers Qwen3_5MoeForCausalLM; GGUF architecture qwen35moe).

As Qwen3-Next with separate delta-net projections. GGUF files hold the value heads tiled (head h reads key head h mod
nk), safetensors grouped (h // r). Three-part rotary positions are equal for text, so rotary is the plain one.
"""

from strata.checkpoint.metadata import Metadata
from strata.kernels.ops import HeadPairing, Ops
from strata.layers.delta_net import SeparateInputs
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

ARCHITECTURE = "qwen35moe"
HF_TYPES = ("qwen3_5_moe", "qwen3_5_moe_text")

RULES = hybrid.RULES | {
    "attn_qkv": Rule("linear_attn.in_proj_qkv"),
    "attn_gate": Rule("linear_attn.in_proj_z"),
    "ssm_beta": Rule("linear_attn.in_proj_b"),
    "ssm_alpha": Rule("linear_attn.in_proj_a"),
}
EXPERTS_AT = hybrid.EXPERTS_AT
EXPERT_LEAVES = hybrid.EXPERT_LEAVES


def build(source: Source, meta: Metadata, vocabulary: int, ops: Ops) -> PreNormModel:
    """The model from its tensors."""
    pairing: HeadPairing
    if source.container == "gguf":
        c, d, pairing = gguf_decoder(meta, ARCHITECTURE), gguf_delta(meta, ARCHITECTURE), "tiled"
        attention = gguf_attention_layers(meta, ARCHITECTURE, c.layers)
    else:
        c, d, pairing = hf_decoder(meta, 0.25, renormalise=True), hf_delta(meta), "grouped"
        attention = hf_attention_layers(meta, c.layers)

    def inputs(parts: Parts, layer: int, _: DeltaLayout) -> SeparateInputs:
        return parts.separate_inputs(layer, d)

    layout = delta_layout(d, pairing)
    return hybrid.build_hybrid(ARCHITECTURE, Parts(source, c), layout, inputs, attention, vocabulary, ops)
