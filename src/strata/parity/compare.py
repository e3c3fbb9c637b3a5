"""Every operation of production against the reference, each on production's own input.

So a difference is named where it arises, not where it ends up. The reference reads its weights by itself, which is why
a fault of the loader (a norm's offset, an order of heads) shows in the first operation that uses the weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from strata.core.errors import StrataError
from strata.parity import reference as ref
from strata.parity.choices import compare_routing, compare_rows, compare_selection, kept_of
from strata.parity.figures import (
    FLIPPED_TOLERANCE,
    FLOAT_TOLERANCE,
    LOGITS_MEDIAN_TOLERANCE,
    LOGITS_TOLERANCE,
    Figure,
    Report,
    broken,
    difference,
)
from strata.parity.forward import Reference, Taps, Tensors, expected_ops, forward
from strata.parity.production import joined
from strata.parity.weights import (
    Array,
    AttentionWeights,
    DeltaWeights,
    Gated,
    HyperWeights,
    LayerWeights,
    Matrix,
    MoeWeights,
)
from strata.parity.wiring import Wiring


class Missing(Exception):
    """An operation that a check needs was not reported (which is a finding of its own)."""


@dataclass
class Comparison:
    """One sequence; `figures` fills up in the order of the operations."""

    model: Reference
    ids: Sequence[int]
    taps: dict[str, Tensors]
    figures: list[Figure] = field(default_factory=list)
    attended: dict[int, ref.Attended] = field(default_factory=dict)
    recurred: dict[int, ref.Recurred] = field(default_factory=dict)

    def raw(self, op: str, part: str) -> npt.NDArray[np.generic]:
        """A tensor as production reported it."""
        if op not in self.taps or part not in self.taps[op]:
            raise Missing(f"{op} ({part})")
        return self.taps[op][part]

    def get(self, op: str, part: str) -> Array:
        """The same in float64."""
        return self.raw(op, part).astype(np.float64)

    def hold(self, op: str, part: str, wanted: Array, tolerance: float = FLOAT_TOLERANCE) -> None:
        """Compare one tensor."""
        self.figures += difference(op, part, self.raw(op, part), wanted, tolerance)

    def run(self) -> None:
        """Every operation that the model should have, in order: first where its input comes from, then itself."""
        wiring = Wiring(self.model.settings, self.taps)
        for op in expected_ops(self.model.settings):
            if op in self.taps:
                self.figures += wiring.check(op)
                self.check(op)

    def check(self, op: str) -> None:
        """One operation on its own input."""
        in_layer = op.startswith("blk.")
        layer, kind = (int(op.split(".")[1]), op.split(".", 2)[2]) if in_layer else (-1, op)
        try:
            CHECKS[kind](self, op, layer)
        except Missing as missing:
            self.figures.append(broken(op, "", f"cannot be compared: {missing} was not reported"))
        except (ValueError, StrataError) as error:
            # shapes that do not fit the reference's weights or each other
            self.figures.append(broken(op, "", f"cannot be compared: {error}"))

    def layer(self, i: int) -> LayerWeights:
        """The reference's weights of a layer."""
        return self.model.weights.layers[i]

    def embed(self, op: str, _: int) -> None:
        """Rows of the embedding."""
        self.hold(op, "y", ref.embed(np.asarray(self.ids, dtype=np.int64), self.model.weights.embedding))

    def norm(self, op: str, i: int) -> None:
        """A plain norm."""
        w = self.model.weights
        weight = w.norm if i < 0 else self.layer(i).mixer_norm if op.endswith("attn_norm") else self.layer(i).feed_norm
        if weight is None:
            raise Missing(f"{op}'s weight in the reference")
        self.hold(op, "y", ref.rms_norm(self.get(op, "x"), weight, self.model.settings.eps))

    def attention_of(self, i: int) -> ref.Attended:
        """The reference's attention on production's input and selection, once per layer."""
        if i not in self.attended:
            op, s, w = f"blk.{i}.attention", self.model.settings, self.layer(i).mixer
            assert isinstance(w, AttentionWeights)
            x, kept = self.get(op, "x"), None
            if s.index is not None and s.selects(i):
                kept = kept_of(self.raw(op + ".selected", "positions"), len(x))
                if kept is None:
                    kept = ref.select(x, w, s.index, s.rotary, s.eps).kept
            self.attended[i] = ref.attention(x, w, s, kept)
        return self.attended[i]

    def attention_query(self, op: str, i: int) -> None:
        """Queries after norm and rotary."""
        self.hold(op, "y", self.attention_of(i).query)

    def attention_key(self, op: str, i: int) -> None:
        """Keys after norm and rotary."""
        self.hold(op, "y", self.attention_of(i).key)

    def attention_selected(self, op: str, i: int) -> None:
        """The positions that every query attends."""
        s, w = self.model.settings, self.layer(i).mixer
        assert isinstance(w, AttentionWeights) and s.index is not None
        chosen = ref.select(self.get(f"blk.{i}.attention", "x"), w, s.index, s.rotary, s.eps)
        self.figures += compare_selection(op, self.raw(op, "positions"), self.raw(op, "count"), chosen, s.index.ratio)

    def attention(self, op: str, i: int) -> None:
        """The whole block."""
        w = self.layer(i).mixer
        assert isinstance(w, AttentionWeights)
        self.hold(op, "y", self.attention_of(i).y, after(w.output))

    def delta_of(self, i: int) -> ref.Recurred:
        """The reference's delta net on production's input, once per layer."""
        if i not in self.recurred:
            s, w = self.model.settings, self.layer(i).mixer
            assert isinstance(w, DeltaWeights) and s.delta is not None
            self.recurred[i] = ref.delta_net(self.get(f"blk.{i}.delta_net", "x"), w, s.delta, s.eps)
        return self.recurred[i]

    def delta_qkv(self, op: str, i: int) -> None:
        """Queries, keys and values after convolution and silu."""
        self.hold(op, "y", self.delta_of(i).qkv)

    def delta_beta(self, op: str, i: int) -> None:
        """How much is written."""
        self.hold(op, "y", self.delta_of(i).beta)

    def delta_decay(self, op: str, i: int) -> None:
        """How much is kept."""
        self.hold(op, "y", self.delta_of(i).decay)

    def delta(self, op: str, i: int) -> None:
        """The whole block."""
        w = self.layer(i).mixer
        assert isinstance(w, DeltaWeights)
        self.hold(op, "y", self.delta_of(i).y, after(w.output))

    def router(self, op: str, i: int) -> None:
        """Which experts, and their weights."""
        s, w = self.model.settings, self.layer(i).feed
        assert isinstance(w, MoeWeights)
        routed = ref.route(self.get(op, "x"), w.router, s.top_k, s.renormalise)
        self.figures += compare_routing(op, self.raw(op, "ids"), self.get(op, "weights"), routed, s.renormalise)

    def moe(self, op: str, i: int) -> None:
        """Routed and shared experts, by production's routing."""
        s, w, router = self.model.settings, self.layer(i).feed, op.removesuffix("moe") + "router"
        assert isinstance(w, MoeWeights)
        x, ids, weights = self.get(op, "x"), self.raw(router, "ids").astype(np.int64), self.get(router, "weights")
        if ids.shape != (len(x), s.top_k) or ids.min() < 0 or ids.max() >= s.experts:
            raise Missing(f"{router} (ids) in range")
        self.hold(op, "y", ref.moe(x, ids, weights, w), after(*(e.down for e in w.experts)))

    def feed_forward(self, op: str, i: int) -> None:
        """A dense feed-forward block."""
        w = self.layer(i).feed
        assert isinstance(w, Gated)
        self.hold(op, "y", ref.feed_forward(self.get(op, "x"), w), after(w.down))

    def hyper(self, i: int, op: str) -> HyperWeights:
        """The weights behind a hyper-connection."""
        w = self.model.weights.hyper
        if i >= 0:
            w = self.layer(i).hyper_mixer if ".hyper_attn." in op else self.layer(i).hyper_feed
        assert w is not None
        return w

    def hyper_read(self, op: str, i: int) -> None:
        """A block's input and its injection weights; the head's input at the end."""
        s, w = self.model.settings, self.hyper(i, op)
        mixed, inject = ref.hyper_read(self.get(op, "x"), w, s.streams, s.eps)
        self.hold(op, "mixed" if inject is not None else "y", mixed, after(w.down, w.up))
        if inject is not None and w.inject is not None:
            self.hold(op, "inject", inject, after(w.inject))

    def hyper_write(self, op: str, _: int) -> None:
        """The streams after a block: compared as what was added, which the residual would hide."""
        x, block, inject = self.get(op, "x"), self.get(op, "block"), self.get(op, "inject")
        wanted = ref.hyper_write(np.zeros_like(x), block, inject)
        self.figures += difference(op, "y - x", self.get(op, "y") - x, wanted, FLOAT_TOLERANCE)

    def ngram_rows(self, op: str, i: int) -> None:
        """Table rows: exact integers."""
        shape = self.model.settings.ngram
        assert shape is not None
        self.figures += compare_rows(op, "ids", self.raw(op, "ids"), np.asarray(self.ids, dtype=np.int64))
        self.figures += compare_rows(op, "y", self.raw(op, "y"), ref.ngram_rows(self.ids, shape))

    def ngram(self, op: str, i: int) -> None:
        """The n-gram embedding on production's rows: compared as what was added."""
        s, w, rows = self.model.settings, self.layer(i).ngram, self.raw(op + ".rows", "y").astype(np.int64)
        assert w is not None and s.ngram is not None
        if rows.min() < 0 or rows.max() >= w.table.rows:
            raise Missing(f"{op}.rows (y) in range")
        x = self.get(op, "x")
        wanted = ref.ngram(x, rows, w, s.streams, s.ngram.size, s.eps)
        self.figures += difference(op, "y - x", self.get(op, "y") - x, wanted, FLOAT_TOLERANCE)

    def head(self, op: str, _: int) -> None:
        """Logits from production's last hidden values."""
        self.hold(op, "y", self.model.weights.head.apply(self.get(op, "x")))


CHECKS: dict[str, Callable[[Comparison, str, int], None]] = {
    "embed": Comparison.embed,
    "ple.rows": Comparison.ngram_rows,
    "ple": Comparison.ngram,
    "attn_norm": Comparison.norm,
    "ffn_norm": Comparison.norm,
    "attention.q": Comparison.attention_query,
    "attention.k": Comparison.attention_key,
    "attention.selected": Comparison.attention_selected,
    "attention": Comparison.attention,
    "delta_net.qkv": Comparison.delta_qkv,
    "delta_net.beta": Comparison.delta_beta,
    "delta_net.decay": Comparison.delta_decay,
    "delta_net": Comparison.delta,
    "router": Comparison.router,
    "moe": Comparison.moe,
    "ffn": Comparison.feed_forward,
    "hyper_attn.read": Comparison.hyper_read,
    "hyper_attn.write": Comparison.hyper_write,
    "hyper_ffn.read": Comparison.hyper_read,
    "hyper_ffn.write": Comparison.hyper_write,
    "output_hyper": Comparison.hyper_read,
    "output_norm": Comparison.norm,
    "head": Comparison.head,
}


def after(*matrices: Matrix) -> float:
    """The tolerance of a product whose input was computed inside the operation."""
    return FLIPPED_TOLERANCE if any(m.format.sub for m in matrices) else FLOAT_TOLERANCE


def structure(model: Reference, taps: dict[str, Tensors], uneven: dict[str, int], steps: int) -> list[Figure]:
    """Operations that are missing, that should not be there, or that did not run once per step."""
    expected = expected_ops(model.settings)
    found = [broken(op, "", "expected here, not found") for op in expected if op not in taps]
    found += [broken(op, "", "found, not expected in this model") for op in taps if op not in set(expected)]
    return found + [broken(op, "", f"found {n} times in {steps} steps") for op, n in uneven.items()]


def operations(model: Reference, ids: Sequence[int], taps: Taps, steps: int) -> list[Figure]:
    """Figures of one sequence that production read in `steps` steps: what ran, then every operation in order."""
    whole, uneven = joined(taps, steps)
    comparison = Comparison(model, ids, whole)
    comparison.run()
    return [*structure(model, whole, uneven, steps), *comparison.figures]


def compare(model: Reference, ids: Sequence[int], taps: Taps, logits: npt.NDArray[np.generic], steps: int) -> Report:
    """All figures, the logits end to end last."""
    _, wanted = forward(model, ids)
    tolerance = LOGITS_TOLERANCE if model.quantised else FLOAT_TOLERANCE
    end = difference("logits", "", logits, wanted, tolerance, LOGITS_MEDIAN_TOLERANCE)
    return Report([*operations(model, ids, taps, steps), *end], model.quantised, len(ids))
