"""Tiny, fully randomised models of every architecture, made with transformers: what the engine is compared with.

A freshly initialised model hides faults: zero-centred norms start at 0, dt_bias at 1, the n-gram convolution at 0, and
small linears keep every sigmoid near a half. Here every parameter is noise of a size that makes every branch matter;
value heads are three times the key heads, head_dim is not hidden / heads, widths that coincide in published models
differ, the selection budget drops blocks from the 12th token on, and an end-of-text token sits inside the sequence.
Theta is 100, because with so few rotary dims the real one leaves most frequencies near zero.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
    Qwen4ExpForCausalLM,
    Qwen4ExpTextConfig,
)

ORACLES = ("qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen4_exp", "llama", "mixtral")
GGUF_NAMES = {
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen3_5_moe": "qwen35moe",
    "qwen4_exp": "qwen4exp",
    "llama": "llama",
    "mixtral": "llama",
}
VOCABULARY, END, LENGTH = 199, 3, 45


@dataclass(frozen=True)
class Oracle:
    """A model in eval mode, a sequence, and the logits it must give."""

    name: str
    model: PreTrainedModel
    ids: list[int]

    @torch.no_grad()
    def logits(self, ids: list[int] | None = None) -> torch.Tensor:
        """float32 [T, vocabulary] of one pass over the whole sequence."""
        out: torch.Tensor = self.model(torch.tensor([ids or self.ids]), use_cache=False).logits[0]
        return out


def config(name: str, wide: bool = False) -> PreTrainedConfig:
    """The sizes; `wide` makes every matrix's input a multiple of 256, so that all block formats fit."""
    hidden = 256 if wide else 64
    common: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "eos_token_id": END,
        "bos_token_id": None,
        "pad_token_id": None,
        "attn_implementation": "eager",
        "dtype": "float32",
    }
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 100.0}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    if name == "llama":
        sizes = {"num_hidden_layers": 3, "head_dim": 64 if wide else 24, "intermediate_size": 256 if wide else 80}
        return LlamaConfig(**common, **heads, **sizes, attention_bias=False, mlp_bias=False, rope_parameters=rope)
    experts = {"num_experts_per_tok": 3, "experts_implementation": "eager"}
    if name == "mixtral":
        sizes = {"num_hidden_layers": 3, "head_dim": 64 if wide else 24, "intermediate_size": 256 if wide else 40}
        return MixtralConfig(**common, **heads, **sizes, **experts, num_local_experts=8, rope_parameters=rope)
    width = 256 if wide else 40
    common |= experts | {"attention_bias": False, "num_experts": 8, "moe_intermediate_size": width}
    if name == "qwen3_moe":
        sizes = {"num_hidden_layers": 3, "head_dim": 64 if wide else 24, "intermediate_size": 80}
        return Qwen3MoeConfig(**common, **heads, **sizes, norm_topk_prob=True, rope_parameters=rope)
    return hybrid(name, common | heads, rope, wide)


def hybrid(name: str, common: dict[str, Any], rope: dict[str, Any], wide: bool) -> PreTrainedConfig:
    """The families with a delta net."""
    delta: dict[str, Any] = {
        "head_dim": 64 if wide else 32,
        "shared_expert_intermediate_size": 256 if wide else 48,
        "full_attention_interval": 4,
        "linear_num_key_heads": 4 if wide else 3,
        "linear_num_value_heads": 12 if wide else 9,
        "linear_key_head_dim": 64 if wide else 16,
        "linear_value_head_dim": 64 if wide else 16,
        "linear_conv_kernel_dim": 4,
    }
    partial = rope | {"partial_rotary_factor": 0.25}
    sections = partial | {"mrope_section": [4, 2, 2] if wide else [2, 1, 1], "mrope_interleaved": True}
    if name == "qwen3_next":
        plain = {"num_hidden_layers": 4, "intermediate_size": 80, "norm_topk_prob": True}
        return Qwen3NextConfig(**common, **delta, **plain, rope_parameters=partial)
    if name == "qwen3_5_moe":
        return Qwen3_5MoeTextConfig(**common, **delta, num_hidden_layers=4, rope_parameters=sections)
    if name == "qwen4_exp":
        return Qwen4ExpTextConfig(
            **common,
            **delta,
            num_hidden_layers=8,
            rope_parameters=sections,
            output_gate_type="sigmoid",
            norm_topk_prob=True,
            hc_count=4,
            hc_lowrank=256 if wide else 24,
            indexer_n_heads=4,
            indexer_kv_heads=1,
            indexer_head_dim=32 if wide else 24,
            indexer_budget=8,
            indexer_compress_ratio=4,
            ple_layer_ids=[2],
            ple_embed_dim=common["hidden_size"],
            ple_conv_kernel_size=4,
            ngram_size=3,
            heads_per_ngram=2,
            ngram_vocab_size_base=300,
            make_ngram_vocab_size_divisible_by=16,
            split_ngram_parts=4,
            seed=1234,
        )
    raise ValueError(f"unknown oracle {name!r}; one of {ORACLES}")


CLASSES = {
    "qwen3_moe": Qwen3MoeForCausalLM,
    "qwen3_next": Qwen3NextForCausalLM,
    "qwen3_5_moe": Qwen3_5MoeForCausalLM,
    "qwen4_exp": Qwen4ExpForCausalLM,
    "llama": LlamaForCausalLM,
    "mixtral": MixtralForCausalLM,
}


@torch.no_grad()
def randomise(model: torch.nn.Module, seed: int = 0) -> None:
    """Redraw every parameter, by sorted name so that the order of creation does not matter."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        noise = torch.randn(p.shape, generator=generator, dtype=torch.float32)
        leaf = name.rsplit(".", 1)[-1]
        if leaf == "A_log":
            p.copy_((torch.rand(p.shape, generator=generator) * 3.0 + 0.05).log())
        elif leaf == "dt_bias":
            p.copy_(noise)
        elif "conv1d" in name:
            p.copy_(noise * 0.6)
        elif p.ndim == 1:  # norms: their neutral value (0 or 1) and noise
            p.add_(noise * 0.3)
        elif "ngram_embedding" in name or "embed_tokens" in name:
            p.copy_(noise)
        elif "mlp.gate.weight" in name:  # a router that is far from uniform
            p.copy_(noise * 3.0 / math.sqrt(p.shape[-1]))
        else:
            p.copy_(noise * 1.5 / math.sqrt(p.shape[-1]))


def build(name: str, wide: bool = False, seed: int = 0, length: int = LENGTH) -> Oracle:
    """The same weights and ids for the same arguments and library versions."""
    torch.manual_seed(seed)
    model = CLASSES[name](config(name, wide)).eval()
    randomise(model, seed)
    ids = torch.randint(4, VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed + 1))
    ids[min(17, length - 1)] = END
    return Oracle(name, model, ids.tolist())
