"""The reference's whole forward pass, reporting every operation under the names production reports.

Names and tensors (T rows; n streams; H hidden): see `expected_ops` for the order.

    embed                       y
    blk.N.ple.rows / .ple       ids, y int64 [T, heads] / x, y [T, n*H], y after the addition
    blk.N.hyper_attn.read       x [T, n*H], mixed [T, H], inject [T, n]       (also hyper_ffn)
    blk.N.attn_norm, ffn_norm   x, y
    blk.N.attention             x, y before the residual; inside: .q, .k (y after norm and rotary), .selected
    blk.N.delta_net             x, y; inside: .qkv (after conv and silu), .beta, .decay
    blk.N.router / .moe         x, ids, weights / x, y
    blk.N.ffn                   x, y of a dense feed-forward
    blk.N.hyper_attn.write      x, block, inject, y                           (also hyper_ffn)
    output_hyper / output_norm  x, y
    head                        x, y
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.checkpoint.checkpoint import Checkpoint
from strata.parity import reference as ref
from strata.parity import reference_gguf, reference_hf
from strata.parity.settings import Settings
from strata.parity.weights import (
    Array,
    AttentionWeights,
    DeltaWeights,
    Gated,
    HyperWeights,
    LayerWeights,
    Matrix,
    ModelWeights,
    MoeWeights,
    NgramWeights,
)

Tensors = dict[str, npt.NDArray[np.generic]]
Taps = list[tuple[str, Tensors]]


@dataclass(frozen=True, slots=True)
class Reference:
    """A model that the reference can run."""

    settings: Settings
    weights: ModelWeights

    @property
    def quantised(self) -> bool:
        """Whether any matrix is in blocks, so that activations are rounded before its product."""
        w = self.weights
        return any(m.format.sub for layer in w.layers for m in matrices(layer)) or bool(w.head.format.sub)


def matrices(layer: LayerWeights) -> list[Matrix]:
    """Every matrix of a layer's mixer and feed-forward that a product uses."""
    found = list(_direct(layer.mixer)) + list(_direct(layer.feed))
    if isinstance(layer.feed, MoeWeights):
        for gated in (*layer.feed.experts, *((layer.feed.shared,) if layer.feed.shared else ())):
            found += _direct(gated)
    for part in (layer.hyper_mixer, layer.hyper_feed, layer.ngram):
        found += _direct(part) if part is not None else []
    return found


def _direct(
    part: AttentionWeights | DeltaWeights | MoeWeights | Gated | HyperWeights | NgramWeights,
) -> list[Matrix]:
    values = [getattr(part, name) for name in part.__dataclass_fields__ if name != "table"]
    return [v for v in values if isinstance(v, Matrix)]


def load(checkpoint: Checkpoint) -> Reference:
    """Read sizes and weights by the container's own names and conventions."""
    if checkpoint.kind == "gguf":
        return Reference(*reference_gguf.load(checkpoint))
    return Reference(*reference_hf.load(checkpoint))


def expected_ops(s: Settings) -> list[str]:
    """Every operation of a step, in order: an inner one before the operation it is a part of."""
    names = ["embed"]
    for i, kind in enumerate(s.kinds):
        b = f"blk.{i}."
        if s.ngram is not None and i in s.ngram.layers:
            names += [b + "ple.rows", b + "ple"]
        names += [b + ("hyper_attn.read" if s.streams else "attn_norm")]
        if kind == "attention":
            selected = [b + "attention.selected"] if s.selects(i) else []
            names += [b + "attention.q", b + "attention.k", *selected, b + "attention"]
        else:
            names += [b + f"delta_net{part}" for part in (".qkv", ".beta", ".decay", "")]
        names += [b + "hyper_attn.write", b + "hyper_ffn.read"] if s.streams else [b + "ffn_norm"]
        names += [b + "router", b + "moe"] if s.experts else [b + "ffn"]
        names += [b + "hyper_ffn.write"] if s.streams else []
    return [*names, "output_hyper" if s.streams else "output_norm", "head"]


class Walk:
    """One forward pass of a whole sequence; `taps` fills up as it runs."""

    def __init__(self, model: Reference) -> None:
        self.s, self.w = model.settings, model.weights
        self.taps: Taps = []

    def tap(self, name: str, **tensors: npt.NDArray[np.generic]) -> None:
        """Report one operation."""
        self.taps.append((name, dict(tensors)))

    def run(self, ids: Sequence[int]) -> Array:
        """Logits [T, vocabulary] of the sequence."""
        s, w = self.s, self.w
        x = ref.embed(np.asarray(ids, dtype=np.int64), w.embedding)
        self.tap("embed", y=x)
        if s.streams:
            x = np.tile(x, (1, s.streams))
        for i, layer in enumerate(w.layers):
            x = self.hyper_layer(i, layer, x, ids) if s.streams else self.plain_layer(i, layer, x)
        if w.hyper is not None:
            y, _ = ref.hyper_read(x, w.hyper, s.streams, s.eps)
            self.tap("output_hyper", x=x, y=y)
        else:
            y = self.norm("output_norm", x, w.norm)
        logits = w.head.apply(y)
        self.tap("head", x=y, y=logits)
        return logits

    def norm(self, name: str, x: Array, weight: Array | None) -> Array:
        """A plain RMS norm."""
        if weight is None:
            raise ValueError(f"{name} has no weight")
        y = ref.rms_norm(x, weight, self.s.eps)
        self.tap(name, x=x, y=y)
        return y

    def plain_layer(self, i: int, layer: LayerWeights, x: Array) -> Array:
        """x + mixer(norm x), then x + feed(norm x)."""
        b = f"blk.{i}."
        x = x + self.mixer(i, layer, self.norm(b + "attn_norm", x, layer.mixer_norm))
        return x + self.feed(b, layer, self.norm(b + "ffn_norm", x, layer.feed_norm))

    def hyper_layer(self, i: int, layer: LayerWeights, x: Array, ids: Sequence[int]) -> Array:
        """A layer between hyper-connections, after its n-gram embedding if it has one."""
        b, s = f"blk.{i}.", self.s
        if layer.ngram is not None and s.ngram is not None:
            rows = ref.ngram_rows(ids, s.ngram)
            self.tap(b + "ple.rows", ids=np.asarray(ids, dtype=np.int64), y=rows)
            y = x + ref.ngram(x, rows, layer.ngram, s.streams, s.ngram.size, s.eps)
            self.tap(b + "ple", x=x, y=y)
            x = y
        for side, weights in (("hyper_attn", layer.hyper_mixer), ("hyper_ffn", layer.hyper_feed)):
            if weights is None:
                raise ValueError(f"{b}{side} has no weights")
            mixed, inject = ref.hyper_read(x, weights, s.streams, s.eps)
            if inject is None:
                raise ValueError(f"{b}{side} has no injection")
            self.tap(f"{b}{side}.read", x=x, mixed=mixed, inject=inject)
            block = self.mixer(i, layer, mixed) if side == "hyper_attn" else self.feed(b, layer, mixed)
            y = ref.hyper_write(x, block, inject)
            self.tap(f"{b}{side}.write", x=x, block=block, inject=inject, y=y)
            x = y
        return x

    def mixer(self, i: int, layer: LayerWeights, x: Array) -> Array:
        """Attention or delta net, with its inner operations."""
        s = self.s
        if isinstance(layer.mixer, DeltaWeights):
            if s.delta is None:
                raise ValueError("a delta net without sizes")
            d = ref.delta_net(x, layer.mixer, s.delta, s.eps)
            b = f"blk.{i}.delta_net"
            for part, value in (("qkv", d.qkv), ("beta", d.beta), ("decay", d.decay)):
                self.tap(f"{b}.{part}", y=value)
            self.tap(b, x=x, y=d.y)
            return d.y
        b, kept = f"blk.{i}.attention", None
        if s.index is not None and s.selects(i):
            kept = ref.select(x, layer.mixer, s.index, s.rotary, s.eps).kept
        a = ref.attention(x, layer.mixer, s, kept)
        self.tap(b + ".q", y=a.query)
        self.tap(b + ".k", y=a.key)
        if kept is not None and s.index is not None:
            positions, count = listed(kept, s.index.blocks * s.index.ratio + s.index.ratio)
            self.tap(b + ".selected", positions=positions, count=count)
        self.tap(b, x=x, y=a.y)
        return a.y

    def feed(self, b: str, layer: LayerWeights, x: Array) -> Array:
        """Experts or a dense feed-forward."""
        if isinstance(layer.feed, MoeWeights):
            routed = ref.route(x, layer.feed.router, self.s.top_k, self.s.renormalise)
            self.tap(b + "router", x=x, ids=routed.ids, weights=routed.weights)
            y = ref.moe(x, routed.ids, routed.weights, layer.feed)
            self.tap(b + "moe", x=x, y=y)
        else:
            y = ref.feed_forward(x, layer.feed)
            self.tap(b + "ffn", x=x, y=y)
        return y


def listed(
    kept: np.ndarray[tuple[int, int], np.dtype[np.bool_]], width: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """kept [T, T] -> positions int32 [T, width] in increasing order, unused places -1, and their count [T]."""
    positions = np.full((len(kept), width), -1, dtype=np.int32)
    count = kept.sum(axis=1).astype(np.int32)
    for t, row in enumerate(kept):
        positions[t, : count[t]] = np.flatnonzero(row)
    return positions, count


def forward(model: Reference, ids: Sequence[int]) -> tuple[Taps, Array]:
    """Every operation and the logits [T, vocabulary] of one sequence."""
    walk = Walk(model)
    logits = walk.run(ids)
    return walk.taps, logits
