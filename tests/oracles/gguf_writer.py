"""A GGUF file of a transformers model, with the transforms and keys of llama.cpp's converters.

A second hand for the project's own converter: written from the published conventions alone. `encode` may turn chosen
matrices into block formats; everything else is F32.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGUFValueType as V

from oracles.build import GGUF_NAMES, Oracle

Floats = npt.NDArray[np.float32]
Encoded = tuple[npt.NDArray[np.uint8], gguf.GGMLQuantizationType] | None
Encode = Callable[[str, Floats], Encoded]
HYPER = {
    "hc_norm": "norm",
    "input_mix_weight_down": "down",
    "input_mix_weight_up": "up",
    "block_inject_weight": "inject",
}


def tile(x: Floats, key_heads: int, per_head: int, axis: int = 0) -> Floats:
    """Value heads from grouped (by key head) to tiled order along `axis`; `per_head` entries per value head."""
    moved = np.moveaxis(x, axis, 0)
    share = moved.shape[0] // key_heads // per_head
    turned = moved.reshape(key_heads, share, per_head, *moved.shape[1:]).swapaxes(0, 1).reshape(moved.shape)
    return np.moveaxis(turned, 0, axis)


def pair(x: Floats, heads: int) -> Floats:
    """Rows of every head from split halves to adjacent pairs, for rotary by (2i, 2i + 1)."""
    return x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


class Transformer:
    """GGUF tensors of one state dict."""

    def __init__(self, oracle: Oracle) -> None:
        self.family = GGUF_NAMES[oracle.name]
        self.c: Any = oracle.model.config
        self.state = {k: v.detach().numpy() for k, v in oracle.model.state_dict().items()}
        self.out: dict[str, Floats] = {}
        self.shift = np.float32(0 if self.family in ("qwen3moe", "llama") else 1)
        self.tiled = self.family in ("qwen35moe", "qwen4exp")

    def copy(self, source: str, target: str, norm: bool = False) -> None:
        """One tensor, when the model has it."""
        if source in self.state:
            self.out[target] = self.state[source] + self.shift if norm else self.state[source]

    def all(self) -> dict[str, Floats]:
        """Every tensor by its full name in the file."""
        self.copy("model.embed_tokens.weight", "token_embd.weight")
        if not self.c.tie_word_embeddings:
            self.copy("lm_head.weight", "output.weight")
        self.copy("model.norm.weight", "output_norm.weight", norm=True)
        for leaf, short in HYPER.items():
            self.copy(f"model.hyper_connection_mixer.{leaf}.weight", f"output_hc_{short}.weight", short == "norm")
        for i in range(self.c.num_hidden_layers):
            p, b = f"model.layers.{i}.", f"blk.{i}."
            self.norms(p, b)
            self.attention(p, b)
            self.feed(p, b)
            if p + "linear_attn.A_log" in self.state:
                self.delta(p + "linear_attn.", b)
            self.extras(p, b)
        return self.out

    def norms(self, p: str, b: str) -> None:
        """The norms around and inside the blocks."""
        second = "ffn_norm" if self.family in ("qwen3moe", "llama") else "post_attention_norm"
        self.copy(p + "input_layernorm.weight", b + "attn_norm.weight", norm=True)
        self.copy(p + "post_attention_layernorm.weight", f"{b}{second}.weight", norm=True)
        for side in "qk":
            self.copy(f"{p}self_attn.{side}_norm.weight", f"{b}attn_{side}_norm.weight", norm=True)
            self.copy(f"{p}self_attn.indexer.{side}_layernorm.weight", f"{b}indexer.{side}_norm.weight", norm=True)

    def attention(self, p: str, b: str) -> None:
        """q, k, v, o; llama's q and k rows are permuted."""
        for side, short in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output")):
            name = f"{p}self_attn.{side}_proj.weight"
            self.copy(name, f"{b}attn_{short}.weight")
            if self.family == "llama" and side in "qk":
                heads = self.c.num_attention_heads if side == "q" else self.c.num_key_value_heads
                self.out[f"{b}attn_{short}.weight"] = pair(self.state[name], heads)
        name = p + "self_attn.indexer.index_qk_proj.weight"
        if name in self.state:
            cut = self.c.indexer_n_heads * self.c.indexer_head_dim
            self.out[b + "indexer.q_proj.weight"] = self.state[name][:cut]
            self.out[b + "indexer.k_proj.weight"] = self.state[name][cut:]

    def feed(self, p: str, b: str) -> None:
        """Router, stacked experts, shared expert; or a dense block."""
        for part in ("gate", "up", "down"):
            self.copy(f"{p}mlp.{part}_proj.weight", f"{b}ffn_{part}.weight")
            self.copy(f"{p}mlp.shared_expert.{part}_proj.weight", f"{b}ffn_{part}_shexp.weight")
        self.copy(p + "mlp.gate.weight", b + "ffn_gate_inp.weight")
        if p + "mlp.shared_expert_gate.weight" in self.state:
            self.out[b + "ffn_gate_inp_shexp.weight"] = self.state[p + "mlp.shared_expert_gate.weight"].reshape(-1)
        if p + "mlp.experts.gate_up_proj" in self.state:
            both = self.state[p + "mlp.experts.gate_up_proj"]
            half = both.shape[1] // 2
            self.out[b + "ffn_gate_exps.weight"] = both[:, :half]
            self.out[b + "ffn_up_exps.weight"] = both[:, half:]
            self.out[b + "ffn_down_exps.weight"] = self.state[p + "mlp.experts.down_proj"]

    def delta(self, p: str, b: str) -> None:
        """The delta net: un-packed; tiled value heads in the families whose files have them so."""
        c = self.c
        nk, nv, dk, dv = (
            c.linear_num_key_heads,
            c.linear_num_value_heads,
            c.linear_key_head_dim,
            c.linear_value_head_dim,
        )
        share = nv // nk
        if p + "in_proj_qkvz.weight" in self.state:
            groups = self.state[p + "in_proj_qkvz.weight"].reshape(nk, 2 * dk + 2 * share * dv, -1)
            q, k, v, z = np.split(groups, [dk, 2 * dk, 2 * dk + share * dv], axis=1)
            qkv = np.concatenate([part.reshape(-1, part.shape[-1]) for part in (q, k, v)])
            z = z.reshape(nv * dv, -1)
            self.copy(p + "in_proj_ba.weight", b + "ssm_ba.weight")
        else:
            qkv, z = self.state[p + "in_proj_qkv.weight"], self.state[p + "in_proj_z.weight"]
        conv, keys = self.state[p + "conv1d.weight"][:, 0], 2 * nk * dk
        rate, bias = -np.exp(self.state[p + "A_log"]), self.state[p + "dt_bias"]
        out = self.state[p + "out_proj.weight"]
        if self.tiled:
            qkv, conv = (np.concatenate([x[:keys], tile(x[keys:], nk, dv)]) for x in (qkv, conv))
            z, rate, bias, out = tile(z, nk, dv), tile(rate, nk, 1), tile(bias, nk, 1), tile(out, nk, dv, axis=1)
            self.out[b + "ssm_beta.weight"] = tile(self.state[p + "in_proj_b.weight"], nk, 1)
            self.out[b + "ssm_alpha.weight"] = tile(self.state[p + "in_proj_a.weight"], nk, 1)
        self.out |= {
            b + "attn_qkv.weight": qkv,
            b + "attn_gate.weight": z,
            b + "ssm_conv1d.weight": conv,
            b + "ssm_a": rate,
            b + "ssm_dt.bias": bias,
            b + "ssm_out.weight": out,
            b + "ssm_norm.weight": self.state[p + "norm.weight"],
        }

    def extras(self, p: str, b: str) -> None:
        """Hyper-connections and the n-gram embedding."""
        for side, short in (("attn", "attn"), ("mlp", "ffn")):
            for leaf, end in HYPER.items():
                self.copy(f"{p}{side}_hyper_connection.{leaf}.weight", f"{b}hc_{short}_{end}.weight", end == "norm")
        if p + "ple.key_proj.weight" not in self.state:
            return
        for leaf, short in (("key_proj", "key"), ("value_proj", "value")):
            self.copy(f"{p}ple.{leaf}.weight", f"{b}ple_{short}.weight")
        for leaf in ("norm_key", "norm_query", "norm_conv"):
            self.copy(f"{p}ple.{leaf}.weight", f"{b}ple_{leaf}.weight", norm=True)
        self.out[b + "ple_conv1d.weight"] = self.state[p + "ple.conv1d.weight"][:, 0]
        self.copy(p + "ple.ple_embedding.ngram_embedding.weight", "per_layer_token_embd.weight")


def sizes(c: Any, family: str) -> dict[str, int | float]:
    """Scalar keys under the architecture's prefix."""
    head_dim = c.head_dim
    rope = c.rope_parameters
    keys: dict[str, int | float] = {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": getattr(c, "intermediate_size", None) or c.moe_intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "rope.freq_base": float(rope["rope_theta"]),
        "vocab_size": c.vocab_size,
    }
    if family != "qwen3moe":
        keys["rope.dimension_count"] = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    if getattr(c, "num_experts", None):
        keys |= {"expert_count": c.num_experts, "expert_used_count": c.num_experts_per_tok}
    if family != "llama":
        keys["expert_feed_forward_length"] = c.moe_intermediate_size
    if family in ("qwen3next", "qwen35moe", "qwen4exp"):
        keys |= {
            "expert_shared_feed_forward_length": c.shared_expert_intermediate_size,
            "ssm.conv_kernel": c.linear_conv_kernel_dim,
            "ssm.state_size": c.linear_key_head_dim,
            "ssm.group_count": c.linear_num_key_heads,
            "ssm.time_step_rank": c.linear_num_value_heads,
            "ssm.inner_size": c.linear_num_value_heads * c.linear_value_head_dim,
            "full_attention_interval": 4,
        }
    if family == "qwen4exp":
        keys |= {
            "hyper_connection.count": c.hc_count,
            "hyper_connection.low_rank": c.hc_lowrank,
            "attention.indexer.head_count": c.indexer_n_heads,
            "attention.indexer.key_length": c.indexer_head_dim,
            "attention.indexer.top_k": c.indexer_budget,
            "ple.ngram_size": c.ngram_size,
            "ple.heads_per_ngram": c.heads_per_ngram,
            "ple.conv_kernel": c.ple_conv_kernel_size,
            "ple.eos_token_id": c.eos_token_id,
            "embedding_length_per_layer_input": c.ple_embed_dim // ((c.ngram_size - 1) * c.heads_per_ngram),
        }
    return keys


def arrays(oracle: Oracle, family: str) -> dict[str, tuple[list[int], V]]:
    """Array keys under the architecture's prefix, with the type of their items."""
    c: Any = oracle.model.config
    found: dict[str, tuple[list[int], V]] = {}
    if family in ("qwen35moe", "qwen4exp"):
        found["rope.dimension_sections"] = ([*c.rope_parameters["mrope_section"], 0], V.INT32)
    if family == "qwen4exp":
        ratios = [0 if t == "linear_attention" else c.indexer_compress_ratio for t in c.layer_types]
        layer = c.ple_layer_ids[0] - 1
        hashes = f"model.layers.{layer}.ple.ple_embedding."
        buffers = oracle.model.state_dict()
        found["attention.compress_ratios"] = (ratios, V.UINT32)
        found["ple.layers"] = ([layer], V.UINT32)
        for key, leaf in (
            ("layer_multipliers", "layer_multipliers"),
            ("head_vocab_sizes", "ngram_heads_vocab_sizes"),
            ("head_offsets", "ngram_heads_offsets"),
        ):
            found[f"ple.{key}"] = ([int(v) for v in buffers[hashes + leaf].tolist()], V.UINT64)
    return found


def blocks(kind: str, only: Callable[[str], bool] = lambda name: name.endswith(".weight")) -> Encode:
    """An `encode` that puts matrices into one of the block formats of the gguf package, e.g. "Q8_0"."""
    type_ = gguf.GGMLQuantizationType[kind]
    block = gguf.GGML_QUANT_SIZES[type_][0]

    def encode(name: str, values: Floats) -> Encoded:
        kept = ("conv1d", "norm", "ffn_gate_inp", "ssm_a", "ssm_dt")
        if values.ndim < 2 or values.shape[-1] % block or any(k in name for k in kept) or not only(name):
            return None
        return gguf.quants.quantize(np.ascontiguousarray(values), type_), type_

    return encode


def write(oracle: Oracle, path: Path, encode: Encode | None = None) -> Path:
    """Write the oracle's weights to `path`."""
    family = GGUF_NAMES[oracle.name]
    c: Any = oracle.model.config
    writer = gguf.GGUFWriter(path, family)
    writer.add_file_type(0)
    for key, value in sizes(c, family).items():
        kind = V.FLOAT32 if isinstance(value, float) else V.UINT32
        writer.add_key_value(f"{family}.{key}", value, kind)
    for key, (values, item) in arrays(oracle, family).items():
        writer.add_key_value(f"{family}.{key}", values, V.ARRAY, item)
    for name, tensor in Transformer(oracle).all().items():
        encoded = encode(name, tensor) if encode is not None else None
        if encoded is None:
            writer.add_tensor(name, np.ascontiguousarray(tensor, dtype=np.float32))
        else:
            writer.add_tensor(name, encoded[0], raw_dtype=encoded[1])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
