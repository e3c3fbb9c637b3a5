"""The specification of every operation behind the Ops protocol: numpy, one rounding per written step."""

from collections.abc import Mapping, Sequence

import torch

from strata.kernels import joined
from strata.kernels.activate import naive as activate_naive
from strata.kernels.attention import naive as attention_naive
from strata.kernels.branch import Branch, Serial
from strata.kernels.cache import naive as cache_naive
from strata.kernels.choose import naive as choose_naive
from strata.kernels.conv import naive as conv_naive
from strata.kernels.delta_rule import naive as delta_rule_naive
from strata.kernels.elementwise import naive as elementwise_naive
from strata.kernels.embed import naive as embed_naive
from strata.kernels.experts import naive as experts_naive
from strata.kernels.linear import naive as linear_naive
from strata.kernels.ngram import naive as ngram_naive
from strata.kernels.norm import naive as norm_naive
from strata.kernels.ops import Activation, HeadPairing, RopeLayout
from strata.kernels.rope import naive as rope_naive
from strata.kernels.route import naive as route_naive
from strata.kernels.rows import naive as rows_naive
from strata.kernels.sparse_attention import naive as sparse_naive
from strata.kernels.step_program import Unshared, Workspace
from strata.kernels.streams import naive as streams_naive
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


class NaiveOps:
    """Implements `Ops` by each operation's `naive.py`; slow, for tests and parity."""

    def workspace(self) -> Workspace:
        """See Ops.workspace; numpy keeps no memory, and records nothing."""
        return Unshared()

    def branch(self, rows: int) -> Branch:
        """See Ops.branch."""
        return Serial()

    def linear(self, x: torch.Tensor, weights: Sequence[Weight]) -> tuple[torch.Tensor, ...]:
        """See Ops.linear."""
        return linear_naive.linear(x, weights)

    def embed(self, ids: torch.Tensor, shards: Sequence[Weight]) -> torch.Tensor:
        """See Ops.embed."""
        return embed_naive.embed(ids, shards)

    def activate(self, kind: Activation, x: torch.Tensor, divisor: float = 1.0, factor: float = 1.0) -> torch.Tensor:
        """See Ops.activate."""
        return activate_naive.activate(kind, x, divisor, factor)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor | None, eps: float, group: int) -> torch.Tensor:
        """See Ops.rms_norm."""
        return norm_naive.rms_norm(x, weight, eps, group)

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
        """See Ops.gated_norm."""
        return norm_naive.gated_norm(kind, gate, x, weight, eps, group)

    def l2_norm(self, x: torch.Tensor, eps: float, scale: float) -> torch.Tensor:
        """See Ops.l2_norm."""
        return norm_naive.l2_norm(x, eps, scale)

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RopeLayout) -> torch.Tensor:
        """See Ops.rope."""
        return rope_naive.rope(x, cos, sin, layout)

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
        return attention_naive.attention(q, keys, values, rows, scale)

    def select_blocks(
        self, q: torch.Tensor, block_keys: PagedPlane, rows: Rows, ratio: int, budget: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.select_blocks."""
        return sparse_naive.select_blocks(q, block_keys, rows, ratio, budget)

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
        return sparse_naive.sparse_attention(q, keys, values, rows, scale, positions, count)

    def cache_write(self, plane: PagedPlane, slots: torch.Tensor, entries: torch.Tensor, x: torch.Tensor) -> None:
        """See Ops.cache_write."""
        cache_naive.cache_write(plane, slots, entries, x)

    def pool_blocks(self, raw: PagedPlane, slots: torch.Tensor, blocks: torch.Tensor, ratio: int) -> torch.Tensor:
        """See Ops.pool_blocks."""
        return cache_naive.pool_blocks(raw, slots, blocks, ratio)

    def causal_conv(
        self, x: torch.Tensor, weight: torch.Tensor, history: torch.Tensor, rows: Rows, dilation: int
    ) -> torch.Tensor:
        """See Ops.causal_conv."""
        return conv_naive.causal_conv(x, weight, history, rows, dilation)

    def carry_rows(self, x: torch.Tensor, history: torch.Tensor, rows: Rows) -> None:
        """See Ops.carry_rows."""
        conv_naive.carry_rows(x, history, rows)

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
        return delta_rule_naive.delta_rule(qkv, beta, decay, state, rows, key_heads, pairing, eps)

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
        return route_naive.route(logits, top_k, renormalise)

    def experts(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, bank: ExpertBank) -> torch.Tensor:
        """See Ops.experts."""
        return experts_naive.experts(x, ids, weights, bank)

    def expert_uses(self, bank: ExpertBank) -> Sequence[int]:
        """See Ops.expert_uses."""
        return ()

    def expert_bytes(self) -> Mapping[str, int]:
        """See Ops.expert_bytes."""
        return {}

    def stream_mix(self, gate: torch.Tensor, x: torch.Tensor, streams: int) -> torch.Tensor:
        """See Ops.stream_mix."""
        return streams_naive.stream_mix(gate, x, streams)

    def low_rank_mix(self, low: torch.Tensor, up: Weight, x: torch.Tensor, streams: int) -> torch.Tensor:
        """See Ops.low_rank_mix."""
        return joined.low_rank_mix(self, low, up, x, streams)

    def stream_add(
        self, residual: torch.Tensor, y: torch.Tensor, gates: torch.Tensor, divisor: float, factor: float
    ) -> torch.Tensor:
        """See Ops.stream_add."""
        return streams_naive.stream_add(residual, y, gates, divisor, factor)

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
        return norm_naive.row_dot(a, b)

    def join(self, views: Sequence[torch.Tensor]) -> torch.Tensor:
        """See Ops.join."""
        return rows_naive.join(views)

    def take_rows(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """See Ops.take_rows."""
        return rows_naive.take_rows(x, index)

    def completed_blocks(self, positions: torch.Tensor, ratio: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.completed_blocks."""
        return rows_naive.completed_blocks(positions, ratio)

    def ngram_rows(self, tokens: torch.Tensor, rows: Rows, hashing: NgramHash) -> torch.Tensor:
        """See Ops.ngram_rows."""
        return ngram_naive.ngram_rows(tokens, rows, hashing)

    def rope_angles(self, positions: torch.Tensor, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.rope_angles."""
        return rope_naive.rope_angles(positions, frequencies)

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """See Ops.add."""
        return elementwise_naive.add(x, y)

    def divide(self, x: torch.Tensor, by: float) -> torch.Tensor:
        """See Ops.divide."""
        return elementwise_naive.divide(x, by)

    def multiply(self, x: torch.Tensor, by: float) -> torch.Tensor:
        """See Ops.multiply."""
        return elementwise_naive.multiply(x, by)

    def gate(self, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.gate."""
        return elementwise_naive.gate(kind, g, x)

    def gate_heads(self, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.gate_heads."""
        return joined.gate_heads(self, kind, g, x)

    def signed_root(self, x: torch.Tensor, least: float) -> torch.Tensor:
        """See Ops.signed_root."""
        return elementwise_naive.signed_root(x, least)

    def delta_rates(
        self, b: torch.Tensor, a: torch.Tensor, rate: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops.delta_rates."""
        return elementwise_naive.delta_rates(b, a, rate, bias)

    def spread(self, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """See Ops.spread."""
        return elementwise_naive.spread(weights, x)

    def choose(
        self, logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
    ) -> int:
        """See Ops.choose."""
        return choose_naive.choose(logits, temperature, top_k, top_p, min_p, uniform)

    def draw(self, logits: torch.Tensor, rows: DrawRows) -> None:
        """See Ops.draw: rows are chosen from one by one."""
