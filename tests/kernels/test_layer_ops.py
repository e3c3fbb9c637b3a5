"""NaiveOps and CpuOps both fit the Ops protocol, and hand each operation its own arguments."""

import inspect

import pytest
import torch

from kernels.layer_cases import native, normal, paged, rows_of, same_bits
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.ops import Ops
from strata.kernels.views import HeadNorms


def operations() -> list[str]:
    return [name for name, member in vars(Ops).items() if inspect.isfunction(member) and not name.startswith("_")]


@pytest.mark.parametrize("name", operations())
def test_parameters_equal_the_protocol(name: str) -> None:
    """What they return may be narrower."""
    wanted = inspect.signature(getattr(Ops, name)).parameters
    for operations in (NaiveOps, CpuOps, GpuOps):
        assert inspect.signature(getattr(operations, name)).parameters == wanted


def layers(ops: Ops) -> list[torch.Tensor]:
    """One small pass through every operation that keeps or mixes rows."""
    rows = rows_of([(1, 6, 3), (0, 2, 1)])
    keys, values, raw = paged(1, [4, 12], 4, (1, 32)), paged(2, [4, 12], 4, (1, 32)), paged(3, [4, 12], 4, (32,))
    x = ops.l2_norm(ops.rms_norm(normal(4, 4, 64), normal(5, 64), 1e-6, 64), 1e-6, 2.0)
    q = ops.rope(x.reshape(4, 2, 32), normal(6, 4, 8), normal(7, 4, 8), "pairs")
    ops.cache_write(keys, rows.slot, rows.position, q[:, :1].contiguous())
    positions, count = ops.select_blocks(q, raw, rows, 2, 1)
    pooled = ops.pool_blocks(raw, rows.slot, torch.zeros(4, dtype=torch.int32), 2)
    dense = ops.attention(q, keys, values, rows, 0.2)
    sparse = ops.sparse_attention(q, keys, values, rows, 0.2, positions, count)
    turns = normal(6, 4, 8), normal(7, 4, 8)
    norms = HeadNorms(normal(11, 32), normal(12, 32), 1e-6)
    one_head = q[:, :1].contiguous()
    inputs = ops.attention_inputs(q, one_head, normal(13, 4, 1, 32), norms, turns, "halves", keys, values, rows)
    history, state = torch.zeros(2, 3, 64), torch.zeros(2, 2, 16, 16)
    convolved = ops.causal_conv(x, normal(8, 64, 4), history, rows, 1)
    gates = normal(9, 4, 2).abs()
    delta = ops.delta_rule(convolved, gates, gates, state, rows, 1, "tiled", 1e-6)
    ids, weights = ops.route(x, 3, True)
    mixed = ops.stream_add(x, ops.stream_mix(x, convolved, 2), gates, 2.0, 3.0)
    dots = ops.row_dot(x, mixed)
    sums = ops.add(ops.divide(x, 3.0), ops.multiply(ops.gate("silu", x, mixed), 0.3))
    rates = ops.delta_rates(gates, normal(10, 4, 2), -gates[0].contiguous(), gates[1].contiguous())
    wide = ops.spread(ops.signed_root(gates, 0.1), ops.take_rows(x, torch.tensor([3, 0, 0, 1], dtype=torch.int32)))
    joined = ops.join([x.view(4, 2, 32)[:, 1], wide])
    blocks = ops.completed_blocks(rows.position, 2)
    angles = ops.rope_angles(rows.position, torch.tensor([1.0, 0.3], dtype=torch.float64))
    found = [
        *inputs,
        *ops.add_norm(x, mixed, None, 1e-6),
        *ops.stream_add_norm(x, mixed[:, :32].contiguous(), gates, 2.0, 3.0, None, 1e-6),
        sums,
        *rates,
        wide,
        joined,
        *blocks,
        *angles,
    ]
    return [
        *found,
        dense,
        sparse,
        pooled,
        keys.data,
        history,
        state,
        delta,
        ids,
        weights,
        mixed,
        dots,
        positions,
        count,
    ]


@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512"])
def test_both_forms_give_the_same_bits(isa: str) -> None:
    for a, b in zip(layers(NaiveOps()), layers(CpuOps(native(isa, 2))), strict=True):
        assert same_bits(a, b)
