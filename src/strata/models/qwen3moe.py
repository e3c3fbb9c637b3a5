"""Qwen3-MoE (transformers Qwen3MoeForCausalLM; GGUF architecture qwen3moe).

x += Attn(norm x); x += MoE(norm x) in every layer: plain norms, q/k norms per head before full rotary, no shared
expert.
"""

from strata.checkpoint.metadata import Metadata
from strata.core.errors import UnsupportedError
from strata.kernels.ops import Ops
from strata.layers.rope import Rope
from strata.models.base import Block, ModelShape, PreNormModel, vocabulary_of
from strata.models.config import DecoderConfig, gguf_decoder, hf_decoder
from strata.models.parts import Parts, placed_experts
from strata.models.source import Rule, Source
from strata.state.layout import LayerLayout

ARCHITECTURE = "qwen3moe"
HF_TYPES = ("qwen3_moe",)

RULES = {
    "token_embd": Rule("model.embed_tokens"),
    "output": Rule("lm_head"),
    "output_norm": Rule("model.norm"),
    "attn_norm": Rule("input_layernorm"),
    "ffn_norm": Rule("post_attention_layernorm"),
    "attn_q": Rule("self_attn.q_proj"),
    "attn_k": Rule("self_attn.k_proj"),
    "attn_v": Rule("self_attn.v_proj"),
    "attn_output": Rule("self_attn.o_proj"),
    "attn_q_norm": Rule("self_attn.q_norm"),
    "attn_k_norm": Rule("self_attn.k_norm"),
    "ffn_gate_inp": Rule("mlp.gate"),
}
EXPERTS_AT = ("mlp.experts",)
EXPERT_LEAVES = ("gate_proj", "up_proj", "down_proj")


def read_config(meta: Metadata, container: str) -> DecoderConfig:
    """The numbers of either container. config.json's class default of norm_topk_prob is false here."""
    if container == "gguf":
        return gguf_decoder(meta, ARCHITECTURE)
    if meta.integer("decoder_sparse_step", 1, 4096, default=1) != 1 or meta.values.get("mlp_only_layers"):
        raise UnsupportedError(f"{meta.file}: key mlp_only_layers: layers without experts are not built")
    return hf_decoder(meta, 1.0, renormalise=False)


def build(source: Source, meta: Metadata, vocabulary: int, ops: Ops) -> PreNormModel:
    """The model from its tensors."""
    c = read_config(meta, source.container)
    parts = Parts(source, c)
    store = parts.store()
    experts = placed_experts(ops, store)
    rope = Rope(c.rotary, c.rope_theta, "halves")
    embedding, output = vocabulary_of(source, vocabulary, c.hidden, c.tied)
    blocks = tuple(
        Block(
            name=f"blk.{i}",
            index=i,
            attn_norm=parts.norm(f"blk.{i}.attn_norm"),
            mixer=parts.attention(i, rope, gated=False, normed=True),
            ffn_norm=parts.norm(f"blk.{i}.ffn_norm"),
            ffn=parts.moe(i, experts),
        )
        for i in range(c.layers)
    )
    layouts = (LayerLayout(kv=parts.kv_layout()),) * c.layers
    shape = ModelShape(ARCHITECTURE, c.layers, c.hidden, vocabulary, c.context, c.experts, c.top_k)
    return PreNormModel(shape, embedding, blocks, parts.norm("output_norm"), output, layouts, store, experts)
