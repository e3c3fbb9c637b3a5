"""Operations that are several others in a row: what they mean, and how whoever gains nothing by joining does them."""

import torch

from strata.kernels.ops import Activation, HeadPairing, Ops, RopeLayout
from strata.kernels.views import DeltaInputs, HeadGate, HeadNorms, IndexInputs, PagedPlane, Rows, Weight


def add_norm(
    ops: Ops, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.add_norm."""
    total = ops.add(x, y)
    return total, ops.rms_norm(total, weight, eps, total.shape[-1])


def attention_inputs(
    ops: Ops,
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
    q = q if q.is_contiguous() else ops.join([q]).view(q.shape)
    if norms is not None:
        q = ops.rms_norm(q, norms.q, norms.eps, q.shape[-1])
        k = ops.rms_norm(k, norms.k, norms.eps, k.shape[-1])
    q, k = ops.rope(q, *angles, layout), ops.rope(k, *angles, layout)
    ops.cache_write(keys, rows.slot, rows.position, k)
    ops.cache_write(values, rows.slot, rows.position, v)
    return q, k


def indexed_inputs(
    ops: Ops,
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
    q, k = ops.attention_inputs(q, k, v, norms, angles, layout, keys, values, rows)
    of_q, of_block, eps = index.norms.q, index.norms.k, index.norms.eps
    asked = ops.index_inputs(index.q, index.raw, of_q, eps, angles, layout, index.raw_keys, rows)
    ratio, by = index.ratio, index.frequencies
    ops.complete_blocks(index.raw_keys, index.block_keys, rows, ratio, of_block, eps, by, layout)
    return q, k, asked


def index_inputs(
    ops: Ops,
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
    q = ops.rope(ops.rms_norm(q, weight, eps, q.shape[-1]), *angles, layout)
    ops.cache_write(raw_keys, rows.slot, rows.position, raw)
    return q


def complete_blocks(
    ops: Ops,
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
    blocks, starts = ops.completed_blocks(rows.position, ratio)
    mean = ops.pool_blocks(raw_keys, rows.slot, blocks, ratio)
    normed = ops.rms_norm(mean, weight, eps, mean.shape[-1])
    key = ops.rope(normed.view(len(normed), 1, -1), *ops.rope_angles(starts, frequencies), layout)
    ops.cache_write(block_keys, rows.slot, blocks, key.view(normed.shape))


def gate_heads(ops: Ops, kind: Activation, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """See Ops.gate_heads."""
    return ops.gate(kind, ops.join([g]), x.view(len(x), -1))


def delta_inputs(
    ops: Ops,
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
    return ops.causal_conv(x, weight, history, rows, 1), *ops.delta_rates(b, a, rate, bias)


def gated_delta_rule(
    ops: Ops,
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
    o = ops.delta_rule(qkv, beta, decay, state, rows, key_heads, pairing, eps)
    return ops.gated_norm(gate.kind, gate.values, o, gate.weight, gate.eps, o.shape[-1])


def delta_step(
    ops: Ops,
    read: DeltaInputs,
    state: torch.Tensor,
    rows: Rows,
    key_heads: int,
    pairing: HeadPairing,
    eps: float,
    gate: HeadGate,
) -> torch.Tensor:
    """See Ops.delta_step."""
    made = ops.delta_inputs(read.x, read.weight, read.history, rows, read.b, read.a, read.rate, read.bias)
    return ops.gated_delta_rule(*made, state, rows, key_heads, pairing, eps, gate)


def low_rank_mix(ops: Ops, low: torch.Tensor, up: Weight, x: torch.Tensor, streams: int) -> torch.Tensor:
    """See Ops.low_rank_mix."""
    (gate,) = ops.linear(ops.activate("silu", low, divisor=streams), (up,))
    return ops.stream_mix(gate, x, streams)


def stream_add_norm(
    ops: Ops,
    residual: torch.Tensor,
    y: torch.Tensor,
    gates: torch.Tensor,
    divisor: float,
    factor: float,
    weight: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Ops.stream_add_norm."""
    total = ops.stream_add(residual, y, gates, divisor, factor)
    return total, ops.rms_norm(total, weight, eps, y.shape[-1])
