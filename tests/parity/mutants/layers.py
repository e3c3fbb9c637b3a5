"""Faults in the layers' own code: a method replaced by one that is wrong."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from strata.layers.attention import Attention
from strata.layers.delta_net import DeltaNet, PackedInputs
from strata.layers.hyper import HyperRead
from strata.layers.moe import SharedExpert
from strata.layers.ngram import NgramEmbedding, NgramHash
from strata.layers.rope import Rope
from strata.layers.sparse_attention import Indexer
from strata.models import hybrid, qwen4_exp
from strata.models.base import Block

Patch = pytest.MonkeyPatch


def query_and_gate_as_halves(patch: Patch) -> None:
    def split(self, q):
        if not self.gated:
            return q.view(-1, self.heads, self.head_dim), None
        wide = self.heads * self.head_dim
        return q[:, :wide].contiguous().view(-1, self.heads, self.head_dim), q[:, wide:].contiguous()

    patch.setattr(Attention, "split_gate", split)


class WholeRope(Rope):
    """Rotates every dim of a head, however few the model says."""

    def __call__(self, ops, x, positions):
        whole = Rope(x.shape[-1] // 2 * 2, self.theta, self.layout)
        cos, sin = whole.at(positions, int(positions.max()) + 1)
        return ops.rope(x, cos, sin, self.layout)

    def __init__(self, rotary, theta, layout):
        super().__init__(rotary, theta, layout)
        self.theta = theta


def rotary_over_the_whole_head(patch: Patch) -> None:
    for module in (hybrid, qwen4_exp):
        patch.setattr(module, "Rope", WholeRope)


def other_gate(patch: Patch) -> None:
    def gated(self, ops, o, z):
        other = "silu" if self.gate == "sigmoid" else "sigmoid"
        return self.norm(ops, o).view(z.shape) * ops.activate(other, z)

    patch.setattr(DeltaNet, "gated_norm", gated)


def gate_before_norm(patch: Patch) -> None:
    def gated(self, ops, o, z):
        return self.norm(ops, (o.view(z.shape) * ops.activate(self.gate, z)).view(o.shape)).view(z.shape)

    patch.setattr(DeltaNet, "gated_norm", gated)


def a_and_b_swapped(patch: Patch) -> None:
    honest = DeltaNet.rates
    patch.setattr(DeltaNet, "rates", lambda self, ops, b, a: honest(self, ops, a, b))


def packed_as_global_parts(patch: Patch) -> None:
    def unpack(self, packed):
        d = self.layout
        return packed[:, : d.channels].contiguous(), packed[:, d.channels :].contiguous()

    patch.setattr(PackedInputs, "unpack", unpack)


def ba_as_global_halves(patch: Patch) -> None:
    honest = PackedInputs.__call__

    def call(self, ops, x):
        qkv, z, _, _ = honest(self, ops, x)
        (ba,) = ops.linear(x, (self.ba,))
        half = ba.shape[1] // 2
        return qkv, z, ba[:, :half].contiguous(), ba[:, half:].contiguous()

    patch.setattr(PackedInputs, "__call__", call)


def shared_expert_without_gate(patch: Patch) -> None:
    patch.setattr(SharedExpert, "add", lambda self, ops, x, y: y + self.network(ops, x))


def shared_expert_forgotten(patch: Patch) -> None:
    patch.setattr(SharedExpert, "add", lambda self, ops, x, y: y)


def hyper_without_division_before_silu(patch: Patch) -> None:
    def mix(self, residual, ops, weights):
        normed = self.norm(ops, residual)
        low, *others = ops.linear(normed, weights)
        (gate,) = ops.linear(ops.activate("silu", low), (self.up,))
        return ops.stream_mix(gate, normed, self.streams), tuple(others)

    patch.setattr(HyperRead, "mix", mix)


def hyper_injection(factor: float, divide: bool):
    def plant(patch: Patch) -> None:
        def read(self, residual, batch):
            mixed, raw = self.mix(residual, batch.ops, (self.down, self.inject))
            inject = factor * batch.ops.activate("sigmoid", raw[0] / (self.streams if divide else 1))
            batch.report(f"{self.name}.read", x=residual, mixed=mixed, inject=inject)
            return mixed, inject

        patch.setattr(HyperRead, "read", read)

    return plant


def hyper_write_onto_normed_streams(patch: Patch) -> None:
    honest = HyperRead.write

    def write(self, residual, block, inject, batch):
        return honest(self, self.norm(batch.ops, residual), block, inject, batch)

    patch.setattr(HyperRead, "write", write)


def residual_dropped_after_the_mixer(patch: Patch) -> None:
    def call(self, x, batch):
        states = batch.states
        normed = self.attn_norm(batch.ops, x)
        batch.report(f"{self.name}.attn_norm", x=x, y=normed)
        state = states.layers[self.index]
        journal = () if isinstance(self.mixer, Attention) else (None,)
        x = self.mixer(normed, batch, state, *journal)
        normed = self.ffn_norm(batch.ops, x)
        batch.report(f"{self.name}.ffn_norm", x=x, y=normed)
        return x + self.ffn(normed, batch)

    patch.setattr(Block, "__call__", call)


def ngram_one_layer_later(patch: Patch) -> None:
    read, build = qwen4_exp.read_config, qwen4_exp.ExpParts.ngram

    def later(*arguments):
        config = read(*arguments)
        return replace(config, hashes={i + 1: h for i, h in config.hashes.items()})

    patch.setattr(qwen4_exp, "read_config", later)
    named = lambda self, layer, h: replace(build(self, layer - 1, h), name=f"blk.{layer}.ple")  # noqa: E731
    patch.setattr(qwen4_exp.ExpParts, "ngram", named)


def ngram_context(cut_at_end: bool = True, pad: int | None = None):
    def plant(patch: Patch) -> None:
        honest = NgramHash.context

        def context(self, tokens, slots, positions):
            out = honest(self, tokens, slots, positions)
            for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
                for back in range(1, out.shape[1]):
                    if position < back:
                        out[row, back] = self.end_of_text if pad is None else pad
                    elif not cut_at_end:
                        out[row, back] = tokens[slot, position - back]
            return out

        patch.setattr(NgramHash, "context", context)

    return plant


def ngram_longest_first(patch: Patch) -> None:
    honest = NgramHash.rows

    def rows(self, context):
        # the heads of every length take the mix of the mirrored length
        per = len(self.sizes) // (context.shape[1] - 1)
        order = [*range(per, 2 * per), *range(per)]
        turned = replace(self, sizes=[self.sizes[h] for h in order], offsets=[self.offsets[h] for h in order])
        return np.ascontiguousarray(honest(turned, context)[:, order])

    patch.setattr(NgramHash, "rows", rows)


def ngram_convolution_input_not_normed(patch: Patch) -> None:
    patch.setattr(NgramEmbedding, "conv_input", lambda self, ops, gated: gated)


def ngram_without_signed_root(patch: Patch) -> None:
    patch.setattr(NgramEmbedding, "signed_root", lambda self, agree: agree)


def ngram_convolution_only(patch: Patch) -> None:
    honest, held = NgramEmbedding.gate, []

    def gate(self, *arguments):
        held.append(honest(self, *arguments))
        return torch.zeros_like(held[-1])

    patch.setattr(NgramEmbedding, "gate", gate)
    patch.setattr(NgramEmbedding, "conv_input", lambda self, ops, gated: self.norm_conv(ops, held.pop()))


def dense_attention(patch: Patch) -> None:
    build = qwen4_exp.ExpParts.indexer

    def wide(self, layer, rope):
        found = build(self, layer, rope)
        return None if found is None else replace(found, budget=64)

    patch.setattr(qwen4_exp.ExpParts, "indexer", wide)


def no_indexer(patch: Patch) -> None:
    build = qwen4_exp.ExpParts.indexer

    def dropped(self, layer, rope):
        # read all the same: the loader refuses a file with tensors that nothing reads
        build(self, layer, rope)

    patch.setattr(qwen4_exp.ExpParts, "indexer", dropped)


def block_position(place):
    return lambda patch: patch.setattr(Indexer, "block_position", place)


def keys_normed_before_pooling(patch: Patch) -> None:
    def complete(self, batch, state):
        ops, rows = batch.ops, batch.rows
        last = (rows.position + 1) % self.ratio == 0
        if not bool(last.any()):
            return
        slots, blocks = rows.slot[last], rows.position[last] // self.ratio
        total = torch.zeros(len(blocks), self.dim)
        for j in range(self.ratio):
            entries = blocks * self.ratio + j
            raw = ops.pool_blocks(state.raw_keys, slots, entries, 1)
            total += self.rope(ops, self.k_norm(ops, raw).view(-1, 1, self.dim), entries).view(-1, self.dim)
        ops.cache_write(state.block_keys, slots, blocks, total / self.ratio)

    patch.setattr(Indexer, "complete_blocks", complete)
