"""Sizes and weights from a GGUF file: norms carry their +1, `ssm_a` is -exp(A_log), value heads in file order."""

import numpy as np

from strata.checkpoint.checkpoint import Checkpoint
from strata.core.errors import CheckpointError, UnsupportedError
from strata.parity.settings import DeltaShape, IndexShape, Kind, NgramShape, Rotary, Settings, kinds_of
from strata.parity.unpack import packed_ba, packed_qkvz
from strata.parity.weights import (
    AttentionWeights,
    DeltaWeights,
    Gated,
    HyperWeights,
    LayerWeights,
    Matrix,
    ModelWeights,
    MoeWeights,
    NgramWeights,
    Source,
)

FAMILIES = ("qwen3moe", "qwen3next", "qwen35moe", "qwen4exp", "llama")
TILED = ("qwen35moe", "qwen4exp")
BIG = 1 << 40


class Keys:
    """Metadata of one file under its architecture's prefix."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.metadata = checkpoint.metadata
        self.family = self.metadata.string("general.architecture")
        if self.family not in FAMILIES:
            raise UnsupportedError(
                f"{checkpoint.path}: architecture {self.family}: expected one of {', '.join(FAMILIES)}"
            )

    def has(self, key: str) -> bool:
        """Whether the file has the key."""
        return f"{self.family}.{key}" in self.metadata

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number from 0."""
        return self.metadata.integer(f"{self.family}.{key}", 0, BIG, default)

    def number(self, key: str, default: float | None = None) -> float:
        """A number from 0."""
        return self.metadata.number(f"{self.family}.{key}", 0.0, 1e12, default)

    def integers(self, key: str) -> tuple[int, ...]:
        """An array."""
        return self.metadata.integers(f"{self.family}.{key}")

    def flags(self, key: str) -> list[bool]:
        """An array of true and false, which some writers store as numbers."""
        value = self.metadata.values[f"{self.family}.{key}"]
        if value is None or isinstance(value, str | int | float):
            raise CheckpointError(f"{self.metadata.file}: key {self.family}.{key}: expected an array, found {value!r}")
        return [bool(v) for v in value]


def kinds(keys: Keys, layers: int) -> tuple[Kind, ...]:
    """The mixer of every layer."""
    if keys.family in ("qwen3moe", "llama"):
        return kinds_of([False] * layers)
    if keys.has("attention.recurrent_layers"):
        return kinds_of(keys.flags("attention.recurrent_layers")[:layers])
    interval = keys.integer("full_attention_interval", 4)
    return kinds_of((i + 1) % interval != 0 for i in range(layers))


def delta_shape(keys: Keys) -> DeltaShape:
    """The delta net's sizes."""
    heads = keys.integer("ssm.time_step_rank")
    return DeltaShape(
        key_heads=keys.integer("ssm.group_count"),
        value_heads=heads,
        key_dim=keys.integer("ssm.state_size"),
        value_dim=keys.integer("ssm.inner_size") // heads,
        tiled=keys.family in TILED,
        sigmoid_gate=keys.family == "qwen4exp",
    )


def ngram_shape(keys: Keys) -> NgramShape:
    """The hash constants, as stored."""
    return NgramShape(
        layers=keys.integers("ple.layers"),
        size=keys.integer("ple.ngram_size"),
        heads=keys.integer("ple.heads_per_ngram"),
        multipliers=keys.integers("ple.layer_multipliers"),
        rows=keys.integers("ple.head_vocab_sizes"),
        offsets=keys.integers("ple.head_offsets"),
        end=keys.integer("ple.eos_token_id"),
    )


def settings(checkpoint: Checkpoint, source: Source) -> Settings:
    """Read every size from the metadata."""
    keys = Keys(checkpoint)
    layers = keys.integer("block_count") - keys.integer("nextn_predict_layers", 0)
    hidden, heads = keys.integer("embedding_length"), keys.integer("attention.head_count")
    head_dim = keys.integer("attention.key_length", hidden // heads)
    if "rope_freqs.weight" in source or keys.has("rope.scaling.factor"):
        raise UnsupportedError(f"{checkpoint.path}: the reference knows no scaled rotary embedding")
    index, ratios = None, tuple[int, ...]()
    if keys.family == "qwen4exp":
        ratios = keys.integers("attention.compress_ratios")[:layers]
    if any(ratios):
        ratio = max(ratios)
        blocks = keys.integer("attention.indexer.top_k") // ratio
        index = IndexShape(
            keys.integer("attention.indexer.head_count"), keys.integer("attention.indexer.key_length"), blocks, ratio
        )
    mixers = kinds(keys, layers)
    return Settings(
        architecture=keys.family,
        vocabulary=source.shape("token_embd.weight")[0],
        hidden=hidden,
        heads=heads,
        kv_heads=keys.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        eps=keys.number("attention.layer_norm_rms_epsilon"),
        rotary=Rotary(
            keys.integer("rope.dimension_count", head_dim),
            keys.number("rope.freq_base", 10000.0),
            keys.family == "llama",
        ),
        kinds=mixers,
        output_gate=keys.family in ("qwen3next", "qwen35moe", "qwen4exp"),
        experts=keys.integer("expert_count", 0),
        top_k=keys.integer("expert_used_count", 0),
        renormalise=True,
        delta=delta_shape(keys) if "delta_net" in mixers else None,
        index=index,
        indexed=tuple(r > 0 for r in ratios) if index is not None else (),
        streams=keys.integer("hyper_connection.count") if keys.family == "qwen4exp" else 0,
        ngram=ngram_shape(keys) if keys.has("ple.layers") else None,
    )


class Loader:
    """Builds the weights of a file."""

    def __init__(self, source: Source, s: Settings) -> None:
        self.source, self.s = source, s

    def gated(self, b: str, suffix: str) -> Gated:
        """gate, up and down of one dense block."""
        return Gated(*(self.source.matrix(f"{b}ffn_{part}{suffix}.weight") for part in ("gate", "up", "down")))

    def attention(self, i: int) -> AttentionWeights:
        """The attention of layer i."""
        b, source, s = f"blk.{i}.", self.source, self.s
        rows = [s.heads * s.head_dim * (2 if s.output_gate else 1)] + [s.kv_heads * s.head_dim] * 2
        if b + "attn_q.weight" in source:
            query, key, value = (source.matrix(f"{b}attn_{part}.weight") for part in "qkv")
        else:
            whole, start, parts = source.matrix(b + "attn_qkv.weight"), 0, list[Matrix]()
            for count in rows:
                parts.append(whole.take(range(start, start + count)))
                start += count
            query, key, value = parts
        normed, index = b + "attn_q_norm.weight" in source, s.selects(i)
        return AttentionWeights(
            query=query,
            key=key,
            value=value,
            output=source.matrix(b + "attn_output.weight"),
            query_norm=source.array(b + "attn_q_norm.weight") if normed else None,
            key_norm=source.array(b + "attn_k_norm.weight") if normed else None,
            index_query=source.matrix(b + "indexer.q_proj.weight") if index else None,
            index_key=source.matrix(b + "indexer.k_proj.weight") if index else None,
            index_query_norm=source.array(b + "indexer.q_norm.weight") if index else None,
            index_key_norm=source.array(b + "indexer.k_norm.weight") if index else None,
        )

    def delta(self, b: str) -> DeltaWeights:
        """A delta net, in whichever packing the file has."""
        source, shape = self.source, self.s.delta
        if shape is None:
            raise ValueError("a delta net without sizes")
        if b + "ssm_in.weight" in source:
            qkv, gate = packed_qkvz(source.matrix(b + "ssm_in.weight"), shape)
        else:
            qkv, gate = source.matrix(b + "attn_qkv.weight"), source.matrix(b + "attn_gate.weight")
        if b + "ssm_ba.weight" in source:
            beta, alpha = packed_ba(source.matrix(b + "ssm_ba.weight"), shape)
        else:
            beta, alpha = source.matrix(b + "ssm_beta.weight"), source.matrix(b + "ssm_alpha.weight")
        return DeltaWeights(
            qkv=qkv,
            gate=gate,
            beta=beta,
            alpha=alpha,
            conv=source.array(b + "ssm_conv1d.weight"),
            rate=source.array(b + "ssm_a").reshape(-1),
            bias=source.array(b + "ssm_dt.bias").reshape(-1),
            norm=source.array(b + "ssm_norm.weight"),
            output=source.matrix(b + "ssm_out.weight"),
        )

    def feed(self, b: str) -> MoeWeights | Gated:
        """Experts or a dense block."""
        source = self.source
        if not self.s.experts:
            return self.gated(b, "")
        if b + "ffn_gate_up_exps.weight" in source:
            half = source.shape(b + "ffn_gate_up_exps.weight")[1] // 2
            gate = source.stack(b + "ffn_gate_up_exps.weight", 0, half)
            up = source.stack(b + "ffn_gate_up_exps.weight", half, half)
        else:
            gate, up = source.stack(b + "ffn_gate_exps.weight"), source.stack(b + "ffn_up_exps.weight")
        down = source.stack(b + "ffn_down_exps.weight")
        shared = b + "ffn_gate_shexp.weight" in source
        return MoeWeights(
            router=source.matrix(b + "ffn_gate_inp.weight"),
            experts=tuple(Gated(*parts) for parts in zip(gate, up, down, strict=True)),
            shared=self.gated(b, "_shexp") if shared else None,
            shared_gate=source.matrix(b + "ffn_gate_inp_shexp.weight") if shared else None,
        )

    def hyper(self, prefix: str, inject: bool) -> HyperWeights:
        """A hyper-connection read."""
        source = self.source
        return HyperWeights(
            norm=source.array(prefix + "norm.weight").reshape(-1),
            down=source.matrix(prefix + "down.weight"),
            up=source.matrix(prefix + "up.weight"),
            inject=source.matrix(prefix + "inject.weight") if inject else None,
        )

    def ngram(self, b: str) -> NgramWeights:
        """The n-gram embedding."""
        source = self.source
        return NgramWeights(
            table=source.matrix("per_layer_token_embd.weight"),
            key=source.matrix(b + "ple_key.weight"),
            value=source.matrix(b + "ple_value.weight"),
            key_norm=source.array(b + "ple_norm_key.weight").reshape(-1),
            query_norm=source.array(b + "ple_norm_query.weight").reshape(-1),
            conv_norm=source.array(b + "ple_norm_conv.weight").reshape(-1),
            conv=source.array(b + "ple_conv1d.weight").astype(np.float64),
        )

    def layer(self, i: int) -> LayerWeights:
        """Everything of layer i."""
        b, s = f"blk.{i}.", self.s
        mixer = self.attention(i) if s.kinds[i] == "attention" else self.delta(b)
        if s.streams:
            return LayerWeights(
                mixer=mixer,
                feed=self.feed(b),
                hyper_mixer=self.hyper(b + "hc_attn_", True),
                hyper_feed=self.hyper(b + "hc_ffn_", True),
                ngram=self.ngram(b) if s.ngram is not None and i in s.ngram.layers else None,
            )
        second = "ffn_norm" if s.architecture in ("qwen3moe", "llama") else "post_attention_norm"
        return LayerWeights(
            mixer=mixer,
            feed=self.feed(b),
            mixer_norm=self.source.array(b + "attn_norm.weight"),
            feed_norm=self.source.array(f"{b}{second}.weight"),
        )

    def model(self) -> ModelWeights:
        """The whole file; a tied head is the embedding."""
        source, s = self.source, self.s
        head = "output.weight" if "output.weight" in source else "token_embd.weight"
        return ModelWeights(
            embedding=source.matrix("token_embd.weight"),
            layers=tuple(self.layer(i) for i in range(s.layers)),
            head=source.matrix(head),
            norm=None if s.streams else source.array("output_norm.weight"),
            hyper=self.hyper("output_hc_", False) if s.streams else None,
        )


def load(checkpoint: Checkpoint) -> tuple[Settings, ModelWeights]:
    """Sizes and weights of a GGUF file."""
    source = Source(checkpoint)
    found = settings(checkpoint, source)
    return found, Loader(source, found).model()
