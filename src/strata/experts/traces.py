"""Recorded or generated routing, replayed in place of a router's choice. Pure.

A random model's router has no favourites, so its speed below full residency says nothing about a trained model's. A
trace says which experts every token visits in every layer; a result that used one names it.

The file is an .npz with `ids` (int16 or int32 [tokens, layers, k], experts of a token distinct), `experts` (their
number) and `origin` (text: how it was made).
"""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from strata.core.errors import CheckpointError, UsageError


@dataclass(frozen=True, slots=True)
class RoutingTrace:
    """Experts of every token in every layer that has some."""

    ids: npt.NDArray[np.int32]
    """[tokens, layers, k]; the layers are those with experts, in order."""
    experts: int
    origin: str

    def __post_init__(self) -> None:
        if self.ids.ndim != 3 or 0 in self.ids.shape:
            raise ValueError(f"expected ids [tokens, layers, k], found {self.ids.shape}")
        if self.ids.min() < 0 or self.ids.max() >= self.experts:
            raise ValueError(f"experts {self.ids.min()}..{self.ids.max()} of {self.experts}")
        ordered = np.sort(self.ids, axis=2)
        if (ordered[..., 1:] == ordered[..., :-1]).any():
            raise ValueError("a token visits an expert twice in one layer")

    def check_fits(self, layers: int, experts: int, top_k: int) -> None:
        """UsageError unless a model of these sizes can replay it."""
        found = (self.ids.shape[1], self.experts, self.ids.shape[2])
        if found != (layers, experts, top_k):
            wanted = f"{layers} layers with {top_k} of {experts} experts"
            raise UsageError(f"the routing trace is for {found[0]} layers with {found[2]} of {found[1]}, not {wanted}")

    def rows(self, first: int, count: int) -> npt.NDArray[np.int32]:
        """[count, layers, k] from token `first` on; after the last token comes the first again."""
        return self.ids[np.arange(first, first + count) % len(self.ids)]

    def uses(self) -> npt.NDArray[np.int64]:
        """[layers, experts]: how often each expert is visited."""
        layers = self.ids.shape[1]
        flat = self.ids + np.arange(layers, dtype=np.int64)[None, :, None] * self.experts
        return np.bincount(flat.reshape(-1), minlength=layers * self.experts).reshape(layers, self.experts)

    def save(self, path: Path) -> None:
        """Write the file."""
        kept = self.ids.astype(np.int16 if self.experts <= 1 << 15 else np.int32)
        np.savez_compressed(path, ids=kept, experts=np.int64(self.experts), origin=np.str_(self.origin))


def load_trace(path: Path) -> RoutingTrace:
    """Read a trace's file; CheckpointError when it is none."""
    try:
        with np.load(path, allow_pickle=False) as found:
            ids, experts, origin = found["ids"], int(found["experts"]), str(found["origin"])
            if ids.dtype.kind not in "iu":
                raise ValueError(f"ids are {ids.dtype}")
            return RoutingTrace(ids.astype(np.int32), experts, origin)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path}: not a routing trace: {error}") from error


@dataclass(frozen=True, slots=True)
class Curve:
    """What share of the uses the most used experts have: points (share of experts, share of uses)."""

    name: str
    points: tuple[tuple[float, float], ...]

    def hits(self, resident: float) -> float:
        """Share of uses that the most used `resident` of all experts have."""
        x, y = zip((0.0, 0.0), *self.points, (1.0, 1.0), strict=True)
        return float(np.interp(resident, x, y))

    def popularity(self, experts: int) -> npt.NDArray[np.float64]:
        """Share of uses of every expert, the most used first, falling smoothly; the sum is 1."""
        edges = np.array([self.hits(i / experts) for i in range(experts + 1)])
        return _smooth(np.diff(edges))


TYPICAL = Curve("typical", ((0.12, 0.60), (0.30, 0.86), (0.52, 0.99)))
"""Published figures of trained models with learned placement."""
ADVERSE = Curve("adverse", ((0.1, 0.24), (0.25, 0.42), (0.5, 0.65), (0.75, 0.84)))
"""A load that hardly has favourites: hits = share ** 0.62."""
CURVES = {curve.name: curve for curve in (TYPICAL, ADVERSE)}


def _smooth(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Steps between a curve's segments evened out a little; the cumulated sums stay close."""
    width = max(1, len(shares) // 32)
    padded = np.concatenate([shares[:1].repeat(width), shares, shares[-1:].repeat(width)])
    smoothed = np.convolve(padded, np.full(2 * width + 1, 1.0 / (2 * width + 1)), "valid")
    return np.asarray(smoothed / smoothed.sum(), np.float64)


def generate(curve: Curve, shape: tuple[int, int, int], experts: int, locality: float, seed: int) -> RoutingTrace:
    """A trace [tokens, layers, k] whose experts are used as `curve` says; a share `locality` of the choices repeats.

    Every layer has its own favourites. Experts of a token are drawn together, each with exactly k times its share as
    probability (systematic sampling). With probability `locality` a layer's choice is that of one of the 8 tokens
    before, which keeps these probabilities and makes near tokens alike.
    """
    tokens, layers, k = shape
    if not 0.0 <= locality < 1.0 or not 1 <= k <= experts:
        raise ValueError(f"a locality of {locality} and {k} of {experts} experts")
    chance = k * curve.popularity(experts)
    if chance[0] > 1.0:
        raise ValueError(
            f"{k} distinct experts of {experts} cannot follow the curve {curve.name}: the first is in every choice"
        )
    rng = np.random.default_rng(seed)
    ids = np.empty(shape, np.int32)
    for layer in range(layers):
        names = rng.permutation(experts).astype(np.int32)
        repeated = rng.random(tokens) < locality
        for token, choice in enumerate(_choices(chance, k, tokens, rng)):
            back = int(rng.integers(1, 9))
            if repeated[token] and token >= back:
                ids[token, layer] = ids[token - back, layer]
            else:
                ids[token, layer] = names[choice]
    origin = f"generated: curve {curve.name}, locality {locality:g}, seed {seed}"
    return RoutingTrace(ids, experts, origin)


def _choices(
    chance: npt.NDArray[np.float64], k: int, tokens: int, rng: np.random.Generator
) -> Iterator[npt.NDArray[np.intp]]:
    """For every token k distinct places, place i with probability chance[i], in random order."""
    for _ in range(tokens):
        order = rng.permutation(len(chance))
        edges = np.cumsum(chance[order])
        marks = np.minimum(rng.random() + np.arange(k), edges[-1] * (1 - 1e-12))
        yield rng.permutation(order[np.searchsorted(edges, marks, side="right")])


def residency_curve(trace: RoutingTrace, shares: tuple[float, ...], learned_from: float) -> list[tuple[float, float]]:
    """(share of experts resident, share of hits) when the first `learned_from` of the tokens say which those are.

    Residents are chosen over all layers together, and hits are counted on the tokens that were not learned from.
    """
    cut = max(1, int(len(trace.ids) * learned_from))
    if cut >= len(trace.ids):
        raise ValueError(f"{len(trace.ids)} tokens leave none to count hits on")
    learned = RoutingTrace(trace.ids[:cut], trace.experts, trace.origin).uses().reshape(-1)
    tried = RoutingTrace(trace.ids[cut:], trace.experts, trace.origin).uses().reshape(-1)
    order = np.argsort(-learned, kind="stable")
    won = np.concatenate([[0], np.cumsum(tried[order])]) / tried.sum()
    return [(share, float(won[round(share * len(order))])) for share in shares]
