"""Sizes from config.json, and tensors by their names without the container's prefixes."""

import numpy as np

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.metadata import Metadata
from strata.core.errors import UnsupportedError
from strata.parity.settings import DeltaShape, IndexShape, Kind, NgramShape, Rotary, Settings, kinds_of
from strata.parity.weights import Source

FAMILIES = {
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen3_5_moe": "qwen35moe",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen4_exp": "qwen4exp",
    "qwen4_exp_text": "qwen4exp",
    "llama": "llama",
    "mixtral": "llama",
}
HYBRID = ("qwen3next", "qwen35moe", "qwen4exp")
BIG = 1 << 62


class Names(Source):
    """Tensors by the name without `model.` and, in multimodal files, `language_model.`."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        self.prefix = ""
        for prefix in ("model.language_model.", "model."):
            if f"{prefix}embed_tokens.weight" in checkpoint.tensors:
                self.prefix = prefix
                break

    def full(self, name: str) -> str:
        """The name in the file."""
        return name if name.startswith("lm_head") else self.prefix + name

    def integers(self, name: str) -> tuple[int, ...]:
        """An int64 tensor, exactly."""
        ref = self.checkpoint.tensors[self.full(name)]
        values = self.checkpoint.bytes_of(ref).view(np.dtype("<i8"))
        return tuple(int(v) for v in values)


class Config:
    """config.json, with class defaults where published files leave keys out."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.metadata: Metadata = checkpoint.metadata
        model_type = self.metadata.string("model_type")
        if model_type not in FAMILIES:
            raise UnsupportedError(f"{checkpoint.path}: model_type {model_type}: expected one of {', '.join(FAMILIES)}")
        self.model_type, self.family = model_type, FAMILIES[model_type]

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number from 0."""
        return self.metadata.integer(key, 0, BIG, default)

    def rotary(self, head_dim: int) -> Rotary:
        """From rope_parameters, or from the older top-level keys."""
        kind = self.metadata.string("rope_parameters.rope_type", "default")
        if kind != "default" or "rope_scaling.factor" in self.metadata:
            raise UnsupportedError(f"{self.metadata.file}: rope_type {kind}: the reference knows only default")
        usual = 0.25 if self.family in ("qwen3next", "qwen35moe") else 1.0
        share = self.metadata.number("partial_rotary_factor", 0.0, 1.0, usual)
        share = self.metadata.number("rope_parameters.partial_rotary_factor", 0.0, 1.0, share)
        theta = self.metadata.number("rope_theta", 1.0, 1e12, 10000.0)
        theta = self.metadata.number("rope_parameters.rope_theta", 1.0, 1e12, theta)
        return Rotary(int(head_dim * share), theta, pairs=False)

    def kinds(self) -> tuple[Kind, ...]:
        """The mixer of every layer, by layer_types or by the interval."""
        layers = self.integer("num_hidden_layers")
        if self.family not in HYBRID:
            return kinds_of([False] * layers)
        if "layer_types" in self.metadata:
            return kinds_of(t == "linear_attention" for t in self.metadata.strings("layer_types"))
        interval = self.integer("full_attention_interval", 4)
        return kinds_of((i + 1) % interval != 0 for i in range(layers))

    def renormalise(self) -> bool:
        """norm_topk_prob, where the family has it: absent means false in qwen3_moe only."""
        if self.family in ("llama", "qwen35moe"):
            return True
        return self.metadata.flag("norm_topk_prob", self.family != "qwen3moe")


def ngram_shape(config: Config, source: Names) -> NgramShape | None:
    """The hash constants; PLE layer ids count from 1 in config.json."""
    if config.family != "qwen4exp" or "ple_layer_ids" not in config.metadata:
        return None
    layers = tuple(i - 1 for i in config.metadata.integers("ple_layer_ids"))
    if len(layers) != 1:
        raise UnsupportedError(f"{config.metadata.file}: ple_layer_ids {layers}: the reference knows one such layer")
    b = f"layers.{layers[0]}.ple.ple_embedding."
    return NgramShape(
        layers=layers,
        size=config.integer("ngram_size"),
        heads=config.integer("heads_per_ngram"),
        multipliers=source.integers(b + "layer_multipliers"),
        rows=source.integers(b + "ngram_heads_vocab_sizes"),
        offsets=source.integers(b + "ngram_heads_offsets"),
        end=end_id(config),
    )


def end_id(config: Config) -> int:
    """eos_token_id; the first of a list."""
    value = config.metadata.values.get("eos_token_id")
    if isinstance(value, int):
        return value
    return config.metadata.integers("eos_token_id")[0]


def settings(checkpoint: Checkpoint, source: Names) -> Settings:
    """Read every size from config.json."""
    config = Config(checkpoint)
    integer = config.integer
    hidden, heads = integer("hidden_size"), integer("num_attention_heads")
    gate = config.metadata.string("output_gate_type", "sigmoid")
    head_dim, kinds = integer("head_dim", hidden // heads), config.kinds()
    delta = index = None
    if "delta_net" in kinds:
        delta = DeltaShape(
            key_heads=integer("linear_num_key_heads"),
            value_heads=integer("linear_num_value_heads"),
            key_dim=integer("linear_key_head_dim"),
            value_dim=integer("linear_value_head_dim"),
            tiled=False,
            sigmoid_gate=config.family == "qwen4exp" and gate == "sigmoid",
        )
    if config.family == "qwen4exp":
        ratio = integer("indexer_compress_ratio")
        index = IndexShape(
            integer("indexer_n_heads"), integer("indexer_head_dim"), integer("indexer_budget") // ratio, ratio
        )
    return Settings(
        architecture=config.family,
        vocabulary=integer("vocab_size"),
        hidden=hidden,
        heads=heads,
        kv_heads=integer("num_key_value_heads", heads),
        head_dim=head_dim,
        eps=config.metadata.number("rms_norm_eps", 0.0, 1.0, 1e-6),
        rotary=config.rotary(head_dim),
        kinds=kinds,
        output_gate=config.family in HYBRID,
        experts=integer("num_experts", integer("num_local_experts", 0)),
        top_k=integer("num_experts_per_tok", 0),
        renormalise=config.renormalise(),
        delta=delta,
        index=index,
        indexed=tuple(k == "attention" for k in kinds) if index is not None else (),
        streams=integer("hc_count") if config.family == "qwen4exp" else 0,
        ngram=ngram_shape(config, source),
    )
