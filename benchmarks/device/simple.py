"""The small operations on a device: bits against the CPU at real sizes, then microseconds of each inside a graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from timing import each_us

from kernels.product_data import weight
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.device import Device, Kernel
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.native import Native
from strata.kernels.ops import Ops
from strata.kernels.views import NgramHash, PagedPlane, Rows

Place = Callable[[torch.Tensor], torch.Tensor]
Case = Callable[[Ops, Place], tuple[torch.Tensor, ...]]

HIDDEN, HEADS, HEAD, STREAMS = 2560, 32, 128, 4
ROWS = (1, 3, 32, 500)
HASHING = NgramHash(((1 << 40) + 7, 31, 1 << 33), (100003,) * 8 + (1000003,) * 8, tuple(range(0, 1600, 100)), 2)


def normal(seed: int, *shape: int) -> torch.Tensor:
    """The same values wherever they are used."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    x.view(-1)[seed % x.numel()] = float("inf") if seed % 7 == 0 else 0.0
    return x


def integers(seed: int, most: int, *shape: int) -> torch.Tensor:
    """int32 below `most`."""
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)


def written(ops: Ops, place: Place, rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """cache_write into an empty plane: its data and scales."""
    table = torch.arange(64, dtype=torch.int32).view(4, 16)
    data = place(torch.zeros(64, 4, 64, HEAD, dtype=dtype))
    scales = place(torch.zeros(64, 4, 64, HEAD // 32)) if dtype is torch.int8 else None
    # One entry for each row: two rows at one entry would depend on their order.
    at = torch.arange(rows, dtype=torch.int32)
    plane = PagedPlane(data, place(table), scales)
    ops.cache_write(plane, place(at % 4), place(at // 4 * 3 - 1), place(normal(3, rows, 4, HEAD)))
    return (data,) if scales is None else (data, scales)


def pooled(ops: Ops, place: Place, rows: int) -> tuple[torch.Tensor, ...]:
    """pool_blocks of blocks of four, some of them -1."""
    plane = PagedPlane(place(normal(1, 64, 64, HEAD)), place(torch.arange(64, dtype=torch.int32).view(4, 16)))
    return (ops.pool_blocks(plane, place(integers(2, 4, rows)), place(integers(3, 257, rows) - 1), 4),)


def hashed(ops: Ops, place: Place, rows: int) -> tuple[torch.Tensor, ...]:
    """ngram_rows of rows all over four slots."""
    tokens = integers(4, 150_000, 4, 4096).to(torch.int64)
    where = Rows(
        place(integers(5, 4, rows)), place(integers(6, 4096, rows)), place(torch.zeros(1, 3, dtype=torch.int32))
    )
    return (ops.ngram_rows(place(tokens), where, HASHING),)


def cases(rows: int) -> dict[str, Case]:
    """Every operation with inputs of `rows` rows."""
    frequencies = 1e7 ** (-torch.arange(32).double() / 32)
    wide = STREAMS * HIDDEN

    def x(place: Place, seed: int = 1, width: int = HIDDEN) -> torch.Tensor:
        return place(normal(seed, rows, width))

    made: dict[str, Case] = {
        "add": lambda o, p: (o.add(x(p), x(p, 7)),),
        "divide": lambda o, p: (o.divide(x(p), 3.0),),
        "multiply": lambda o, p: (o.multiply(x(p), 0.1),),
        "gate": lambda o, p: (o.gate("silu", x(p), x(p, 7)),),
        "signed_root": lambda o, p: (o.signed_root(x(p), 1e-6),),
        "delta_rates": lambda o, p: o.delta_rates(x(p, 1, 32), x(p, 2, 32), p(-normal(3, 32).abs()), p(normal(4, 32))),
        "spread": lambda o, p: (o.spread(x(p, 1, STREAMS), x(p)),),
        "rms_norm": lambda o, p: (o.rms_norm(x(p), p(normal(2, HIDDEN)), 1e-6, HIDDEN),),
        "rms_norm of heads": lambda o, p: (
            o.rms_norm(p(normal(1, rows, HEADS, HEAD)), p(normal(2, HEAD)), 1e-6, HEAD),
        ),
        "l2_norm": lambda o, p: (o.l2_norm(p(normal(1, rows, 16, HEAD)), 1e-6, 0.5),),
        "row_dot": lambda o, p: (o.row_dot(x(p), x(p, 2)),),
        "rope": lambda o, p: (
            o.rope(
                p(normal(1, rows, HEADS, HEAD)), *o.rope_angles(p(integers(8, 1 << 20, rows)), frequencies), "halves"
            ),
        ),
        "rope_angles": lambda o, p: o.rope_angles(p(integers(8, 1 << 20, rows)), frequencies),
        "stream_mix": lambda o, p: (o.stream_mix(x(p, 1, wide), x(p, 7, wide), STREAMS),),
        "stream_add": lambda o, p: (o.stream_add(x(p, 1, wide), x(p, 7), x(p, 2, STREAMS), STREAMS, 2.0),),
        "join": lambda o, p: (o.join([p(normal(1, rows, 8, 96))[:, :, :64], x(p, 2, 512)]),),
        "take_rows": lambda o, p: (o.take_rows(x(p), p(integers(2, rows, 2 * rows))),),
        "completed_blocks": lambda o, p: o.completed_blocks(p(integers(3, 1 << 20, rows)), 4),
        "ngram_rows": lambda o, p: hashed(o, p, rows),
        "cache_write f32": lambda o, p: written(o, p, rows, torch.float32),
        "cache_write bf16": lambda o, p: written(o, p, rows, torch.bfloat16),
        "cache_write int8": lambda o, p: written(o, p, rows, torch.int8),
        "pool_blocks": lambda o, p: pooled(o, p, rows),
    }
    for name in ("Q8_0", "Q4_K", "IQ3_S", "BF16"):
        table = weight(name, 1000, HIDDEN, np.random.default_rng(1))
        made[f"embed {name}"] = lambda o, p, table=table: (
            o.embed(p(integers(4, 1000, rows).to(torch.int64)), [table]),
        )
    for kind in ("silu", "sigmoid", "softplus", "exp"):
        made[f"activate {kind}"] = lambda o, p, kind=kind: (o.activate(kind, x(p), 3.0, 0.3),)
    return made


def differing(found: torch.Tensor, expected: torch.Tensor) -> int:
    """Values whose bits differ; a NaN equals a NaN."""
    a, b = found.cpu(), expected.cpu()
    if a.shape != b.shape or a.dtype != b.dtype:
        return max(a.numel(), 1)
    if not a.is_floating_point():
        return int((a != b).sum())
    words = torch.int16 if a.element_size() == 2 else torch.int32
    return int(((a.view(words) != b.view(words)) & ~(a.isnan() & b.isnan())).sum())


def run(device: Device, out: dict[str, Any]) -> None:
    """Compares and times; RuntimeError naming the operations that differ."""
    cpu, gpu = CpuOps(Native()), GpuOps(device)
    wrong: dict[str, int] = {}
    for rows in ROWS:
        for name, case in cases(rows).items():
            expected = case(cpu, lambda t: t)
            found = case(gpu, lambda t: t.to(device.torch_device))
            bad = sum(differing(a, b) for a, b in zip(found, expected, strict=True))
            if bad:
                wrong[f"{name}, {rows} rows"] = bad
    out["checked"] = f"{len(cases(1))} operations at {ROWS} rows"
    out["differing"] = wrong
    broken = gpu.add(torch.ones(8, device=device.torch_device), torch.ones(8, device=device.torch_device))
    out["a changed bit shows"] = (
        differing(broken, torch.full((8,), 2.0).index_fill(0, torch.tensor([3]), 2.0000002)) == 1
    )
    if device.torch_device.type == "cuda":
        out["us in a graph"] = {rows: times(gpu, rows) for rows in (1, 8)}
        out["us of an empty kernel"] = each_us(
            lambda: device.launch(Kernel("probe", "probe_half_barrier"), (1, 1, 1), 32, 0, 32)
        )
    if wrong:
        raise RuntimeError(f"bits differ: {wrong}")


def times(gpu: GpuOps, rows: int) -> dict[str, float]:
    """Microseconds of each operation, its inputs on the device."""
    known: dict[int, torch.Tensor] = {}
    found = {}
    for name, case in cases(rows).items():
        counter = iter(range(1000))
        known.clear()

        def place(tensor: torch.Tensor) -> torch.Tensor:
            # The same inputs in the same order whenever the case runs: copies cannot be captured.
            number = next(counter)  # noqa: B023
            if number not in known:
                known[number] = tensor.to(gpu.device.torch_device)
            return known[number]

        def once(case: Case = case) -> None:
            nonlocal counter
            counter = iter(range(1000))
            case(gpu, place)

        found[name] = round(each_us(once, 50), 2)
    return found
