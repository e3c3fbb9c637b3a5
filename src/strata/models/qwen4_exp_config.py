"""The numbers of Qwen3.8-Flash-Next, from GGUF keys or config.json (and its hash buffers)."""

from collections.abc import Mapping
from dataclasses import dataclass

from strata.checkpoint.metadata import Metadata
from strata.core.errors import UnsupportedError
from strata.kernels.views import NgramHash
from strata.models.config import (
    WIDE,
    DecoderConfig,
    DeltaConfig,
    gguf_attention_layers,
    gguf_decoder,
    gguf_delta,
    hf_attention_layers,
    hf_decoder,
    hf_delta,
)
from strata.models.source import Source

A = "qwen4exp"


@dataclass(frozen=True, slots=True)
class ExpConfig:
    """Sizes of the parts that the other architectures do not have."""

    decoder: DecoderConfig
    delta: DeltaConfig
    attention_layers: frozenset[int]
    sigmoid_gate: bool
    streams: int
    low_rank: int
    index_heads: int
    index_dim: int
    index_budget: int
    """Tokens."""
    ratios: tuple[int, ...]
    """Per layer: tokens per block, 0 = no indexer (delta net, or dense attention)."""
    ngram_size: int
    ngram_row: int
    ngram_taps: int
    hashes: Mapping[int, NgramHash]
    """By layer, counted from 0."""


def read_config(meta: Metadata, source: Source, vocabulary: int) -> ExpConfig:
    """The numbers of either container."""
    return gguf_config(meta) if source.container == "gguf" else hf_config(meta, source, vocabulary)


def gguf_config(meta: Metadata) -> ExpConfig:
    """From `qwen4exp.*` keys (loader and converter of llama.cpp)."""
    decoder = gguf_decoder(meta, A)
    ngram = meta.integer(f"{A}.ple.ngram_size", 2, 16)
    heads = meta.integer(f"{A}.ple.heads_per_ngram", 1, 1024) * (ngram - 1)
    hashing = NgramHash(
        meta.integers(f"{A}.ple.layer_multipliers", ngram),
        meta.integers(f"{A}.ple.head_vocab_sizes", heads),
        meta.integers(f"{A}.ple.head_offsets", heads),
        meta.integer(f"{A}.ple.eos_token_id", 0, WIDE),
    )
    layers = meta.integers(f"{A}.ple.layers")
    if len(layers) > 1:
        raise UnsupportedError(f"{meta.file}: key {A}.ple.layers: one n-gram layer is supported, found {len(layers)}")
    ratios = meta.integers(f"{A}.attention.compress_ratios")
    if len(ratios) < decoder.layers:
        raise UnsupportedError(f"{meta.file}: key {A}.attention.compress_ratios: expected one entry per layer")
    attention = gguf_attention_layers(meta, A, decoder.layers)
    return ExpConfig(
        decoder=decoder,
        delta=gguf_delta(meta, A),
        attention_layers=attention,
        sigmoid_gate=True,
        streams=meta.integer(f"{A}.hyper_connection.count", 1, 64),
        low_rank=meta.integer(f"{A}.hyper_connection.low_rank", 1, WIDE),
        index_heads=meta.integer(f"{A}.attention.indexer.head_count", 1, 1024),
        index_dim=meta.integer(f"{A}.attention.indexer.key_length", 1, 4096),
        index_budget=meta.integer(f"{A}.attention.indexer.top_k", 1, WIDE),
        ratios=tuple(ratios[i] if i in attention else 0 for i in range(decoder.layers)),
        ngram_size=ngram,
        ngram_row=meta.integer(f"{A}.embedding_length_per_layer_input", 1, WIDE),
        ngram_taps=meta.integer(f"{A}.ple.conv_kernel", 2, 64),
        hashes=dict.fromkeys(layers, hashing),
    )


def hf_config(meta: Metadata, source: Source, vocabulary: int) -> ExpConfig:
    """From config.json; the hash constants are int64 buffers of the n-gram layer."""
    decoder = hf_decoder(meta, 1.0, renormalise=True)
    # Unset, it is hidden_act, and that is silu (hf_decoder refuses anything else).
    gate = meta.string("output_gate_type", "silu")
    if gate not in ("sigmoid", "silu"):
        raise UnsupportedError(f"{meta.file}: key output_gate_type: expected sigmoid or silu, found {gate!r}")
    if meta.integer("indexer_kv_heads", 1, 1024, default=1) != 1:
        raise UnsupportedError(f"{meta.file}: key indexer_kv_heads: one key head is supported")
    ngram = meta.integer("ngram_size", 2, 16, default=3)
    heads = meta.integer("heads_per_ngram", 1, 1024) * (ngram - 1)
    layers = [i - 1 for i in meta.integers("ple_layer_ids")]
    if len(layers) > 1:
        raise UnsupportedError(f"{meta.file}: key ple_layer_ids: one n-gram layer is supported, found {len(layers)}")
    end = meta.values.get("eos_token_id")
    if not isinstance(end, int) or isinstance(end, bool) or not 0 <= end < vocabulary:
        # A list names several ends; which of them the hash uses differs between converters, so it is not guessed.
        raise UnsupportedError(f"{meta.file}: key eos_token_id: the n-gram hash needs one id, found {end!r}")
    hashes = {}
    for layer in layers:
        base = f"model.layers.{layer}.ple.ple_embedding."
        hashes[layer] = NgramHash(
            source.integers(base + "layer_multipliers", ngram),
            source.integers(base + "ngram_heads_vocab_sizes", heads),
            source.integers(base + "ngram_heads_offsets", heads),
            end,
        )
    attention = hf_attention_layers(meta, decoder.layers)
    ratio, budget = meta.integer("indexer_compress_ratio", 1, 1024), meta.integer("indexer_budget", 1, WIDE)
    if budget % ratio:
        raise UnsupportedError(f"{meta.file}: key indexer_budget: {budget} tokens are no whole blocks of {ratio}")
    return ExpConfig(
        decoder=decoder,
        delta=hf_delta(meta),
        attention_layers=attention,
        sigmoid_gate=gate == "sigmoid",
        streams=meta.integer("hc_count", 1, 64),
        low_rank=meta.integer("hc_lowrank", 1, WIDE),
        index_heads=meta.integer("indexer_n_heads", 1, 1024),
        index_dim=meta.integer("indexer_head_dim", 1, 4096),
        index_budget=budget,
        ratios=tuple(ratio if i in attention else 0 for i in range(decoder.layers)),
        ngram_size=ngram,
        ngram_row=meta.integer("ple_embed_dim", 1, WIDE) // heads,
        ngram_taps=meta.integer("ple_conv_kernel_size", 2, 64),
        hashes=hashes,
    )
