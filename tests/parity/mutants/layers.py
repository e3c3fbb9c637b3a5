"""Faults in the layers' own code: a method replaced by one that is wrong."""

from dataclasses import replace

import pytest
import torch

from strata.experts.protocol import SharedOutput
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.ngram import naive
from strata.layers.attention import Attention
from strata.layers.delta_net import PackedInputs
from strata.layers.hyper import HyperRead, Unwritten
from strata.layers.ngram import NgramEmbedding
from strata.layers.rope import Rope
from strata.models import hybrid, qwen4_exp
from strata.models.base import Block

Patch = pytest.MonkeyPatch


def query_and_gate_as_halves(patch: Patch) -> None:
    def split(self, q):
        if not self.gated:
            return q.view(-1, self.heads, self.head_dim), None
        wide = self.heads * self.head_dim
        return tuple(half.contiguous().view(-1, self.heads, self.head_dim) for half in (q[:, :wide], q[:, wide:]))

    patch.setattr(Attention, "split_gate", split)


class WholeRope(Rope):
    """Angles for every dim of a head, however few the model says: four times as many in the oracles."""

    def __init__(self, rotary, theta, layout):
        super().__init__(4 * rotary, theta, layout)


def rotary_over_the_whole_head(patch: Patch) -> None:
    honest = CpuOps.rope

    def rope(self, x, cos, sin, layout):
        half = x.shape[-1] // 2
        return honest(self, x, cos[:, :half].contiguous(), sin[:, :half].contiguous(), layout)

    patch.setattr(CpuOps, "rope", rope)
    for module in (hybrid, qwen4_exp):
        patch.setattr(module, "Rope", WholeRope)


def packed_as_global_parts(patch: Patch) -> None:
    def unpack(self, ops, packed):
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
    patch.setattr(SharedOutput, "add", lambda self, ops, y: y + self.own)


def shared_expert_forgotten(patch: Patch) -> None:
    patch.setattr(SharedOutput, "add", lambda self, ops, y: y)


def hyper_without_division_before_silu(patch: Patch) -> None:
    def mix(self, normed, ops, weights):
        low, *others = ops.linear(normed, weights)
        (gate,) = ops.linear(ops.activate("silu", low), (self.up,))
        return ops.stream_mix(gate, normed, self.streams), tuple(others)

    patch.setattr(HyperRead, "mix", mix)


def hyper_injection(factor: float, divide: bool):
    def plant(patch: Patch) -> None:
        def write(self, residual, block, gates, batch):
            y = batch.ops.stream_add(residual, block, gates, self.streams if divide else 1, factor)
            batch.report(f"{self.name}.write", x=residual, block=block, y=y, **self.strength(gates, batch))
            return y

        patch.setattr(HyperRead, "write", write)
        patch.setattr(Unwritten, "normed", written_first)

    return plant


def written_first(self, norm, batch):
    """What is written goes through the planted `write`."""
    y = self.written(batch)
    return y, norm(batch.ops, y)


def hyper_write_onto_normed_streams(patch: Patch) -> None:
    honest = HyperRead.write

    def write(self, residual, block, gates, batch):
        return honest(self, self.norm(batch.ops, residual), block, gates, batch)

    patch.setattr(HyperRead, "write", write)
    patch.setattr(Unwritten, "normed", written_first)


def residual_dropped_after_the_mixer(patch: Patch) -> None:
    def call(self, x, y, batch):
        states = batch.states
        x, normed = self.attn_norm.added(batch.ops, x, y)
        batch.report(f"{self.name}.attn_norm", x=x, y=normed)
        state = states.layers[self.index]
        kept = states.journal.layers[self.index] if states.journaling else None
        journal = () if isinstance(self.mixer, Attention) else (kept,)
        x = self.mixer(normed, batch, state, *journal)
        normed = self.ffn_norm(batch.ops, x)
        batch.report(f"{self.name}.ffn_norm", x=x, y=normed)
        return x, self.ffn(normed, batch)

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
        def table_rows(self, batch):
            tokens, slots, positions = batch.states.tokens, batch.rows.slot.tolist(), batch.rows.position.tolist()
            out = naive.ngram_context(tokens, slots, positions, self.hash)
            for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
                for back in range(1, out.shape[1]):
                    if position < back:
                        out[row, back] = self.hash.end_of_text if pad is None else pad
                    elif not cut_at_end:
                        out[row, back] = tokens[slot, position - back]
            return torch.from_numpy(naive.hash_rows(out, self.hash))

        patch.setattr(NgramEmbedding, "table_rows", table_rows)

    return plant


def ngram_longest_first(patch: Patch) -> None:
    def table_rows(self, batch):
        # the heads of every length take the mix of the mirrored length
        h = self.hash
        per = len(h.sizes) // (len(h.multipliers) - 1)
        order = [*range(per, 2 * per), *range(per)]
        turned = replace(h, sizes=[h.sizes[i] for i in order], offsets=[h.offsets[i] for i in order])
        return batch.ops.ngram_rows(batch.states.token_ids, batch.rows, turned)[:, order].contiguous()

    patch.setattr(NgramEmbedding, "table_rows", table_rows)


def ngram_convolution_input_not_normed(patch: Patch) -> None:
    patch.setattr(NgramEmbedding, "conv_input", lambda self, ops, gated: gated)


def ngram_without_signed_root(patch: Patch) -> None:
    patch.setattr(NgramEmbedding, "signed_root", lambda self, ops, agree: agree)


def ngram_convolution_only(patch: Patch) -> None:
    honest, held = NgramEmbedding.gate, []

    def gate(self, *arguments):
        held.append(honest(self, *arguments))
        return torch.zeros_like(held[-1])

    patch.setattr(NgramEmbedding, "gate", gate)
    patch.setattr(NgramEmbedding, "conv_input", lambda self, ops, gated: self.norm_conv(ops, held.pop()))


def dense_attention(patch: Patch) -> None:
    build = qwen4_exp.ExpParts.indexer

    def wide(self, *given):
        found = build(self, *given)
        return None if found is None else replace(found, budget=64)

    patch.setattr(qwen4_exp.ExpParts, "indexer", wide)


def no_indexer(patch: Patch) -> None:
    build = qwen4_exp.ExpParts.indexer

    def dropped(self, *given):
        # read all the same: the loader refuses a file with tensors that nothing reads
        build(self, *given)

    patch.setattr(qwen4_exp.ExpParts, "indexer", dropped)


def block_position(place):
    def plant(patch: Patch) -> None:
        honest = CpuOps.completed_blocks

        def completed_blocks(self, positions, ratio):
            blocks, starts = honest(self, positions, ratio)
            return blocks, place(ratio, blocks, starts)

        patch.setattr(CpuOps, "completed_blocks", completed_blocks)

    return plant
