"""Every operation of the models in plain float64 numpy, one sequence from its first token.

Written from the published formulas (docs/reference on models): each function takes the operation's explicit inputs
and returns its result, without caches, chunks or slots. T is the length of the sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.parity.settings import DeltaShape, IndexShape, NgramShape, Rotary, Settings
from strata.parity.weights import (
    Array,
    AttentionWeights,
    DeltaWeights,
    Gated,
    HyperWeights,
    Indices,
    Matrix,
    MoeWeights,
    NgramWeights,
)

L2_EPS = 1e-6


def sigmoid(x: Array) -> Array:
    """Logistic function, without overflow on either side."""
    small = np.exp(-np.abs(x))
    y: Array = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return y


def silu(x: Array) -> Array:
    """x sigmoid(x)."""
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    """log(1 + e^x)."""
    return np.logaddexp(0.0, x)


def softmax(x: Array) -> Array:
    """Over the last axis; -inf has no weight."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    weights: Array = e / e.sum(axis=-1, keepdims=True)
    return weights


def embed(ids: Indices, table: Matrix) -> Array:
    """ids [T] -> [T, hidden]."""
    return table.take(ids).values()


def rms_norm(x: Array, weight: Array, eps: float, group: int | None = None) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, or over groups of `group` values of it."""
    parts = x.reshape(*x.shape[:-1], -1, group or x.shape[-1])
    normed: Array = parts / np.sqrt((parts**2).mean(axis=-1, keepdims=True) + eps)
    return normed.reshape(x.shape) * weight


def rotate(x: Array, positions: Array, rotary: Rotary) -> Array:
    """x [T, heads, d]: the first `dims` values of every head turned by their position."""
    half = rotary.dims // 2
    angle = positions[:, None] * rotary.theta ** (-2.0 * np.arange(half) / rotary.dims)
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    turned = x.copy()
    first = slice(0, rotary.dims, 2) if rotary.pairs else slice(0, half)
    second = slice(1, rotary.dims, 2) if rotary.pairs else slice(half, rotary.dims)
    a, b = x[..., first], x[..., second]
    turned[..., first] = a * cos - b * sin
    turned[..., second] = b * cos + a * sin
    return turned


def causal_conv(x: Array, weight: Array, dilation: int = 1) -> Array:
    """x [T, C], weight [C, K]: the tap K-1 is the current row, zeros before the first; no activation."""
    kernel = weight.shape[1]
    y = np.zeros_like(x)
    for tap in range(kernel):
        back = (kernel - 1 - tap) * dilation
        y[back:] += weight[:, tap] * x[: max(0, len(x) - back)]
    return y


@dataclass(frozen=True, slots=True)
class Selection:
    """QSA's choice: `kept` [T, T] says which positions a query attends; `scores` [T, blocks], -inf when not visible."""

    kept: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    scores: Array


def select(x: Array, w: AttentionWeights, shape: IndexShape, rotary: Rotary, eps: float) -> Selection:
    """The best complete blocks of every query and its open tail; x [T, hidden]."""
    if w.index_query is None or w.index_key is None or w.index_query_norm is None or w.index_key_norm is None:
        raise ValueError("selection without an indexer")
    total = len(x)
    query = rms_norm(w.index_query.apply(x).reshape(total, shape.heads, shape.dim), w.index_query_norm, eps)
    query = rotate(query, np.arange(total, dtype=np.float64), rotary)
    blocks = total // shape.ratio
    raw = w.index_key.apply(x)[: blocks * shape.ratio].reshape(blocks, shape.ratio, shape.dim)
    key = rms_norm(raw.mean(axis=1), w.index_key_norm, eps)
    key = rotate(key[:, None, :], np.arange(blocks, dtype=np.float64) * shape.ratio, rotary)[:, 0]
    scores = np.maximum(query @ key.T, 0.0).sum(axis=1) / np.sqrt(shape.dim)
    kept = np.zeros((total, total), dtype=np.bool_)
    for t in range(total):
        complete = (t + 1) // shape.ratio
        scores[t, complete:] = -np.inf
        kept[t, complete * shape.ratio : t + 1] = True
        # equal scores: the later block
        for block in complete - 1 - np.argsort(-scores[t, :complete][::-1], kind="stable")[: shape.blocks]:
            kept[t, block * shape.ratio : (block + 1) * shape.ratio] = True
    return Selection(kept, scores)


@dataclass(frozen=True, slots=True)
class Attended:
    """Queries and keys after norm and rotary [T, heads, d], and the block's output [T, hidden]."""

    query: Array
    key: Array
    y: Array


def attention(
    x: Array, w: AttentionWeights, s: Settings, kept: np.ndarray[tuple[int, int], np.dtype[np.bool_]] | None = None
) -> Attended:
    """Causal attention over the whole sequence, over the positions of `kept` when given."""
    total, d = len(x), s.head_dim
    positions = np.arange(total, dtype=np.float64)
    query = w.query.apply(x)
    gate = None
    if s.output_gate:
        query = query.reshape(total, s.heads, 2 * d)
        query, gate = query[..., :d], query[..., d:]
    query, key = query.reshape(total, s.heads, d), w.key.apply(x).reshape(total, s.kv_heads, d)
    value = w.value.apply(x).reshape(total, s.kv_heads, d)
    if w.query_norm is not None and w.key_norm is not None:
        query, key = rms_norm(query, w.query_norm, s.eps), rms_norm(key, w.key_norm, s.eps)
    query, key = rotate(query, positions, s.rotary), rotate(key, positions, s.rotary)
    serves = np.arange(s.heads) // (s.heads // s.kv_heads)
    scores = np.einsum("thd,shd->hts", query, key[:, serves]) / np.sqrt(d)
    visible = np.tri(total, dtype=np.bool_)
    weights = softmax(np.where(visible if kept is None else visible & kept, scores, -np.inf))
    mixed = np.einsum("hts,shd->thd", weights, value[:, serves])
    if gate is not None:
        mixed = mixed * sigmoid(gate)
    return Attended(query, key, w.output.apply(mixed.reshape(total, -1)))


@dataclass(frozen=True, slots=True)
class Recurred:
    """A delta net's inputs to the recurrence, and the block's output [T, hidden]."""

    qkv: Array
    beta: Array
    decay: Array
    y: Array


def l2_norm(x: Array) -> Array:
    """x / sqrt(sum(x^2) + 1e-6) over the last axis."""
    y: Array = x / np.sqrt((x**2).sum(axis=-1, keepdims=True) + L2_EPS)
    return y


def delta_net(x: Array, w: DeltaWeights, shape: DeltaShape, eps: float) -> Recurred:
    """Gated DeltaNet over the whole sequence, one token after the other."""
    total, nk, nv, dk, dv = len(x), shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim
    qkv = silu(causal_conv(w.qkv.apply(x), w.conv))
    query = l2_norm(qkv[:, : nk * dk].reshape(total, nk, dk)) / np.sqrt(dk)
    key = l2_norm(qkv[:, nk * dk : 2 * nk * dk].reshape(total, nk, dk))
    value = qkv[:, 2 * nk * dk :].reshape(total, nv, dv)
    beta = sigmoid(w.beta.apply(x))
    decay = np.exp(w.rate * softplus(w.alpha.apply(x) + w.bias))
    heads = np.arange(nv)
    serves = heads % nk if shape.tiled else heads // (nv // nk)
    state, read = np.zeros((nv, dk, dv)), np.zeros((total, nv, dv))
    for t in range(total):
        q, k = query[t, serves], key[t, serves]
        state = state * decay[t, :, None, None]
        change = beta[t, :, None] * (value[t] - np.einsum("hkv,hk->hv", state, k))
        state = state + k[:, :, None] * change[:, None, :]
        read[t] = np.einsum("hkv,hk->hv", state, q)
    gate = w.gate.apply(x).reshape(total, nv, dv)
    gated = rms_norm(read, w.norm, eps) * (sigmoid(gate) if shape.sigmoid_gate else silu(gate))
    return Recurred(qkv, beta, decay, w.output.apply(gated.reshape(total, -1)))


@dataclass(frozen=True, slots=True)
class Routed:
    """Experts and weights of every row, largest first, and all probabilities [T, experts]."""

    ids: Indices
    weights: Array
    probabilities: Array


def route(x: Array, router: Matrix, top_k: int, renormalise: bool) -> Routed:
    """Softmax over all experts, then the top_k largest (ties: the lower id)."""
    probabilities = softmax(router.apply(x))
    ids = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top_k]
    weights = np.take_along_axis(probabilities, ids, axis=-1)
    if renormalise:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return Routed(ids, weights, probabilities)


def feed_forward(x: Array, w: Gated) -> Array:
    """down(silu(gate x) * up x)."""
    return w.down.apply(silu(w.gate.apply(x)) * w.up.apply(x))


def moe(x: Array, ids: Indices, weights: Array, w: MoeWeights) -> Array:
    """The routed experts' weighted sum, and the shared expert by its gate; ids, weights [T, k]."""
    y = np.zeros_like(x)
    for expert in np.unique(ids):
        row, rank = np.nonzero(ids == expert)
        y[row] += weights[row, rank, None] * feed_forward(x[row], w.experts[expert])
    if w.shared is not None and w.shared_gate is not None:
        y += sigmoid(w.shared_gate.apply(x)) * feed_forward(x, w.shared)
    return y


def hyper_read(streams: Array, w: HyperWeights, count: int, eps: float) -> tuple[Array, Array | None]:
    """streams [T, count * hidden] -> the block's input [T, hidden] and one injection weight per stream [T, count]."""
    total, hidden = len(streams), streams.shape[1] // count
    normed = rms_norm(streams, w.norm, eps, group=hidden)
    gate = sigmoid(w.up.apply(silu(w.down.apply(normed) / count)))
    mixed = (gate * normed).reshape(total, count, hidden).mean(axis=1)
    inject = None if w.inject is None else 2.0 * sigmoid(w.inject.apply(normed) / count)
    return mixed, inject


def hyper_write(streams: Array, block: Array, inject: Array) -> Array:
    """Every stream plus its weight times the block's output."""
    return streams + (inject[:, :, None] * block[:, None, :]).reshape(streams.shape)


def ngram_rows(ids: Sequence[int], shape: NgramShape) -> Indices:
    """Table rows [T, hash heads] of a sequence from its start, in exact integers."""
    rows = []
    for t, current in enumerate(ids):
        context, cut = [current], False
        for back in range(1, shape.size):
            cut = cut or t < back or ids[t - back] == shape.end
            context.append(shape.end if cut else ids[t - back])
        row: list[int] = []
        mix = context[0] * shape.multipliers[0]
        for length in range(2, shape.size + 1):
            mix ^= context[length - 1] * shape.multipliers[length - 1]
            heads = range((length - 2) * shape.heads, (length - 1) * shape.heads)
            row += [mix % shape.rows[h] + shape.offsets[h] for h in heads]
        rows.append(row)
    return np.array(rows, dtype=np.int64)


def ngram(streams: Array, rows: Indices, w: NgramWeights, count: int, dilation: int, eps: float) -> Array:
    """What the n-gram embedding adds: streams [T, count * hidden], rows [T, heads] -> [T, count * hidden]."""
    total, hidden = len(streams), streams.shape[1] // count
    found = w.table.take(rows.reshape(-1)).values().reshape(total, -1)
    key = rms_norm(w.key.apply(found), w.key_norm, eps, group=hidden).reshape(total, count, hidden)
    query = rms_norm(streams, w.query_norm, eps, group=hidden).reshape(total, count, hidden)
    match = (key * query).sum(axis=-1, keepdims=True) / np.sqrt(hidden)
    match = np.sign(match) * np.sqrt(np.maximum(np.abs(match), 1e-6))
    value = (sigmoid(match) * w.value.apply(found)[:, None, :]).reshape(total, -1)
    return value + silu(causal_conv(rms_norm(value, w.conv_norm, eps, group=hidden), w.conv, dilation))
