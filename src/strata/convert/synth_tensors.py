"""The tensors of a random model: names, shapes, and how each is filled."""

from collections.abc import Callable, Iterator

from strata.convert.shapes import Shape
from strata.convert.synth_keys import ngram_sizes
from strata.convert.tensors import Item


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
    yield item(b + "ffn_gate_inp", s.experts, s.hidden, kind="router")
    yield item(b + "ffn_gate_exps", s.experts, s.width, s.hidden)
    yield item(b + "ffn_up_exps", s.experts, s.width, s.hidden)
    yield item(b + "ffn_down_exps", s.experts, s.hidden, s.width)
    if s.shared:
        yield item(b + "ffn_gate_inp_shexp", s.hidden, kind="gate")
        yield item(b + "ffn_gate_shexp", s.shared, s.hidden)
        yield item(b + "ffn_up_shexp", s.shared, s.hidden)
        yield item(b + "ffn_down_shexp", s.hidden, s.shared)
