"""The numbers that decoder architectures share, read from either container."""

from dataclasses import dataclass

from strata.checkpoint.metadata import Metadata
from strata.core.errors import UnsupportedError

WIDE = 1 << 24
"""No width, vocabulary or context of a sane model is larger."""

SOFTMAX = 1
"""GGUF's number of softmax among the functions that gate experts; 0 leaves it to the architecture."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes of a decoder; see the field names of config.json and of GGUF's keys (reference: models of llama.cpp)."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_theta: float
    rotary: int
    context: int
    experts: int
    """0 = dense"""
    top_k: int
    expert_width: int
    shared_width: int
    """0 = no shared expert"""
    dense_width: int
    renormalise: bool
    tied: bool = True
    """Whether a file without an output matrix means that the embedding serves as one."""

    def checked(self, meta: Metadata) -> "DecoderConfig":
        """UnsupportedError when head counts or rotary dims cannot be paired."""
        if self.heads % self.kv_heads:
            raise UnsupportedError(f"{meta.file}: {self.heads} heads cannot share {self.kv_heads} key and value heads")
        if self.rotary % 2:
            raise UnsupportedError(f"{meta.file}: {self.rotary} rotary dims: expected an even number")
        return self


@dataclass(frozen=True, slots=True)
class DeltaConfig:
    """Sizes of the gated delta net."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int

    @property
    def channels(self) -> int:
        """Columns of [q | k | v]."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


def gguf_decoder(meta: Metadata, arch: str, dense: bool = False) -> DecoderConfig:
    """Read `arch`'s common keys. Trunk layers are block_count less the drafting layers at the end."""
    heads = meta.integer(f"{arch}.attention.head_count", 1, 4096)
    hidden = meta.integer(f"{arch}.embedding_length", 1, WIDE)
    head_dim = meta.integer(f"{arch}.attention.key_length", 1, 4096, default=hidden // heads)
    value_dim = meta.integer(f"{arch}.attention.value_length", 1, 4096, default=head_dim)
    if value_dim != head_dim:
        raise UnsupportedError(f"{meta.file}: key and value heads differ ({head_dim} and {value_dim} dims)")
    refuse_gguf_scaling(meta, arch)
    gating = meta.integer(f"{arch}.expert_gating_func", 0, 255, default=SOFTMAX)
    if gating not in (0, SOFTMAX):
        raise UnsupportedError(f"{meta.file}: key {arch}.expert_gating_func: only softmax (1) is built, found {gating}")
    drafting = meta.integer(f"{arch}.nextn_predict_layers", 0, 64, default=0)
    experts = meta.integer(f"{arch}.expert_count", 0, 65536, default=0)
    if not dense and not experts:
        experts = meta.integer(f"{arch}.expert_count", 1, 65536)
    width_key = f"{arch}.expert_feed_forward_length"
    wide = meta.integer(f"{arch}.feed_forward_length", 0, WIDE, default=0)
    return DecoderConfig(
        hidden=hidden,
        layers=meta.integer(f"{arch}.block_count", drafting + 1, 4096) - drafting,
        heads=heads,
        kv_heads=meta.integer(f"{arch}.attention.head_count_kv", 1, heads, default=heads),
        head_dim=head_dim,
        eps=meta.number(f"{arch}.attention.layer_norm_rms_epsilon", 0, 1),
        rope_theta=meta.number(f"{arch}.rope.freq_base", 1, 1e12, default=10000.0),
        rotary=meta.integer(f"{arch}.rope.dimension_count", 2, head_dim, default=head_dim),
        context=meta.integer(f"{arch}.context_length", 1, WIDE),
        experts=experts,
        top_k=meta.integer(f"{arch}.expert_used_count", 1, experts) if experts else 0,
        expert_width=meta.integer(width_key, 1, WIDE, default=wide if dense else None) if experts else 0,
        shared_width=meta.integer(f"{arch}.expert_shared_feed_forward_length", 0, WIDE, default=0),
        dense_width=wide,
        renormalise=True,
    ).checked(meta)


def refuse_gguf_scaling(meta: Metadata, arch: str) -> None:
    """UnsupportedError when positions are scaled; a factor without a type means linear (loader of llama.cpp)."""
    scaling = meta.string(f"{arch}.rope.scaling.type", "none")
    if scaling not in ("none", ""):
        raise UnsupportedError(f"{meta.file}: key {arch}.rope.scaling.type: rotary scaling {scaling!r} is not built")
    for key in (f"{arch}.rope.scaling.factor", f"{arch}.rope.scale_linear"):
        factor = meta.number(key, 0, 1e9, default=0.0)
        if factor not in (0.0, 1.0):
            raise UnsupportedError(f"{meta.file}: key {key}: rotary scaling by {factor:g} is not built")


def gguf_delta(meta: Metadata, arch: str) -> DeltaConfig:
    """Read `arch`'s state-space keys (inner_size = value heads * value dim)."""
    value_heads = meta.integer(f"{arch}.ssm.time_step_rank", 1, 4096)
    key_heads = meta.integer(f"{arch}.ssm.group_count", 1, value_heads)
    inner = meta.integer(f"{arch}.ssm.inner_size", value_heads, WIDE)
    return checked(
        meta,
        DeltaConfig(
            key_heads=key_heads,
            value_heads=value_heads,
            key_dim=meta.integer(f"{arch}.ssm.state_size", 1, 4096),
            value_dim=inner // value_heads,
            taps=meta.integer(f"{arch}.ssm.conv_kernel", 2, 64),
        ),
    )


def hf_rope(meta: Metadata, head_dim: int, partial: float, theta: float) -> tuple[float, int]:
    """(theta, rotary dims) from rope_parameters or the older keys; `partial` and `theta` are the class's defaults."""
    for key in ("rope_parameters.rope_type", "rope_parameters.type", "rope_scaling.rope_type", "rope_scaling.type"):
        kind = meta.string(key, "default")
        if kind != "default":
            raise UnsupportedError(f"{meta.file}: key {key}: rotary scaling {kind!r} is not built")
    theta = meta.number("rope_parameters.rope_theta", 1, 1e12, default=meta.number("rope_theta", 1, 1e12, theta))
    older = meta.number("partial_rotary_factor", 0.01, 1, default=partial)
    rotary = int(head_dim * meta.number("rope_parameters.partial_rotary_factor", 0.01, 1, default=older))
    return theta, rotary


def hf_decoder(meta: Metadata, partial: float, renormalise: bool, theta: float = 10000.0) -> DecoderConfig:
    """Read config.json; `partial`, `renormalise` and `theta` are the class's defaults for absent keys."""
    if meta.flag("attention_bias", False):
        raise UnsupportedError(f"{meta.file}: key attention_bias: attention with bias is not built")
    if meta.string("hidden_act", "silu") != "silu":
        raise UnsupportedError(f"{meta.file}: key hidden_act: expected 'silu', found {meta.string('hidden_act')!r}")
    hidden = meta.integer("hidden_size", 1, WIDE)
    heads = meta.integer("num_attention_heads", 1, 4096)
    head_dim = meta.integer("head_dim", 1, 4096, default=hidden // heads)
    theta, rotary = hf_rope(meta, head_dim, partial, theta)
    experts = meta.integer("num_experts", 0, 65536, default=meta.integer("num_local_experts", 0, 65536, default=0))
    dense = meta.integer("intermediate_size", 0, WIDE, default=0)
    return DecoderConfig(
        hidden=hidden,
        layers=meta.integer("num_hidden_layers", 1, 4096),
        heads=heads,
        kv_heads=meta.integer("num_key_value_heads", 1, heads, default=heads),
        head_dim=head_dim,
        eps=meta.number("rms_norm_eps", 0, 1),
        rope_theta=theta,
        rotary=rotary,
        context=meta.integer("max_position_embeddings", 1, WIDE),
        experts=experts,
        top_k=meta.integer("num_experts_per_tok", 1, experts) if experts else 0,
        expert_width=meta.integer("moe_intermediate_size", 1, WIDE, default=dense) if experts else 0,
        shared_width=meta.integer("shared_expert_intermediate_size", 0, WIDE, default=0),
        dense_width=dense,
        renormalise=meta.flag("norm_topk_prob", renormalise),
        # Absent, it may be either: the default has changed over time.
        tied=meta.flag("tie_word_embeddings", True),
    ).checked(meta)


def hf_delta(meta: Metadata) -> DeltaConfig:
    """Read config.json's linear_* keys."""
    value_heads = meta.integer("linear_num_value_heads", 1, 4096)
    return checked(
        meta,
        DeltaConfig(
            key_heads=meta.integer("linear_num_key_heads", 1, value_heads),
            value_heads=value_heads,
            key_dim=meta.integer("linear_key_head_dim", 1, 4096),
            value_dim=meta.integer("linear_value_head_dim", 1, 4096),
            taps=meta.integer("linear_conv_kernel_dim", 2, 64),
        ),
    )


def checked(meta: Metadata, delta: DeltaConfig) -> DeltaConfig:
    """Refuse head counts that cannot be paired."""
    if delta.value_heads % delta.key_heads:
        raise UnsupportedError(
            f"{meta.file}: {delta.value_heads} value heads cannot be shared out over {delta.key_heads} key heads"
        )
    return delta


def gguf_attention_layers(meta: Metadata, arch: str, layers: int) -> frozenset[int]:
    """Layers with full attention: attention.recurrent_layers when present, else every n-th."""
    key = f"{arch}.attention.recurrent_layers"
    if key in meta:
        recurrent = meta.values[key]
        if isinstance(recurrent, str | int | float) or recurrent is None or len(recurrent) < layers:
            raise UnsupportedError(f"{meta.file}: key {key}: expected one entry per layer")
        return frozenset(i for i in range(layers) if not recurrent[i])
    interval = meta.integer(f"{arch}.full_attention_interval", 1, 4096, default=4)
    return frozenset(i for i in range(layers) if (i + 1) % interval == 0)


def hf_attention_layers(meta: Metadata, layers: int) -> frozenset[int]:
    """Layers with full attention: layer_types when present, else every n-th."""
    if "layer_types" in meta:
        types = meta.strings("layer_types")
        if len(types) != layers or set(types) - {"linear_attention", "full_attention", "indexed_attention"}:
            raise UnsupportedError(
                f"{meta.file}: key layer_types: expected {layers} known types, found {list(types)[:8]}"
            )
        return frozenset(i for i, t in enumerate(types) if t != "linear_attention")
    interval = meta.integer("full_attention_interval", 1, 4096, default=4)
    return frozenset(i for i in range(layers) if (i + 1) % interval == 0)
