"""Operations with one fault each; everything else goes to the honest ones."""

import math
from functools import partial

import numpy as np
import torch

from strata.kernels import joined
from strata.kernels.attention.naive import gather
from strata.kernels.ops import Ops


class Altered:
    """Delegates to `base`; a subclass overrides the operation that is wrong, also where others are made of it."""

    def __init__(self, base: Ops) -> None:
        self.base = base

    def __getattr__(self, name):
        made = getattr(joined, name, None)
        return getattr(self.base, name) if made is None else partial(made, self)


def tensor(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


class OtherRopeLayout(Altered):
    def rope(self, x, cos, sin, layout):
        return self.base.rope(x, cos, sin, "pairs" if layout == "halves" else "halves")


class OneStatisticForAllGroups(Altered):
    def rms_norm(self, x, weight, eps, group):
        return self.base.rms_norm(x, weight, eps, x.shape[-1])


class SumOfStreams(Altered):
    def stream_mix(self, gate, x, streams):
        return self.base.stream_mix(gate, x, streams) * streams


class NoRenormalisation(Altered):
    def route(self, logits, top_k, renormalise):
        return self.base.route(logits, top_k, False)


class SigmoidRouter(Altered):
    def route(self, logits, top_k, renormalise):
        p = 1 / (1 + np.exp(-logits.numpy().astype(np.float64)))
        ids = np.argsort(-p, axis=1, kind="stable")[:, :top_k]
        w = np.take_along_axis(p, ids, axis=1)
        return torch.from_numpy(ids.astype(np.int32)), tensor(w / w.sum(axis=1, keepdims=True))


def convolved(x, weight, history, rows, dilation, silu):
    """The convolution with taps `dilation` apart, whatever the length of the history."""
    kernel = weight.shape[1]
    out = np.empty(x.shape)
    for slot, first, length in rows.segments.tolist():
        here = np.concatenate([history[slot].numpy(), x[first : first + length].numpy()]).astype(np.float64)
        start = history.shape[1]
        for t in range(length):
            places = [start + t - (kernel - 1 - k) * dilation for k in range(kernel)]
            out[first + t] = (weight.numpy().T * here[places]).sum(axis=0)
        history[slot] = tensor(here[length:])
    return tensor(out / (1 + np.exp(-out)) if silu else out)


class OtherGate(Altered):
    def gated_norm(self, kind, gate, x, weight, eps, group):
        return self.base.gated_norm("silu" if kind == "sigmoid" else "sigmoid", gate, x, weight, eps, group)


class GateBeforeNorm(Altered):
    def gated_norm(self, kind, gate, x, weight, eps, group):
        opened = x.view(gate.shape) * self.base.activate(kind, gate)
        return self.base.rms_norm(opened.view(x.shape), weight, eps, group).view(gate.shape)


class KeysNormedBeforePooling(Altered):
    def complete_blocks(self, raw_keys, block_keys, rows, ratio, weight, eps, frequencies, layout):
        ops, last, dim = self.base, (rows.position + 1) % ratio == 0, len(weight)
        if not bool(last.any()):
            return
        slots, blocks = rows.slot[last], rows.position[last] // ratio
        total = torch.zeros(len(blocks), dim)
        for j in range(ratio):
            entries = blocks * ratio + j
            normed = ops.rms_norm(ops.pool_blocks(raw_keys, slots, entries, 1), weight, eps, dim)
            total += ops.rope(normed.view(-1, 1, dim), *ops.rope_angles(entries, frequencies), layout).view(-1, dim)
        ops.cache_write(block_keys, slots, blocks, total / ratio)


class SwappedRates(Altered):
    def delta_rates(self, b, a, rate, bias):
        return self.base.delta_rates(a, b, rate, bias)


class NoSiluAfterConvolution(Altered):
    def causal_conv(self, x, weight, history, rows, dilation):
        if dilation > 1:
            return self.base.causal_conv(x, weight, history, rows, dilation)
        return convolved(x, weight, history, rows, dilation, silu=False)


class NoDilation(Altered):
    def causal_conv(self, x, weight, history, rows, dilation):
        return convolved(x, weight, history, rows, 1, silu=True)


class ForgetsColumns(Altered):
    """The convolution starts every step from nothing."""

    def causal_conv(self, x, weight, history, rows, dilation):
        history.zero_()
        return self.base.causal_conv(x, weight, history, rows, dilation)


class ForgetsNgramColumns(Altered):
    def causal_conv(self, x, weight, history, rows, dilation):
        if dilation > 1:
            history[:, :6] = 0  # keeps three columns where nine are needed
        return self.base.causal_conv(x, weight, history, rows, dilation)


class ForgetsMemory(Altered):
    """The delta rule starts every step from nothing."""

    def delta_rule(self, qkv, beta, decay, state, rows, key_heads, pairing, eps):
        state.zero_()
        return self.base.delta_rule(qkv, beta, decay, state, rows, key_heads, pairing, eps)


class DeltaVariant(Altered):
    """The delta rule in float64, with the switches that its faults turn."""

    scale_query, normalise, decay_first, read_last = True, True, True, True

    def delta_rule(self, qkv, beta, decay, state, rows, key_heads, pairing, eps):
        heads, dk, dv = state.shape[1:]
        values = qkv.numpy().astype(np.float64)
        q, k = (values[:, a : a + key_heads * dk].reshape(-1, key_heads, dk) for a in (0, key_heads * dk))
        v = values[:, 2 * key_heads * dk :].reshape(-1, heads, dv)
        if self.normalise:
            q, k = (x / np.sqrt((x**2).sum(-1, keepdims=True) + eps) for x in (q, k))
        if self.scale_query:
            q = q / math.sqrt(dk)
        h = np.arange(heads)
        serves = h % key_heads if pairing == "tiled" else h // (heads // key_heads)
        out = np.empty((len(values), heads, dv))
        for slot, first, length in rows.segments.tolist():
            memory = state[slot].numpy().astype(np.float64)
            for t in range(first, first + length):
                keep, write = decay[t].numpy()[:, None, None], beta[t].numpy()[:, None]
                memory = memory * keep if self.decay_first else memory
                change = write * (v[t] - np.einsum("hkv,hk->hv", memory, k[t, serves]))
                before = np.einsum("hkv,hk->hv", memory, q[t, serves])
                memory = memory + k[t, serves][:, :, None] * change[:, None, :]
                memory = memory if self.decay_first else memory * keep
                out[t] = np.einsum("hkv,hk->hv", memory, q[t, serves]) if self.read_last else before
            state[slot] = tensor(memory)
        return tensor(out)


class NoQueryScale(DeltaVariant):
    scale_query = False


class NoL2Norm(DeltaVariant):
    normalise = False


class DecayAfterUpdate(DeltaVariant):
    decay_first = False


class ReadBeforeUpdate(DeltaVariant):
    read_last = False


class OtherPairing(Altered):
    def delta_rule(self, qkv, beta, decay, state, rows, key_heads, pairing, eps):
        other = "grouped" if pairing == "tiled" else "tiled"
        return self.base.delta_rule(qkv, beta, decay, state, rows, key_heads, other, eps)


class SelectionVariant(Altered):
    """The choice of blocks in float64, with the switches that its faults turn."""

    relu, tail, own_block = True, True, False

    def select_blocks(self, q, block_keys, rows, ratio, budget):
        positions = np.full((len(q), budget * ratio + ratio), -1, np.int32)
        count = np.zeros(len(q), np.int32)
        for t, (slot, position) in enumerate(zip(rows.slot.tolist(), rows.position.tolist(), strict=True)):
            complete = (position + 1) // ratio
            keys = gather(block_keys, slot, np.arange(complete, dtype=np.int32)).astype(np.float64)
            score = q[t].numpy().astype(np.float64) @ keys.T
            score = (np.maximum(score, 0) if self.relu else score).sum(axis=0)
            if self.own_block and complete and (position + 1) % ratio == 0:
                score[-1] = np.inf
            kept = np.sort(complete - 1 - np.argsort(-score[::-1], kind="stable")[:budget])
            listed = (kept[:, None] * ratio + np.arange(ratio)).reshape(-1).tolist()
            listed += range(complete * ratio, position + 1) if self.tail or not listed else []
            positions[t, : len(listed)], count[t] = listed, len(listed)
        return torch.from_numpy(positions), torch.from_numpy(count)


class NoRelu(SelectionVariant):
    relu = False


class NoTail(SelectionVariant):
    tail = False


class OwnBlockForced(SelectionVariant):
    own_block = True
