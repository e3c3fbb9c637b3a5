"""Every operation in C++ behind the Ops protocol; bits as `naive_ops.NaiveOps`."""

from collections.abc import Mapping, Sequence

import torch

from strata.kernels import joined
from strata.kernels.activate import cpu as activate_cpu
from strata.kernels.attention import cpu as attention_cpu
from strata.kernels.branch import Branch, Serial
from strata.kernels.cache import cpu as cache_cpu
from strata.kernels.choose import cpu as choose_cpu
from strata.kernels.conv import cpu as conv_cpu
from strata.kernels.delta_rule import cpu as delta_rule_cpu
from strata.kernels.elementwise import cpu as elementwise_cpu
from strata.kernels.embed import cpu as embed_cpu
from strata.kernels.experts import cpu as experts_cpu
from strata.kernels.linear import cpu as linear_cpu
from strata.kernels.native import Native
from strata.kernels.ngram import cpu as ngram_cpu
from strata.kernels.norm import cpu as norm_cpu
from strata.kernels.ops import Activation, HeadPairing, RopeLayout
from strata.kernels.program import NativeWorkspace
from strata.kernels.rope import cpu as rope_cpu
from strata.kernels.route import cpu as route_cpu
from strata.kernels.rows import cpu as rows_cpu
from strata.kernels.sparse_attention import cpu as sparse_cpu
from strata.kernels.step_program import Workspace
from strata.kernels.streams import cpu as streams_cpu
from strata.kernels.views import (
    DeltaInputs,
    DrawRows,
    ExpertBank,
    HeadGate,
    HeadNorms,
    IndexInputs,
    NgramHash,
    PagedPlane,
    Rows,
    Weight,
)


class CpuOps:
    """Implements `Ops` on the threads and instruction set of `native`, which the caller owns."""

    def __init__(self, native: Native) -> None:
        self.native = native

    def workspace(self) -> Workspace:
        """See Ops.workspace."""
        return NativeWorkspace(self.native)

    def branch(self, rows: int) -> Branch:
        """See Ops.branch."""
        return Serial()

    def linear(self, x: torch.Tensor, weights: Sequence[Weight]) -> tuple[torch.Tensor, ...]:
        """See Ops.linear."""
        return linear_cpu.linear(self.native, x, weights)

    def embed(self, ids: torch.Tensor, shards: Sequence[Weight]) -> torch.Tensor:
        """See Ops.embed."""
        return embed_cpu.embed(self.native, ids, shards)

    def activate(self, kind: Activation, x: torch.Tensor, divisor: float = 1.0, factor: float = 1.0) -> torch.Tensor:
        """See Ops.activate."""
        return activate_cpu.activate(self.native, kind, x, divisor, factor)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor | None, eps: float, group: int) -> torch.Tensor:
        """See Ops.rms_norm."""
        return norm_cpu.rms_norm(self.native, x, weight, eps, group)

    def add_norm(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.add_norm."""
        return joined.add_norm(self, x, y, weight, eps)

    def gated_norm(
        self,
        kind: Activation,
        gate: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        eps: float,
        group: int,
    ) -> torch.Tensor:
        """See Ops.gated_norm: two operations here."""
        return self.gate(kind, gate, self.rms_norm(x, weight, eps, group).view(gate.shape))

    def l2_norm(self, x: torch.Tensor, eps: float, scale: float) -> torch.Tensor:
        """See Ops.l2_norm."""
        return norm_cpu.l2_norm(self.native, x, eps, scale)

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RopeLayout) -> torch.Tensor:
        """See Ops.rope."""
        return rope_cpu.rope(self.native, x, cos, sin, layout)

    def attention_inputs(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        norms: HeadNorms | None,
        angles: tuple[torch.Tensor, torch.Tensor],
        layout: RopeLayout,
        keys: PagedPlane,
        values: PagedPlane,
        rows: Rows,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.attention_inputs."""
        return joined.attention_inputs(self, q, k, v, norms, angles, layout, keys, values, rows)

    def indexed_inputs(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        norms: HeadNorms | None,
        angles: tuple[torch.Tensor, torch.Tensor],
        layout: RopeLayout,
        keys: PagedPlane,
        values: PagedPlane,
        rows: Rows,
        index: IndexInputs,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See Ops.indexed_inputs."""
        return joined.indexed_inputs(self, q, k, v, norms, angles, layout, keys, values, rows, index)

    def index_inputs(
        self,
        q: torch.Tensor,
        raw: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        angles: tuple[torch.Tensor, torch.Tensor],
        layout: RopeLayout,
        raw_keys: PagedPlane,
        rows: Rows,
    ) -> torch.Tensor:
        """See Ops.index_inputs."""
        return joined.index_inputs(self, q, raw, weight, eps, angles, layout, raw_keys, rows)

    def complete_blocks(
        self,
        raw_keys: PagedPlane,
        block_keys: PagedPlane,
        rows: Rows,
        ratio: int,
        weight: torch.Tensor,
        eps: float,
        frequencies: torch.Tensor,
        layout: RopeLayout,
    ) -> None:
        """See Ops.complete_blocks."""
        joined.complete_blocks(self, raw_keys, block_keys, rows, ratio, weight, eps, frequencies, layout)

    def attention(
        self, q: torch.Tensor, keys: PagedPlane, values: PagedPlane, rows: Rows, scale: float
    ) -> torch.Tensor:
        """See Ops.attention."""
        return attention_cpu.attention(self.native, q, keys, values, rows, scale)

    def select_blocks(
        self, q: torch.Tensor, block_keys: PagedPlane, rows: Rows, ratio: int, budget: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.select_blocks."""
        return sparse_cpu.select_blocks(self.native, q, block_keys, rows, ratio, budget)

    def sparse_attention(
        self,
        q: torch.Tensor,
        keys: PagedPlane,
        values: PagedPlane,
        rows: Rows,
        scale: float,
        positions: torch.Tensor,
        count: torch.Tensor,
    ) -> torch.Tensor:
        """See Ops.sparse_attention."""
        return sparse_cpu.sparse_attention(self.native, q, keys, values, rows, scale, positions, count)

    def cache_write(self, plane: PagedPlane, slots: torch.Tensor, entries: torch.Tensor, x: torch.Tensor) -> None:
        """See Ops.cache_write."""
        cache_cpu.cache_write(self.native, plane, slots, entries, x)

    def pool_blocks(self, raw: PagedPlane, slots: torch.Tensor, blocks: torch.Tensor, ratio: int) -> torch.Tensor:
        """See Ops.pool_blocks."""
        return cache_cpu.pool_blocks(self.native, raw, slots, blocks, ratio)

    def causal_conv(
        self, x: torch.Tensor, weight: torch.Tensor, history: torch.Tensor, rows: Rows, dilation: int
    ) -> torch.Tensor:
        """See Ops.causal_conv."""
        return conv_cpu.causal_conv(self.native, x, weight, history, rows, dilation)

    def carry_rows(self, x: torch.Tensor, history: torch.Tensor, rows: Rows) -> None:
        """See Ops.carry_rows."""
        conv_cpu.carry_rows(self.native, x, history, rows)

    def delta_inputs(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        history: torch.Tensor,
        rows: Rows,
        b: torch.Tensor,
        a: torch.Tensor,
        rate: torch.Tensor,
        bias: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See Ops.delta_inputs."""
        return joined.delta_inputs(self, x, weight, history, rows, b, a, rate, bias)

    def delta_rule(
        self,
        qkv: torch.Tensor,
        beta: torch.Tensor,
        decay: torch.Tensor,
        state: torch.Tensor,
        rows: Rows,
        key_heads: int,
        pairing: HeadPairing,
        eps: float,
    ) -> torch.Tensor:
        """See Ops.delta_rule."""
        return delta_rule_cpu.delta_rule(self.native, qkv, beta, decay, state, rows, key_heads, pairing, eps)

    def gated_delta_rule(
        self,
        qkv: torch.Tensor,
        beta: torch.Tensor,
        decay: torch.Tensor,
        state: torch.Tensor,
        rows: Rows,
        key_heads: int,
        pairing: HeadPairing,
        eps: float,
        gate: HeadGate,
    ) -> torch.Tensor:
        """See Ops.gated_delta_rule."""
        return joined.gated_delta_rule(self, qkv, beta, decay, state, rows, key_heads, pairing, eps, gate)

    def delta_step(
        self,
        read: DeltaInputs,
        state: torch.Tensor,
        rows: Rows,
        key_heads: int,
        pairing: HeadPairing,
        eps: float,
        gate: HeadGate,
    ) -> torch.Tensor:
        """See Ops.delta_step."""
        return joined.delta_step(self, read, state, rows, key_heads, pairing, eps, gate)

    def route(self, logits: torch.Tensor, top_k: int, renormalise: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.route."""
        return route_cpu.route(self.native, logits, top_k, renormalise)

    def experts(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, bank: ExpertBank) -> torch.Tensor:
        """See Ops.experts."""
        return experts_cpu.experts(self.native, x, ids, weights, bank)

    def expert_uses(self, bank: ExpertBank) -> Sequence[int]:
        """See Ops.expert_uses."""
        return self.native.bank(bank).uses()

    def expert_bytes(self) -> Mapping[str, int]:
        """See Ops.expert_bytes: what was not in memory came from the disk."""
        return {"cpu": self.native.expert_bytes - self.native.missing_bytes, "disk": self.native.missing_bytes}

    def stream_mix(self, gate: torch.Tensor, x: torch.Tensor, streams: int) -> torch.Tensor:
        """See Ops.stream_mix."""
        return streams_cpu.stream_mix(self.native, gate, x, streams)

    def low_rank_mix(self, low: torch.Tensor, up: Weight, x: torch.Tensor, streams: int) -> torch.Tensor:
        """See Ops.low_rank_mix."""
        return joined.low_rank_mix(self, low, up, x, streams)

    def stream_add(
        self, residual: torch.Tensor, y: torch.Tensor, gates: torch.Tensor, divisor: float, factor: float
    ) -> torch.Tensor:
        """See Ops.stream_add."""
        return streams_cpu.stream_add(self.native, residual, y, gates, divisor, factor)

    def stream_add_norm(
        self,
        residual: torch.Tensor,
        y: torch.Tensor,
        gates: torch.Tensor,
        divisor: float,
        factor: float,
        weight: torch.Tensor | None,
        eps: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.stream_add_norm."""
        return joined.stream_add_norm(self, residual, y, gates, divisor, factor, weight, eps)

    def row_dot(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """See Ops.row_dot."""
        return norm_cpu.row_dot(self.native, a, b)

    def join(self, views: Sequence[torch.Tensor]) -> torch.Tensor:
        """See Ops.join."""
        return rows_cpu.join(self.native, views)

    def take_rows(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """See Ops.take_rows."""
        return rows_cpu.take_rows(self.native, x, index)

    def completed_blocks(self, positions: torch.Tensor, ratio: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.completed_blocks."""
        return rows_cpu.completed_blocks(self.native, positions, ratio)

    def ngram_rows(self, tokens: torch.Tensor, rows: Rows, hashing: NgramHash) -> torch.Tensor:
        """See Ops.ngram_rows."""
        return ngram_cpu.ngram_rows(self.native, tokens, rows, hashing)

    def rope_angles(self, positions: torch.Tensor, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.rope_angles."""
        return rope_cpu.rope_angles(self.native, positions, frequencies)

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """See Ops.add."""
        return elementwise_cpu.add(self.native, x, y)

    def divide(self, x: torch.Tensor, by: float) -> torch.Tensor:
        """See Ops.divide."""
        return elementwise_cpu.divide(self.native, x, by)

    def multiply(self, x: torch.Tensor, by: float) -> torch.Tensor:
        """See Ops.multiply."""
        return elementwise_cpu.multiply(self.native, x, by)

    def gate(self, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.gate."""
        return elementwise_cpu.gate(self.native, kind, g, x)

    def gate_heads(self, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.gate_heads."""
        return joined.gate_heads(self, kind, g, x)

    def signed_root(self, x: torch.Tensor, least: float) -> torch.Tensor:
        """See Ops.signed_root."""
        return elementwise_cpu.signed_root(self.native, x, least)

    def delta_rates(
        self, b: torch.Tensor, a: torch.Tensor, rate: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.delta_rates."""
        return elementwise_cpu.delta_rates(self.native, b, a, rate, bias)

    def spread(self, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.spread."""
        return elementwise_cpu.spread(self.native, weights, x)

    def choose(
        self, logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
    ) -> int:
        """See Ops.choose."""
        return choose_cpu.choose(self.native, logits, temperature, top_k, top_p, min_p, uniform)

    def draw(self, logits: torch.Tensor, rows: DrawRows) -> None:
        """See Ops.draw: rows are chosen from one by one."""
