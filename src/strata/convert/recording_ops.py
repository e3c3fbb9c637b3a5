"""Operations that tell a listener what every product reads, and otherwise do what the wrapped ones do."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from strata.kernels import joined
from strata.kernels.branch import Branch
from strata.kernels.ops import Activation, HeadPairing, Ops, RopeLayout
from strata.kernels.step_program import Unshared, Workspace
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


class Heard(Protocol):
    """Who wants to know."""

    def product(self, weight: Weight, x: torch.Tensor) -> None:
        """`weight` is multiplied with rows x [N, cols]."""
        ...

    def expert(self, bank: ExpertBank, expert: int, x: torch.Tensor, hidden: torch.Tensor) -> None:
        """An expert reads rows x [N, hidden], its down matrix reads `hidden` [N, width]."""
        ...


class RecordingOps:
    """Implements `Ops` by `inner`, bit for bit."""

    def __init__(self, inner: Ops, heard: Heard) -> None:
        self.inner = inner
        self.heard = heard

    def workspace(self) -> Workspace:
        """See Ops.workspace; no program, for the listener wants to hear every step."""
        return Unshared()

    def branch(self, rows: int) -> Branch:
        """See Ops.branch."""
        return self.inner.branch(rows)

    def linear(self, x: torch.Tensor, weights: Sequence[Weight]) -> tuple[torch.Tensor, ...]:
        """See Ops.linear."""
        for weight in weights:
            self.heard.product(weight, x)
        return self.inner.linear(x, weights)

    def embed(self, ids: torch.Tensor, shards: Sequence[Weight]) -> torch.Tensor:
        """See Ops.embed."""
        return self.inner.embed(ids, shards)

    def activate(self, kind: Activation, x: torch.Tensor, divisor: float = 1.0, factor: float = 1.0) -> torch.Tensor:
        """See Ops.activate."""
        return self.inner.activate(kind, x, divisor, factor)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor | None, eps: float, group: int) -> torch.Tensor:
        """See Ops.rms_norm."""
        return self.inner.rms_norm(x, weight, eps, group)

    def add_norm(
        self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.add_norm."""
        return self.inner.add_norm(x, y, weight, eps)

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
        return self.inner.gated_norm(kind, gate, x, weight, eps, group)

    def l2_norm(self, x: torch.Tensor, eps: float, scale: float) -> torch.Tensor:
        """See Ops.l2_norm."""
        return self.inner.l2_norm(x, eps, scale)

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RopeLayout) -> torch.Tensor:
        """See Ops.rope."""
        return self.inner.rope(x, cos, sin, layout)

    def attention_inputs(  # noqa: PLR0913  the protocol's
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
        return self.inner.attention_inputs(q, k, v, norms, angles, layout, keys, values, rows)

    def indexed_inputs(  # noqa: PLR0913  the protocol's
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
        return self.inner.indexed_inputs(q, k, v, norms, angles, layout, keys, values, rows, index)

    def index_inputs(  # noqa: PLR0913  the protocol's
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
        return self.inner.index_inputs(q, raw, weight, eps, angles, layout, raw_keys, rows)

    def complete_blocks(  # noqa: PLR0913  the protocol's
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
        self.inner.complete_blocks(raw_keys, block_keys, rows, ratio, weight, eps, frequencies, layout)

    def attention(
        self, q: torch.Tensor, keys: PagedPlane, values: PagedPlane, rows: Rows, scale: float
    ) -> torch.Tensor:
        """See Ops.attention."""
        return self.inner.attention(q, keys, values, rows, scale)

    def select_blocks(
        self, q: torch.Tensor, block_keys: PagedPlane, rows: Rows, ratio: int, budget: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.select_blocks."""
        return self.inner.select_blocks(q, block_keys, rows, ratio, budget)

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
        return self.inner.sparse_attention(q, keys, values, rows, scale, positions, count)

    def cache_write(self, plane: PagedPlane, slots: torch.Tensor, entries: torch.Tensor, x: torch.Tensor) -> None:
        """See Ops.cache_write."""
        self.inner.cache_write(plane, slots, entries, x)

    def pool_blocks(self, raw: PagedPlane, slots: torch.Tensor, blocks: torch.Tensor, ratio: int) -> torch.Tensor:
        """See Ops.pool_blocks."""
        return self.inner.pool_blocks(raw, slots, blocks, ratio)

    def causal_conv(
        self, x: torch.Tensor, weight: torch.Tensor, history: torch.Tensor, rows: Rows, dilation: int
    ) -> torch.Tensor:
        """See Ops.causal_conv."""
        return self.inner.causal_conv(x, weight, history, rows, dilation)

    def carry_rows(self, x: torch.Tensor, history: torch.Tensor, rows: Rows) -> None:
        """See Ops.carry_rows."""
        self.inner.carry_rows(x, history, rows)

    def delta_inputs(  # noqa: PLR0913  the protocol's
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
        return self.inner.delta_inputs(x, weight, history, rows, b, a, rate, bias)

    def delta_rule(  # noqa: PLR0913  the protocol's
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
        return self.inner.delta_rule(qkv, beta, decay, state, rows, key_heads, pairing, eps)

    def gated_delta_rule(  # noqa: PLR0913  the protocol's
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
        return self.inner.gated_delta_rule(qkv, beta, decay, state, rows, key_heads, pairing, eps, gate)

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
        return self.inner.delta_step(read, state, rows, key_heads, pairing, eps, gate)

    def route(self, logits: torch.Tensor, top_k: int, renormalise: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.route."""
        return self.inner.route(logits, top_k, renormalise)

    def experts(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, bank: ExpertBank) -> torch.Tensor:
        """See Ops.experts; the experts' own inputs are found by doing gate and up once more."""
        for expert in sorted({int(e) for e in ids.flatten()}):
            rows = x[(ids == expert).any(dim=1)].contiguous()
            gate, up = self.inner.linear(rows, (bank.gate[expert], bank.up[expert]))
            self.heard.expert(bank, expert, rows, self.inner.activate("silu", gate) * up)
        return self.inner.experts(x, ids, weights, bank)

    def expert_uses(self, bank: ExpertBank) -> Sequence[int]:
        """See Ops.expert_uses."""
        return self.inner.expert_uses(bank)

    def expert_bytes(self) -> Mapping[str, int]:
        """See Ops.expert_bytes."""
        return self.inner.expert_bytes()

    def stream_mix(self, gate: torch.Tensor, x: torch.Tensor, streams: int) -> torch.Tensor:
        """See Ops.stream_mix."""
        return self.inner.stream_mix(gate, x, streams)

    def low_rank_mix(self, low: torch.Tensor, up: Weight, x: torch.Tensor, streams: int) -> torch.Tensor:
        """See Ops.low_rank_mix; one operation after the other, so that the product is heard."""
        return joined.low_rank_mix(self, low, up, x, streams)

    def stream_add(
        self, residual: torch.Tensor, y: torch.Tensor, gates: torch.Tensor, divisor: float, factor: float
    ) -> torch.Tensor:
        """See Ops.stream_add."""
        return self.inner.stream_add(residual, y, gates, divisor, factor)

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
        return self.inner.stream_add_norm(residual, y, gates, divisor, factor, weight, eps)

    def row_dot(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """See Ops.row_dot."""
        return self.inner.row_dot(a, b)

    def join(self, views: Sequence[torch.Tensor]) -> torch.Tensor:
        """See Ops.join."""
        return self.inner.join(views)

    def take_rows(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """See Ops.take_rows."""
        return self.inner.take_rows(x, index)

    def completed_blocks(self, positions: torch.Tensor, ratio: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.completed_blocks."""
        return self.inner.completed_blocks(positions, ratio)

    def ngram_rows(self, tokens: torch.Tensor, rows: Rows, hashing: NgramHash) -> torch.Tensor:
        """See Ops.ngram_rows."""
        return self.inner.ngram_rows(tokens, rows, hashing)

    def rope_angles(self, positions: torch.Tensor, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.rope_angles."""
        return self.inner.rope_angles(positions, frequencies)

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """See Ops.add."""
        return self.inner.add(x, y)

    def divide(self, x: torch.Tensor, by: float) -> torch.Tensor:
        """See Ops.divide."""
        return self.inner.divide(x, by)

    def multiply(self, x: torch.Tensor, by: float) -> torch.Tensor:
        """See Ops.multiply."""
        return self.inner.multiply(x, by)

    def gate(self, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.gate."""
        return self.inner.gate(kind, g, x)

    def gate_heads(self, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.gate_heads."""
        return self.inner.gate_heads(kind, g, x)

    def signed_root(self, x: torch.Tensor, least: float) -> torch.Tensor:
        """See Ops.signed_root."""
        return self.inner.signed_root(x, least)

    def delta_rates(
        self, b: torch.Tensor, a: torch.Tensor, rate: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.delta_rates."""
        return self.inner.delta_rates(b, a, rate, bias)

    def spread(self, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.spread."""
        return self.inner.spread(weights, x)

    def choose(
        self, logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
    ) -> int:
        """See Ops.choose."""
        return self.inner.choose(logits, temperature, top_k, top_p, min_p, uniform)

    def draw(self, logits: torch.Tensor, rows: DrawRows) -> None:
        """See Ops.draw: rows are chosen from one by one."""
