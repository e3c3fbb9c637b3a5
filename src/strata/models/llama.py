"""Llama and Mixtral (transformers LlamaForCausalLM, MixtralForCausalLM; GGUF architecture llama), for small real
models.

Plain norms, full rotary, no q/k norms; a dense feed-forward block or experts. GGUF files hold q and k rows permuted
so that rotary pairs are adjacent dims (2i, 2i + 1); safetensors keep split halves.
"""

from dataclasses import replace

from strata.checkpoint.metadata import Metadata
from strata.core.errors import UnsupportedError
from strata.kernels.ops import Ops
from strata.layers.rope import Rope
from strata.models.base import Block, ModelShape, PreNormModel, vocabulary_of
from strata.models.config import DecoderConfig, gguf_decoder, hf_decoder
from strata.models.parts import Parts, placed_experts
from strata.models.source import Rule, Source
from strata.state.layout import LayerLayout

ARCHITECTURE = "llama"
HF_TYPES = ("llama", "mixtral")

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
    "ffn_gate": Rule("mlp.gate_proj"),
    "ffn_up": Rule("mlp.up_proj"),
    "ffn_down": Rule("mlp.down_proj"),
    "ffn_gate_inp": Rule("block_sparse_moe.gate", other="mlp.gate"),
}
EXPERTS_AT = ("block_sparse_moe.experts", "mlp.experts")
"""Published files hold an expert's w1, w3, w2 each; transformers' own memory layout has them stacked under mlp."""
EXPERT_LEAVES = ("w1", "w3", "w2")


def read_config(meta: Metadata, container: str) -> DecoderConfig:
    """The numbers of either container; Mixtral's expert width is its intermediate size."""
    if container == "gguf":
        return gguf_decoder(meta, ARCHITECTURE, dense=True)
    if meta.flag("mlp_bias", False):
        raise UnsupportedError(f"{meta.file}: key mlp_bias: feed-forward blocks with bias are not built")
    if meta.values.get("sliding_window") is not None:
        raise UnsupportedError(f"{meta.file}: key sliding_window: sliding-window attention is not built")
    mixtral = meta.string("model_type") == "mixtral"
    c = hf_decoder(meta, 1.0, renormalise=True, theta=1e6 if mixtral else 10000.0)
    return replace(c, expert_width=c.dense_width) if c.experts else c


def build(source: Source, meta: Metadata, vocabulary: int, ops: Ops) -> PreNormModel:
    """The model from its tensors."""
    c = read_config(meta, source.container)
    parts = Parts(source, c)
    store = parts.store()
    experts = placed_experts(ops, store)
    factors = tuple(source.vector("rope_freqs", c.rotary // 2).tolist()) if source.has("rope_freqs") else None
    rope = Rope(c.rotary, c.rope_theta, "pairs" if source.container == "gguf" else "halves", factors)
    embedding, output = vocabulary_of(source, vocabulary, c.hidden, c.tied)
    blocks = tuple(
        Block(
            name=f"blk.{i}",
            index=i,
            attn_norm=parts.norm(f"blk.{i}.attn_norm"),
            mixer=parts.attention(i, rope, gated=False, normed=False),
            ffn_norm=parts.norm(f"blk.{i}.ffn_norm"),
            ffn=parts.moe(i, experts) if c.experts else parts.dense(i),
        )
        for i in range(c.layers)
    )
    layouts = (LayerLayout(kv=parts.kv_layout()),) * c.layers
    shape = ModelShape(ARCHITECTURE, c.layers, c.hidden, vocabulary, c.context, c.experts, c.top_k)
    return PreNormModel(shape, embedding, blocks, parts.norm("output_norm"), output, layouts, store, experts)
