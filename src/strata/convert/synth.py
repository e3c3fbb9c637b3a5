"""Random models of published shapes, for benchmarks and tests: right sizes and formats, meaningless text."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from strata.checkpoint.writer import TensorSource, write_gguf
from strata.convert.shapes import Shape
from strata.convert.synth_keys import ngram_sizes, synth_keys
from strata.convert.tensors import Floats, Item
from strata.convert.types import Types, choose
from strata.convert.write import Progress
from strata.quant.encode import encode, needs_importance

POOL_ROWS = 2048
"""A matrix of more rows is drawn from this many encoded ones: i-quants encode only about a million values a second."""


class Randomness:
    """Rows of N(0, gain / sqrt(columns)), drawn from one seeded generator."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def rows(self, count: int, cols: int, gain: float) -> Floats:
        """float32 [count, cols]"""
        x = self.generator.standard_normal((count, cols), dtype=np.float32)
        return x * np.float32(gain / np.sqrt(cols))


def synth(target: Path, shape: Shape, types: Types, seed: int, progress: Progress) -> int:
    """Write a random model; returns its number of parameters."""
    random = Randomness(seed)
    items = list(tensor_shapes(shape))
    total, done = sum(item.count for item, _ in items), 0

    def source(item: Item, kind: str) -> TensorSource:
        choice = choose(item, types)

        def make() -> Iterator[bytes]:
            nonlocal done
            rows = item.count // item.columns
            pool = min(rows, POOL_ROWS) if choice.format.kind == "codes" else rows
            values = small(random, item, kind) if kind != "matrix" else random.rows(pool, item.columns, gain(item.name))
            weights = np.ones(item.columns, np.float32) if needs_importance(choice.format) else None
            data = encode(choice.format, values.reshape(-1, item.columns), weights)
            done += item.count
            progress(item.name, done, total)
            if len(data) == rows:
                yield data.tobytes()
                return
            for start in range(0, rows, POOL_ROWS * 16):
                yield data[random.generator.integers(0, len(data), min(POOL_ROWS * 16, rows - start))].tobytes()

        return TensorSource(item.name, item.shape, choice.format, make)

    write_gguf(target, synth_keys(shape), [source(item, kind) for item, kind in items])
    return total


def gain(name: str) -> float:
    """Sizes that keep activations alive: see formulas of initialisation; experts a little louder, logits spread."""
    if name.startswith("output.") or "ffn_gate_inp." in name:
        return 3.0
    return 1.5 if "_exps" in name else 1.0


def small(random: Randomness, item: Item, kind: str) -> Floats:
    """Norms near 1, decay rates negative, time steps small."""
    noise = random.generator.standard_normal(item.count).astype(np.float32)
    spread: dict[str, Callable[[Floats], Floats]] = {
        "norm": lambda z: 1 + np.float32(0.1) * z,
        "decay": lambda z: -np.exp(z),
        "dt": lambda z: z - 2,
        "conv": lambda z: np.float32(0.5) * z,
        "embedding": lambda z: np.float32(0.5) * z,
    }
    return spread[kind](noise)


def tensor_shapes(s: Shape) -> Iterator[tuple[Item, str]]:
    """Every tensor with how it is filled."""

    def item(name: str, *shape: int, kind: str = "matrix") -> tuple[Item, str]:
        suffix = "" if name.endswith(("ssm_a", "bias")) else ".weight"
        return Item(name + suffix, shape, lambda: iter(()), "F32"), kind

    yield item("token_embd", s.vocabulary, s.hidden, kind="embedding")
    yield item("output", s.vocabulary, s.hidden)
    if s.streams:
        yield from hyper(item, "output_hc", s, inject=False)
        yield item("per_layer_token_embd", sum(ngram_sizes(s)), s.ngram_row, kind="embedding")
    else:
        yield item("output_norm", s.hidden, kind="norm")
    for layer in range(s.layers):
        b = f"blk.{layer}."
        if s.streams:
            yield from hyper(item, b + "hc_attn", s, inject=True)
            yield from hyper(item, b + "hc_ffn", s, inject=True)
            if layer == 1:
                yield from ngram(item, b, s)
        else:
            yield item(b + "attn_norm", s.hidden, kind="norm")
            post = "ffn_norm" if s.arch == "qwen3moe" else "post_attention_norm"
            yield item(b + post, s.hidden, kind="norm")
        yield from (attention if (layer + 1) % s.interval == 0 else delta_net)(item, b, s)
        yield from experts(item, b, s)


Make = Callable[..., tuple[Item, str]]


def hyper(item: Make, prefix: str, s: Shape, inject: bool) -> Iterator[tuple[Item, str]]:
    """One hyper-connection."""
    wide = s.streams * s.hidden
    yield item(f"{prefix}_norm", wide, kind="norm")
    yield item(f"{prefix}_down", s.low_rank, wide)
    yield item(f"{prefix}_up", wide, s.low_rank)
    if inject:
        yield item(f"{prefix}_inject", s.streams, wide)


def ngram(item: Make, b: str, s: Shape) -> Iterator[tuple[Item, str]]:
    """The n-gram embedding of a layer."""
    wide, cols = s.streams * s.hidden, s.ngram_row * len(ngram_sizes(s))
    yield item(b + "ple_key", wide, cols)
    yield item(b + "ple_value", s.hidden, cols)
    for name in ("ple_norm_key", "ple_norm_query", "ple_norm_conv"):
        yield item(b + name, wide, kind="norm")
    yield item(b + "ple_conv1d", wide, 4, kind="conv")


def attention(item: Make, b: str, s: Shape) -> Iterator[tuple[Item, str]]:
    """Attention, gated in all but qwen3moe, with an indexer where the shape has one."""
    double = 1 if s.arch == "qwen3moe" else 2
    yield item(b + "attn_q", double * s.heads * s.head_dim, s.hidden)
    yield item(b + "attn_k", s.kv_heads * s.head_dim, s.hidden)
    yield item(b + "attn_v", s.kv_heads * s.head_dim, s.hidden)
    yield item(b + "attn_output", s.hidden, s.heads * s.head_dim)
    yield item(b + "attn_q_norm", s.head_dim, kind="norm")
    yield item(b + "attn_k_norm", s.head_dim, kind="norm")
    if s.index_dim:
        yield item(b + "indexer.q_proj", s.index_heads * s.index_dim, s.hidden)
        yield item(b + "indexer.k_proj", s.index_dim, s.hidden)
        yield item(b + "indexer.q_norm", s.index_dim, kind="norm")
        yield item(b + "indexer.k_norm", s.index_dim, kind="norm")


def delta_net(item: Make, b: str, s: Shape) -> Iterator[tuple[Item, str]]:
    """The gated delta net; qwen3next keeps b and a packed."""
    inner = s.value_heads * s.key_dim
    channels = 2 * s.key_heads * s.key_dim + inner
    yield item(b + "attn_qkv", channels, s.hidden)
    yield item(b + "attn_gate", inner, s.hidden)
    if s.arch == "qwen3next":
        yield item(b + "ssm_ba", 2 * s.value_heads, s.hidden)
    else:
        yield item(b + "ssm_beta", s.value_heads, s.hidden)
        yield item(b + "ssm_alpha", s.value_heads, s.hidden)
    yield item(b + "ssm_conv1d", channels, 4, kind="conv")
    yield item(b + "ssm_a", s.value_heads, kind="decay")
    yield item(b + "ssm_dt.bias", s.value_heads, kind="dt")
    yield item(b + "ssm_norm", s.key_dim, kind="norm")
    yield item(b + "ssm_out", s.hidden, inner)


def experts(item: Make, b: str, s: Shape) -> Iterator[tuple[Item, str]]:
    """Router, experts, shared expert."""
    yield item(b + "ffn_gate_inp", s.experts, s.hidden)
    yield item(b + "ffn_gate_exps", s.experts, s.width, s.hidden)
    yield item(b + "ffn_up_exps", s.experts, s.width, s.hidden)
    yield item(b + "ffn_down_exps", s.experts, s.hidden, s.width)
    if s.shared:
        yield item(b + "ffn_gate_inp_shexp", s.hidden, kind="norm")
        yield item(b + "ffn_gate_shexp", s.shared, s.hidden)
        yield item(b + "ffn_up_shexp", s.shared, s.hidden)
        yield item(b + "ffn_down_shexp", s.hidden, s.shared)
