"""config.json -> GGUF keys (what llama.cpp's loaders read)."""

from collections.abc import Iterable, Mapping, Sequence

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.metadata import Metadata
from strata.checkpoint.typed import Typed, ValueType, array, f32, string, u32
from strata.convert.tensors import Item
from strata.core.errors import UnsupportedError, UsageError
from strata.models import llama, qwen3moe
from strata.models.config import DecoderConfig, hf_attention_layers, hf_decoder, hf_delta
from strata.models.source import int64s

OWN_READERS = {"qwen3moe": qwen3moe.read_config, "llama": llama.read_config}
"""Architectures whose config.json has keys of its own."""
PARTIAL = {"qwen3next": 0.25, "qwen35moe": 0.25, "qwen4exp": 1.0}
"""Part of a head that is rotated where config.json does not say (the class's default)."""


def decoder_of(meta: Metadata, arch: str) -> DecoderConfig:
    """The decoder's numbers; refuses what a GGUF file cannot say (router weights that are not renormalised)."""
    own = OWN_READERS.get(arch)
    c = own(meta, "safetensors") if own is not None else hf_decoder(meta, PARTIAL[arch], renormalise=True)
    if not c.renormalise:
        raise UnsupportedError(f"{meta.file}: key norm_topk_prob: GGUF cannot express false; its readers assume true")
    return c


def drafting_layers(tensors: Iterable[str]) -> int:
    """How many MTP layers the folder holds (config.json may promise some that were left out)."""
    return len({n.split(".")[2] for n in tensors if n.startswith("mtp.layers.")})


def model_keys(checkpoint: Checkpoint, arch: str, drafting: int, vocabulary: int) -> dict[str, Typed]:
    """All keys of the model itself, in llama.cpp's usual order."""
    meta = checkpoint.metadata
    c = decoder_of(meta, arch)
    keys: dict[str, Typed] = {
        "general.architecture": string(arch),
        "general.type": string("model"),
        f"{arch}.block_count": u32(c.layers + drafting),
        f"{arch}.context_length": u32(c.context),
        f"{arch}.embedding_length": u32(c.hidden),
        f"{arch}.feed_forward_length": u32(c.dense_width or c.expert_width * c.top_k),
        f"{arch}.attention.head_count": u32(c.heads),
        f"{arch}.attention.head_count_kv": u32(c.kv_heads),
        f"{arch}.attention.key_length": u32(c.head_dim),
        f"{arch}.attention.value_length": u32(c.head_dim),
        f"{arch}.attention.layer_norm_rms_epsilon": f32(c.eps),
        f"{arch}.rope.freq_base": f32(c.rope_theta),
        f"{arch}.vocab_size": u32(vocabulary),
    }
    if c.rotary != c.head_dim or arch == "llama":
        keys[f"{arch}.rope.dimension_count"] = u32(c.rotary)
    if c.experts:
        keys[f"{arch}.expert_count"] = u32(c.experts)
        keys[f"{arch}.expert_used_count"] = u32(c.top_k)
        if arch != "llama":
            keys[f"{arch}.expert_feed_forward_length"] = u32(c.expert_width)
    if c.shared_width:
        keys[f"{arch}.expert_shared_feed_forward_length"] = u32(c.shared_width)
    if drafting:
        keys[f"{arch}.nextn_predict_layers"] = u32(drafting)
    if arch in ("qwen3next", "qwen35moe", "qwen4exp"):
        keys |= hybrid_keys(meta, arch, c, drafting)
    if arch == "qwen4exp":
        keys |= exp_keys(checkpoint, c, drafting)
    return keys


def hybrid_keys(meta: Metadata, arch: str, c: DecoderConfig, drafting: int) -> dict[str, Typed]:
    """Keys of the delta net, and which layers attend."""
    d = hf_delta(meta)
    keys = {
        f"{arch}.ssm.conv_kernel": u32(d.taps),
        f"{arch}.ssm.state_size": u32(d.key_dim),
        f"{arch}.ssm.group_count": u32(d.key_heads),
        f"{arch}.ssm.time_step_rank": u32(d.value_heads),
        f"{arch}.ssm.inner_size": u32(d.value_heads * d.value_dim),
    }
    attends = hf_attention_layers(meta, c.layers)
    interval = meta.integer("full_attention_interval", 1, 4096, default=4)
    if attends == frozenset(i for i in range(c.layers) if (i + 1) % interval == 0):
        keys[f"{arch}.full_attention_interval"] = u32(interval)
    else:
        recurrent = [i not in attends for i in range(c.layers)] + [False] * drafting
        keys[f"{arch}.attention.recurrent_layers"] = array(ValueType.BOOL, recurrent)
    if "rope_parameters.mrope_section" in meta:
        sections = [*meta.integers("rope_parameters.mrope_section", 3), 0]
        keys[f"{arch}.rope.dimension_sections"] = array(ValueType.INT32, sections)
    return keys


def exp_keys(checkpoint: Checkpoint, c: DecoderConfig, drafting: int) -> dict[str, Typed]:
    """Hyper-connections, the indexer and the n-gram hash of Flash-Next."""
    meta, a = checkpoint.metadata, "qwen4exp"
    if meta.string("output_gate_type", "sigmoid") != "sigmoid":
        raise UnsupportedError(f"{meta.file}: key output_gate_type: GGUF readers of {a} assume sigmoid")
    ngram = meta.integer("ngram_size", 2, 16, default=3)
    per = meta.integer("heads_per_ngram", 1, 1024)
    heads = per * (ngram - 1)
    attends = hf_attention_layers(meta, c.layers)
    ratio = meta.integer("indexer_compress_ratio", 1, 1024)
    layers = [i - 1 for i in meta.integers("ple_layer_ids")]
    keys = {
        f"{a}.hyper_connection.count": u32(meta.integer("hc_count", 1, 64)),
        f"{a}.hyper_connection.low_rank": u32(meta.integer("hc_lowrank", 1, 1 << 24)),
        f"{a}.attention.indexer.head_count": u32(meta.integer("indexer_n_heads", 1, 1024)),
        f"{a}.attention.indexer.key_length": u32(meta.integer("indexer_head_dim", 1, 4096)),
        f"{a}.attention.indexer.top_k": u32(meta.integer("indexer_budget", 1, 1 << 24)),
        f"{a}.attention.compress_ratios": array(
            ValueType.UINT32, [ratio if i in attends else 0 for i in range(c.layers)] + [0] * drafting
        ),
        f"{a}.ple.layers": array(ValueType.UINT32, layers),
        f"{a}.ple.ngram_size": u32(ngram),
        f"{a}.ple.heads_per_ngram": u32(per),
        f"{a}.ple.conv_kernel": u32(meta.integer("ple_conv_kernel_size", 2, 64)),
        f"{a}.ple.eos_token_id": u32(meta.integer("eos_token_id", 0, 1 << 24)),
        f"{a}.embedding_length_per_layer_input": u32(meta.integer("ple_embed_dim", 1, 1 << 24) // heads),
    }
    base = f"model.layers.{layers[0]}.ple.ple_embedding."
    for key, leaf, count in (
        ("layer_multipliers", "layer_multipliers", ngram),
        ("head_vocab_sizes", "ngram_heads_vocab_sizes", heads),
        ("head_offsets", "ngram_heads_offsets", heads),
    ):
        keys[f"{a}.ple.{key}"] = array(ValueType.UINT64, int64s(checkpoint, base + leaf, count))
    return keys


def without_drafting(items: Sequence[Item], keys: Mapping[str, Typed]) -> tuple[list[Item], dict[str, Typed]]:
    """The same model without its drafting layers; UsageError when it has none."""
    arch = str(keys["general.architecture"].value)
    count, name = keys.get(f"{arch}.nextn_predict_layers"), f"{arch}.block_count"
    if count is None or not isinstance(count.value, int) or not count.value:
        raise UsageError("--no-mtp: the model has no drafting layer")
    blocks = keys[name].value
    assert isinstance(blocks, int)
    left = {k: v for k, v in keys.items() if k != f"{arch}.nextn_predict_layers"}
    for key, typed in left.items():
        if key.startswith(f"{arch}.") and isinstance(typed.value, tuple) and len(typed.value) == blocks:
            # one entry per layer
            left[key] = Typed(typed.type, typed.value[: blocks - count.value])
    left[name] = u32(blocks - count.value)
    return [item for item in items if not item.drafting], left
