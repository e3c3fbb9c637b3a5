"""Published shapes of the models that `strata synth` imitates (config.json of each), and tiny ones of the same kind."""

from dataclasses import dataclass, replace

from strata.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Shape:
    """Every size that a random model needs; zeros where an architecture lacks the part."""

    arch: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary: int
    theta: float
    experts: int
    top_k: int
    width: int
    shared: int
    vocabulary: int
    context: int
    key_heads: int = 0
    value_heads: int = 0
    key_dim: int = 0
    interval: int = 1
    streams: int = 0
    low_rank: int = 0
    index_heads: int = 0
    index_dim: int = 0
    index_budget: int = 0
    ngram_row: int = 0
    ngram_base: int = 0


REAL = {
    "qwen3moe": Shape("qwen3moe", 2048, 48, 32, 4, 128, 128, 1e6, 128, 8, 768, 0, 151936, 40960),
    "qwen3next": Shape(
        "qwen3next", 2048, 48, 16, 2, 256, 64, 1e7, 512, 10, 512, 512, 151936, 262144, 16, 32, 128, interval=4
    ),
    "qwen35moe": Shape(
        "qwen35moe", 2048, 40, 16, 2, 256, 64, 1e7, 256, 8, 512, 512, 248320, 262144, 16, 32, 128, interval=4
    ),
    "qwen4exp": Shape(
        "qwen4exp", 2560, 48, 24, 2, 256, 64, 1e7, 512, 10, 640, 640, 248320, 262144, 16, 48, 128, 4,
        streams=4, low_rank=320, index_heads=4, index_dim=128, index_budget=2048, ngram_row=160, ngram_base=20_000_000,
    ),
}  # fmt: skip
"""Qwen3-30B-A3B, Qwen3-Next-80B-A3B, Qwen3.6-35B-A3B, Qwen3.8-Flash-Next."""

TINY = {
    "qwen3moe": Shape("qwen3moe", 256, 4, 4, 2, 64, 64, 1e4, 16, 4, 256, 0, 1024, 8192),
    "qwen3next": Shape("qwen3next", 256, 4, 4, 2, 64, 16, 1e4, 16, 4, 256, 256, 1024, 8192, 2, 4, 64, 4),
    "qwen35moe": Shape("qwen35moe", 256, 4, 4, 2, 64, 16, 1e4, 16, 4, 256, 256, 1024, 8192, 2, 4, 64, 4),
    "qwen4exp": Shape(
        "qwen4exp", 256, 4, 4, 2, 64, 16, 1e4, 16, 4, 256, 256, 1024, 8192, 2, 4, 64, 4,
        streams=4, low_rank=32, index_heads=2, index_dim=64, index_budget=64, ngram_row=64, ngram_base=500,
    ),
}  # fmt: skip


SCALES = {"real": REAL, "tiny": TINY}
LEAST_VOCABULARY = 260
"""256 bytes, one merge, three markers."""
MOST_VOCABULARY = 300_000
"""The n-gram hash multiplies ids by about 2^45 in 64 bits."""


def shape_of(arch: str, scale: str, layers: int | None, vocabulary: int | None) -> Shape:
    """A shape with optional changes; UsageError names what is wrong."""
    if scale not in SCALES:
        raise UsageError(f"--scale {scale!r:.40}: expected tiny or real")
    if arch not in SCALES[scale]:
        raise UsageError(f"--arch {arch!r:.40}: expected one of {', '.join(SCALES[scale])}")
    shape = SCALES[scale][arch]
    if layers is not None:
        least = 2 if shape.streams else 1
        if not least <= layers <= 1024:
            raise UsageError(f"--layers {layers}: expected {least} to 1024 for {arch}")
        shape = replace(shape, layers=layers)
    if vocabulary is not None:
        if not LEAST_VOCABULARY <= vocabulary <= MOST_VOCABULARY:
            raise UsageError(f"--vocabulary {vocabulary}: expected {LEAST_VOCABULARY} to {MOST_VOCABULARY}")
        shape = replace(shape, vocabulary=vocabulary)
    return shape
