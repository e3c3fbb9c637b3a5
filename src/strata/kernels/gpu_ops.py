"""Every operation on a GPU, or its emulator, behind the Ops protocol; bits as `naive_ops.NaiveOps`.

No operation waits for the device or asks it for a value, so a step of them can be captured as one graph.
"""

import weakref
from collections.abc import Mapping, Sequence

import torch

from strata.kernels import joined
from strata.kernels.activate import gpu as activate_gpu
from strata.kernels.attention import gpu as attention_gpu
from strata.kernels.branch import Branch, Serial
from strata.kernels.cache import gpu as cache_gpu
from strata.kernels.choose import gpu as choose_gpu
from strata.kernels.conv import gpu as conv_gpu
from strata.kernels.delta_rule import gpu as delta_rule_gpu
from strata.kernels.delta_rule import inputs as delta_inputs
from strata.kernels.delta_rule import prompt as delta_rule_prompt
from strata.kernels.delta_rule import step as delta_step
from strata.kernels.device import Device
from strata.kernels.elementwise import gpu as elementwise_gpu
from strata.kernels.embed import gpu as embed_gpu
from strata.kernels.experts import gpu as experts_gpu
from strata.kernels.experts import prompt as experts_prompt
from strata.kernels.experts.table import ExpertTable, table_of
from strata.kernels.heads import gpu as heads_gpu
from strata.kernels.linear import gpu as linear_gpu
from strata.kernels.linear import prompt as linear_prompt
from strata.kernels.native import remember
from strata.kernels.ngram import gpu as ngram_gpu
from strata.kernels.norm import gpu as norm_gpu
from strata.kernels.norm import prompt as norm_prompt
from strata.kernels.ops import Activation, HeadPairing, RopeLayout
from strata.kernels.rope import gpu as rope_gpu
from strata.kernels.route import gpu as route_gpu
from strata.kernels.rows import gpu as rows_gpu
from strata.kernels.sparse_attention import gpu as sparse_gpu
from strata.kernels.sparse_attention import prompt as sparse_prompt
from strata.kernels.step_program import Unshared, Workspace
from strata.kernels.streams import gpu as streams_gpu
from strata.kernels.streams import low_rank as low_rank_gpu
from strata.kernels.streams import prompt as streams_prompt
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

WINDOW_ROWS = 32
"""Rows of a step up to which kernels are made for few rows; more are a prompt's. The bits are the same."""


class GpuOps:
    """Implements `Ops` on `device`. Indices are not checked there: whoever makes a step guarantees their ranges."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._tables: dict[int, tuple[weakref.ref[ExpertBank], ExpertTable]] = {}

    def table(self, bank: ExpertBank) -> ExpertTable:
        """The device's table of a bank, whose experts are copied there once and kept as long as the bank."""
        known = self._tables.get(id(bank))
        return known[1] if known is not None else remember(self._tables, bank, table_of(self.device, bank))

    def workspace(self) -> Workspace:
        """See Ops.workspace; torch keeps the device's memory, and that of all graphs in one pool."""
        return Unshared(self.device.program)

    def branch(self, rows: int) -> Branch:
        """See Ops.branch: a prompt's operations fill the device one by one."""
        return self.device.branch() if rows <= WINDOW_ROWS else Serial()

    def linear(self, x: torch.Tensor, weights: Sequence[Weight]) -> tuple[torch.Tensor, ...]:
        """See Ops.linear."""
        if len(x) > WINDOW_ROWS:
            return linear_prompt.linear(self.device, x, weights)
        return linear_gpu.linear(self.device, x, weights)

    def embed(self, ids: torch.Tensor, shards: Sequence[Weight]) -> torch.Tensor:
        """See Ops.embed."""
        return embed_gpu.embed(self.device, ids, shards)

    def activate(self, kind: Activation, x: torch.Tensor, divisor: float = 1.0, factor: float = 1.0) -> torch.Tensor:
        """See Ops.activate."""
        return activate_gpu.activate(self.device, kind, x, divisor, factor)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor | None, eps: float, group: int) -> torch.Tensor:
        """See Ops.rms_norm."""
        form = norm_prompt.rms_norm if len(x) > WINDOW_ROWS else norm_gpu.rms_norm
        return form(self.device, x, weight, eps, group)

    def add_norm(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.add_norm."""
        if len(x) > WINDOW_ROWS and norm_prompt.unit_for(self.device, "norm_many", x.shape[-1]):
            return norm_prompt.add_norm(self.device, x, y, weight, eps)
        if len(x) > WINDOW_ROWS or not norm_gpu.adds(x.shape[-1]):
            return joined.add_norm(self, x, y, weight, eps)
        return norm_gpu.add_norm(self.device, x, y, weight, eps)

    def gated_norm(
        self,
        kind: Activation,
        gate: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        eps: float,
        group: int,
    ) -> torch.Tensor:
        """See Ops.gated_norm."""
        form = norm_prompt.gated_norm if len(gate) > WINDOW_ROWS else norm_gpu.gated_norm
        return form(self.device, kind, gate, x, weight, eps, group)

    def l2_norm(self, x: torch.Tensor, eps: float, scale: float) -> torch.Tensor:
        """See Ops.l2_norm."""
        return norm_gpu.l2_norm(self.device, x, eps, scale)

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RopeLayout) -> torch.Tensor:
        """See Ops.rope."""
        return rope_gpu.rope(self.device, x, cos, sin, layout)

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
        if len(q) > WINDOW_ROWS or q.shape[-1] > heads_gpu.MOST_DIMS:
            return joined.attention_inputs(self, q, k, v, norms, angles, layout, keys, values, rows)
        return heads_gpu.attention_inputs(self.device, q, k, v, norms, angles, layout, keys, values, rows)

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
        if len(q) > WINDOW_ROWS or max(q.shape[-1], index.q.shape[-1]) > heads_gpu.MOST_DIMS:
            return joined.indexed_inputs(self, q, k, v, norms, angles, layout, keys, values, rows, index)
        return heads_gpu.indexed_inputs(self.device, q, k, v, norms, angles, layout, keys, values, rows, index)

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
        if len(q) > WINDOW_ROWS or q.shape[-1] > heads_gpu.MOST_DIMS:
            return joined.index_inputs(self, q, raw, weight, eps, angles, layout, raw_keys, rows)
        return heads_gpu.index_inputs(self.device, q, raw, weight, eps, angles, layout, raw_keys, rows)

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
        if len(rows.slot) > WINDOW_ROWS or weight.shape[0] > heads_gpu.MOST_DIMS:
            joined.complete_blocks(self, raw_keys, block_keys, rows, ratio, weight, eps, frequencies, layout)
        else:
            heads_gpu.complete_blocks(self.device, raw_keys, block_keys, rows, ratio, weight, eps, frequencies, layout)

    def attention(
        self, q: torch.Tensor, keys: PagedPlane, values: PagedPlane, rows: Rows, scale: float
    ) -> torch.Tensor:
        """See Ops.attention."""
        return attention_gpu.attention(self.device, q, keys, values, rows, scale)

    def select_blocks(
        self, q: torch.Tensor, block_keys: PagedPlane, rows: Rows, ratio: int, budget: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.select_blocks."""
        form = sparse_prompt.select_blocks if len(q) > WINDOW_ROWS else sparse_gpu.select_blocks
        return form(self.device, q, block_keys, rows, ratio, budget)

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
        form = sparse_prompt.sparse_attention if len(q) > WINDOW_ROWS else sparse_gpu.sparse_attention
        return form(self.device, q, keys, values, rows, scale, positions, count)

    def cache_write(self, plane: PagedPlane, slots: torch.Tensor, entries: torch.Tensor, x: torch.Tensor) -> None:
        """See Ops.cache_write."""
        cache_gpu.cache_write(self.device, plane, slots, entries, x)

    def pool_blocks(self, raw: PagedPlane, slots: torch.Tensor, blocks: torch.Tensor, ratio: int) -> torch.Tensor:
        """See Ops.pool_blocks."""
        return cache_gpu.pool_blocks(self.device, raw, slots, blocks, ratio)

    def causal_conv(
        self, x: torch.Tensor, weight: torch.Tensor, history: torch.Tensor, rows: Rows, dilation: int
    ) -> torch.Tensor:
        """See Ops.causal_conv."""
        return conv_gpu.causal_conv(self.device, x, weight, history, rows, dilation)

    def carry_rows(self, x: torch.Tensor, history: torch.Tensor, rows: Rows) -> None:
        """See Ops.carry_rows."""
        conv_gpu.carry_rows(self.device, x, history, rows)

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
        if len(x) > WINDOW_ROWS or weight.shape[1] != delta_inputs.TAPS:
            return joined.delta_inputs(self, x, weight, history, rows, b, a, rate, bias)
        return delta_inputs.delta_inputs(self.device, x, weight, history, rows, b, a, rate, bias)

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
        form = delta_rule_prompt.delta_rule if len(qkv) > WINDOW_ROWS else delta_rule_gpu.delta_rule
        return form(self.device, qkv, beta, decay, state, rows, key_heads, pairing, eps)

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
        if len(qkv) > WINDOW_ROWS or not delta_rule_gpu.gates(state):
            return joined.gated_delta_rule(self, qkv, beta, decay, state, rows, key_heads, pairing, eps, gate)
        return delta_rule_gpu.gated_delta_rule(
            self.device, qkv, beta, decay, state, rows, key_heads, pairing, eps, gate
        )

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
        if not delta_step.fits(read, state, rows):
            return joined.delta_step(self, read, state, rows, key_heads, pairing, eps, gate)
        return delta_step.delta_step(self.device, read, state, rows, key_heads, pairing, eps, gate)

    def route(self, logits: torch.Tensor, top_k: int, renormalise: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.route."""
        return route_gpu.route(self.device, logits, top_k, renormalise)

    def experts(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, bank: ExpertBank) -> torch.Tensor:
        """See Ops.experts."""
        if len(x) > WINDOW_ROWS:
            return experts_prompt.experts(self.device, x, ids, weights, self.table(bank))
        return experts_gpu.experts(self.device, x, ids, weights, self.table(bank))

    def expert_uses(self, bank: ExpertBank) -> Sequence[int]:
        """See Ops.expert_uses."""
        return ()

    def expert_bytes(self) -> Mapping[str, int]:
        """See Ops.expert_bytes."""
        return {}

    def stream_mix(self, gate: torch.Tensor, x: torch.Tensor, streams: int) -> torch.Tensor:
        """See Ops.stream_mix."""
        form = streams_prompt.stream_mix if len(x) > WINDOW_ROWS else streams_gpu.stream_mix
        return form(self.device, gate, x, streams)

    def low_rank_mix(self, low: torch.Tensor, up: Weight, x: torch.Tensor, streams: int) -> torch.Tensor:
        """See Ops.low_rank_mix."""
        if len(x) > WINDOW_ROWS or not low_rank_gpu.fits(self.device, up, streams):
            return joined.low_rank_mix(self, low, up, x, streams)
        return low_rank_gpu.low_rank_mix(self.device, low, up, x, streams)

    def stream_add(
        self, residual: torch.Tensor, y: torch.Tensor, gates: torch.Tensor, divisor: float, factor: float
    ) -> torch.Tensor:
        """See Ops.stream_add."""
        return streams_gpu.stream_add(self.device, residual, y, gates, divisor, factor)

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
        if len(y) > WINDOW_ROWS and norm_prompt.unit_for(self.device, streams_prompt.UNIT, y.shape[-1]):
            return streams_prompt.stream_add_norm(self.device, residual, y, gates, divisor, factor, weight, eps)
        if len(y) > WINDOW_ROWS or not norm_gpu.adds(y.shape[-1]):
            return joined.stream_add_norm(self, residual, y, gates, divisor, factor, weight, eps)
        return streams_gpu.stream_add_norm(self.device, residual, y, gates, divisor, factor, weight, eps)

    def row_dot(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """See Ops.row_dot."""
        return norm_gpu.row_dot(self.device, a, b)

    def join(self, views: Sequence[torch.Tensor]) -> torch.Tensor:
        """See Ops.join."""
        return rows_gpu.join(self.device, views)

    def take_rows(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """See Ops.take_rows."""
        return rows_gpu.take_rows(self.device, x, index)

    def completed_blocks(self, positions: torch.Tensor, ratio: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.completed_blocks."""
        return rows_gpu.completed_blocks(self.device, positions, ratio)

    def ngram_rows(self, tokens: torch.Tensor, rows: Rows, hashing: NgramHash) -> torch.Tensor:
        """See Ops.ngram_rows."""
        return ngram_gpu.ngram_rows(self.device, tokens, rows, hashing)

    def rope_angles(self, positions: torch.Tensor, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.rope_angles."""
        return rope_gpu.rope_angles(self.device, positions, frequencies)

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """See Ops.add."""
        return elementwise_gpu.add(self.device, x, y)

    def divide(self, x: torch.Tensor, by: float) -> torch.Tensor:
        """See Ops.divide."""
        return elementwise_gpu.divide(self.device, x, by)

    def multiply(self, x: torch.Tensor, by: float) -> torch.Tensor:
        """See Ops.multiply."""
        return elementwise_gpu.multiply(self.device, x, by)

    def gate(self, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.gate."""
        return elementwise_gpu.gate(self.device, kind, g, x)

    def gate_heads(self, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.gate_heads."""
        return elementwise_gpu.gate_heads(self.device, kind, g, x)

    def signed_root(self, x: torch.Tensor, least: float) -> torch.Tensor:
        """See Ops.signed_root."""
        return elementwise_gpu.signed_root(self.device, x, least)

    def delta_rates(
        self, b: torch.Tensor, a: torch.Tensor, rate: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.delta_rates."""
        return elementwise_gpu.delta_rates(self.device, b, a, rate, bias)

    def spread(self, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.spread."""
        return elementwise_gpu.spread(self.device, weights, x)

    def choose(
        self, logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
    ) -> int:
        """See Ops.choose."""
        return choose_gpu.choose(self.device, logits, temperature, top_k, top_p, min_p, uniform)

    def draw(self, logits: torch.Tensor, rows: DrawRows) -> torch.Tensor:
        """See Ops.draw."""
        return choose_gpu.draw(self.device, logits, rows)
