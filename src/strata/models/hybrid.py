"""What Qwen3-Next and Qwen3.5/3.6-MoE share: three delta-net layers, then one of gated attention, all with experts."""

from collections.abc import Callable

from strata.kernels.ops import Ops
from strata.layers.delta_net import PackedInputs, SeparateInputs
from strata.layers.rope import Rope
from strata.models.base import Block, ModelShape, PreNormModel, vocabulary_of
from strata.models.config import DecoderConfig
from strata.models.parts import Parts, placed_experts
from strata.models.source import Rule
from strata.state.layout import DeltaLayout, LayerLayout

Inputs = Callable[[Parts, int, DeltaLayout], SeparateInputs | PackedInputs]

RULES = {
    "token_embd": Rule("model.embed_tokens"),
    "output": Rule("lm_head"),
    "output_norm": Rule("model.norm", "plus_one"),
    "attn_norm": Rule("input_layernorm", "plus_one"),
    "post_attention_norm": Rule("post_attention_layernorm", "plus_one"),
    "attn_q": Rule("self_attn.q_proj"),
    "attn_k": Rule("self_attn.k_proj"),
    "attn_v": Rule("self_attn.v_proj"),
    "attn_output": Rule("self_attn.o_proj"),
    "attn_q_norm": Rule("self_attn.q_norm", "plus_one"),
    "attn_k_norm": Rule("self_attn.k_norm", "plus_one"),
    "ssm_conv1d": Rule("linear_attn.conv1d"),
    "ssm_a": Rule("linear_attn.A_log", "negative_exp"),
    "ssm_dt.bias": Rule("linear_attn.dt_bias"),
    "ssm_norm": Rule("linear_attn.norm"),
    "ssm_out": Rule("linear_attn.out_proj"),
    "ffn_gate_inp": Rule("mlp.gate"),
    "ffn_gate_inp_shexp": Rule("mlp.shared_expert_gate"),
    "ffn_gate_shexp": Rule("mlp.shared_expert.gate_proj"),
    "ffn_up_shexp": Rule("mlp.shared_expert.up_proj"),
    "ffn_down_shexp": Rule("mlp.shared_expert.down_proj"),
}
"""Every norm is zero-centred in HF, except the one inside the delta net."""

EXPERTS_AT = ("mlp.experts",)
EXPERT_LEAVES = ("gate_proj", "up_proj", "down_proj")


def build_hybrid(
    architecture: str,
    parts: Parts,
    delta: DeltaLayout,
    inputs: Inputs,
    attention_layers: frozenset[int],
    vocabulary: int,
    ops: Ops,
) -> PreNormModel:
    """The model from its tensors; `inputs` says how the delta net's projections are packed."""
    c: DecoderConfig = parts.config
    store = parts.store()
    experts = placed_experts(ops, store)
    rope = Rope(c.rotary, c.rope_theta, "halves")
    embedding, output = vocabulary_of(parts.source, vocabulary, c.hidden, c.tied)
    blocks, layouts = [], []
    for i in range(c.layers):
        attends = i in attention_layers
        blocks.append(
            Block(
                name=f"blk.{i}",
                index=i,
                attn_norm=parts.norm(f"blk.{i}.attn_norm"),
                mixer=parts.attention(i, rope, gated=True, normed=True)
                if attends
                else parts.delta_net(i, delta, inputs(parts, i, delta), sigmoid=False),
                ffn_norm=parts.norm(f"blk.{i}.post_attention_norm"),
                ffn=parts.moe(i, experts),
            )
        )
        layouts.append(LayerLayout(kv=parts.kv_layout()) if attends else LayerLayout(delta=delta))
    shape = ModelShape(architecture, c.layers, c.hidden, vocabulary, c.context, c.experts, c.top_k)
    norm = parts.norm("output_norm")
    return PreNormModel(shape, embedding, tuple(blocks), norm, output, tuple(layouts), store, experts)
