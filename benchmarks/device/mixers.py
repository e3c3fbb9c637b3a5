"""Attention, delta rule, convolution, router and sampler: the CPU's bits at real sizes, then times."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from timing import each_us

from strata.kernels.attention import gpu as attention_gpu
from strata.kernels.choose import gpu as choose_gpu
from strata.kernels.choose import naive as choose_naive
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.cubins import cached
from strata.kernels.device import Kernel
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.native import Native
from strata.kernels.views import KvType, PagedPlane, Rows

PAGE = 64
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}
MEMORY_GBS = 4450.0
"""What an H200's memory gives a reader."""
SHAPES = {"32/4 x 128": (32, 4, 128), "16/2 x 256": (16, 2, 256)}
TYPES: tuple[KvType, ...] = ("f32", "bf16", "int8")


class Names:
    """Stands in for a device to learn which units an operation asks for."""

    def __init__(self, device: Any) -> None:
        self.torch_device, self.processors = device.torch_device, device.processors
        self.units: set[str] = set()

    def launch(self, kernel: Kernel, *_: object) -> None:
        self.units.add(kernel.unit)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self.torch_device)


def rows_of(segments: Sequence[tuple[int, int, int]]) -> Rows:
    """Rows of (slot, first position, number) runs, on the host."""
    slot = [s for s, _, n in segments for _ in range(n)]
    position = [p + i for _, p, n in segments for i in range(n)]
    starts = [sum(n for _, _, n in segments[:i]) for i in range(len(segments))]
    runs = [(s, first, n) for (s, _, n), first in zip(segments, starts, strict=True)]
    return Rows(*(torch.tensor(x, dtype=torch.int32) for x in (slot, position, runs)))


def rows_to(device: Any, rows: Rows) -> Rows:
    return Rows(*(x.to(device.torch_device) for x in (rows.slot, rows.position, rows.segments)))


def plane_of(
    kv_heads: int, dim: int, slots: int, context: int, kv_type: KvType, generator: torch.Generator
) -> PagedPlane:
    """Random entries on shuffled pages, on the host."""
    per_slot = context // PAGE
    table = torch.randperm(slots * per_slot, generator=generator).to(torch.int32).reshape(slots, per_slot)
    x = torch.randn(slots * per_slot, kv_heads, PAGE, dim, generator=generator)
    if kv_type == "int8":
        scales = 0.01 + 0.02 * torch.rand(*x.shape[:-1], dim // 32, generator=generator)
        return PagedPlane((30 * x).clamp(-127, 127).to(torch.int8), table, scales)
    return PagedPlane(x.to(DTYPES[kv_type]), table)


def plane_to(device: Any, plane: PagedPlane) -> PagedPlane:
    scales = None if plane.scales is None else plane.scales.to(device.torch_device)
    return PagedPlane(plane.data.to(device.torch_device), plane.table.to(device.torch_device), scales)


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.cpu().contiguous().view(torch.int32), b.cpu().contiguous().view(torch.int32))


def compile_all(device: Any, calls: Sequence[Callable[[Any], object]]) -> int:
    """Compiles what the calls will ask for, on all cores; the number of units."""
    names = Names(device)
    for call in calls:
        call(names)
    from strata.kernels import nvrtc  # noqa: PLC0415 - the emulator has none

    def one(unit: str) -> None:
        wanted = (unit, device.architecture, *device.shared.defines)
        cached(device.cache, nvrtc.key(*wanted), lambda: nvrtc.compile_unit(*wanted)[0])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, sorted(names.units)))
    return len(names.units)


def check_attention(device: Any, cpu: CpuOps, out: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(1)
    for name, (heads, kv_heads, dim) in SHAPES.items():
        for kv_type in TYPES:
            keys, values = (plane_of(kv_heads, dim, 2, 2048, kv_type, generator) for _ in range(2))
            for segments in ([(0, 1500, 1)], [(1, 700, 4)], [(0, 2000, 7), (1, 255, 1)], [(0, 900, 90), (1, 0, 30)]):
                rows = rows_of(segments)
                q = torch.randn(len(rows.slot), heads, dim, generator=generator)
                expected = cpu.attention(q, keys, values, rows, dim**-0.5)
                found = attention_gpu.attention(
                    device, q.to(device.torch_device), plane_to(device, keys), plane_to(device, values),
                    rows_to(device, rows), dim**-0.5,
                )  # fmt: skip
                out[f"{name} {kv_type} {len(rows.slot)} rows"] = equal(found, expected)


def attention_of(device: Any, q: torch.Tensor, planes: list[tuple[PagedPlane, ...]], rows: Rows) -> Callable[[], None]:
    """Attention over one pair of planes after the other."""
    turn = itertools.cycle(planes)

    def work() -> None:
        keys, values = next(turn)
        attention_gpu.attention(device, q, keys, values, rows, q.shape[-1] ** -0.5)

    return work


def time_attention(device: Any, out: dict[str, Any], context: int = 32768) -> None:
    """us and the share of the memory limit; the cache holds `context` positions, copies rotate beyond the L2 cache."""
    generator = torch.Generator().manual_seed(2)
    for name, (heads, kv_heads, dim) in SHAPES.items():
        for kv_type in TYPES:
            host = [plane_of(kv_heads, dim, 1, context, kv_type, generator) for _ in range(2)]
            planes = [tuple(plane_to(device, p) for p in host) for _ in range(4)]
            for length in (1024, 4096, 16384):
                for count in (1, 4, 8):
                    rows = rows_to(device, rows_of([(0, length - count, count)]))
                    q = torch.randn(count, heads, dim, device=device.torch_device)
                    us = each_us(attention_of(device, q, planes, rows), 24)
                    entry = dim * {"f32": 4, "bf16": 2, "int8": 1}[kv_type] + (dim // 8 if kv_type == "int8" else 0)
                    share = 2 * length * kv_heads * entry / (us * 1e3) / MEMORY_GBS
                    out[f"{name} {kv_type} {length} T={count}"] = {"us": round(us, 2), "share": round(share, 3)}


def prompt_attention(device: Any, out: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(3)
    for name, (heads, kv_heads, dim) in SHAPES.items():
        keys, values = (plane_to(device, plane_of(kv_heads, dim, 1, 8192, "f32", generator)) for _ in range(2))
        rows, q = rows_to(device, rows_of([(0, 2048, 2048)])), torch.randn(2048, heads, dim, device=device.torch_device)
        us = each_us(lambda: attention_gpu.attention(device, q, keys, values, rows, 0.1), 2)  # noqa: B023
        out[f"{name} 2048 rows after 2048"] = {"us": us, "us per row": us / 2048}


def delta(device: Any, cpu: CpuOps, out: dict[str, Any]) -> None:
    gpu = GpuOps(device)
    for name, value_heads in {"next-80b 16/32": 32, "flash-next 16/48": 48}.items():
        width = 2 * 16 * 128 + value_heads * 128
        for segments in (
            [(0, 0, 1)],
            [(1, 0, 4)],
            [(0, 0, 1), (1, 5, 1), (2, 0, 3), (3, 0, 1)],
            [(2, 0, 130), (0, 1, 3)],
            [(0, 0, 2048)],
        ):
            rows = rows_of(segments)
            count = len(rows.slot)
            host = [torch.randn(count, width), torch.rand(count, value_heads), torch.rand(count, value_heads)]
            state = torch.randn(4, value_heads, 128, 128)
            there = [x.to(device.torch_device) for x in (*host, state)]
            found = gpu.delta_rule(*there, rows_to(device, rows), 16, "grouped", 1e-6)
            same = "not compared"
            if count < 1000:
                expected = cpu.delta_rule(*host, state, rows, 16, "grouped", 1e-6)
                same = str(equal(found, expected) and equal(there[3], state))
            at = rows_to(device, rows)
            us = each_us(lambda: gpu.delta_rule(*there, at, 16, "grouped", 1e-6), 24 if count < 1000 else 2)  # noqa: B023
            out[f"{name} {count} rows {len(segments)} slots"] = {"equal": same, "us": round(us, 2)}


def conv_and_route(device: Any, cpu: CpuOps, out: dict[str, Any]) -> None:
    gpu, where = GpuOps(device), device.torch_device
    for count in (1, 8, 300):
        rows, x = rows_of([(1, 0, count)]), torch.randn(count, 8192)
        weight, history = torch.randn(8192, 4), torch.randn(2, 3, 8192)
        there, past, at = x.to(where), history.to(where), rows_to(device, rows)
        w = weight.to(where)
        found, expected = gpu.causal_conv(there, w, past, at, 1), cpu.causal_conv(x, weight, history, rows, 1)
        same = equal(found, expected) and equal(past, history)
        us = each_us(lambda: gpu.causal_conv(there, w, past, at, 1))  # noqa: B023
        out[f"conv {count} rows"] = {"equal": same, "us": round(us, 2)}
    for count in (1, 8, 2048):
        logits = torch.randn(count, 512)
        there = logits.to(where)
        found, expected = gpu.route(there, 10, True), cpu.route(logits, 10, True)
        same = equal(found[0], expected[0]) and equal(found[1], expected[1])
        us = each_us(lambda: gpu.route(there, 10, True))  # noqa: B023
        out[f"route 512 {count} rows"] = {"equal": same, "us": round(us, 2)}


def select(device: Any, cpu: CpuOps, out: dict[str, Any]) -> None:
    gpu, generator = GpuOps(device), torch.Generator().manual_seed(4)
    ratio, budget, heads, kv_heads = 16, 128, 24, 2
    block_keys = plane_of(1, 128, 1, 32768, "f32", generator)
    block_keys = replace(block_keys, data=block_keys.data[:, 0].reshape(-1, 4, 128).contiguous()[:512])
    keys, values = (plane_of(kv_heads, 256, 1, 32768, "f32", generator) for _ in range(2))
    for count, check in ((1, True), (8, True), (100, True), (2048, False)):
        rows = rows_of([(0, 6000, count)])
        q, x = torch.randn(count, 4, 128, generator=generator), torch.randn(count, heads, 256, generator=generator)
        at, there, queries = rows_to(device, rows), [plane_to(device, p) for p in (block_keys, keys, values)], (
            q.to(device.torch_device), x.to(device.torch_device))  # fmt: skip
        listed = gpu.select_blocks(queries[0], there[0], at, ratio, budget)
        result = gpu.sparse_attention(queries[1], there[1], there[2], at, 0.1, *listed)
        same = "not compared"
        if check:
            expected = cpu.select_blocks(q, block_keys, rows, ratio, budget)
            attended = cpu.sparse_attention(x, keys, values, rows, 0.1, *expected)
            same = str([equal(listed[0], expected[0]), equal(listed[1], expected[1]), equal(result, attended)])
        repeats = 16 if count < 1000 else 2
        choose = each_us(lambda: gpu.select_blocks(queries[0], there[0], at, ratio, budget), repeats)  # noqa: B023
        attend = each_us(lambda: gpu.sparse_attention(queries[1], there[1], there[2], at, 0.1, *listed), repeats)  # noqa: B023
        out[f"{count} rows at 6000"] = {"equal": same, "select us": round(choose, 2), "attend us": round(attend, 2)}


def sampler(device: Any, out: dict[str, Any]) -> None:
    wishes = {
        "greedy": (0.0, 0, 1.0, 0.0),
        "plain": (1.0, 0, 1.0, 0.0),
        "usual": (0.7, 20, 0.8, 0.05),
        "top-p": (1.0, 0, 0.95, 0.0),
    }
    for count in (151936, 248320):
        for rows in (1, 8):
            logits = 4.0 * torch.randn(rows, count)
            there = logits.to(device.torch_device)
            for name, wish in wishes.items():
                draws = choose_gpu.draw_rows(device, rows)
                marks = torch.rand(rows, dtype=torch.float64)
                draws.uniform.copy_(marks)
                for tensor, value in zip((draws.temperature, draws.top_k, draws.top_p, draws.min_p), wish, strict=True):
                    tensor.fill_(value)
                tokens = choose_gpu.draw(device, there, draws).tolist()
                if wish[0]:
                    expected = [
                        choose_naive.choose(row, *wish, float(m)) for row, m in zip(logits[:2], marks, strict=False)
                    ]
                else:
                    expected = logits.argmax(1).tolist()
                us = each_us(lambda: choose_gpu.draw(device, there, draws), 10)  # noqa: B023
                out[f"{count} x {rows} {name}"] = {"equal": tokens[: len(expected)] == expected, "us": round(us, 1)}


def run(device: Any, out: dict[str, Any]) -> None:
    """See all.py."""
    cpu = CpuOps(Native())
    compile_attention(device, out)
    for name, topic in {
        "attention equal": lambda found: check_attention(device, cpu, found),
        "sampler": lambda found: sampler(device, found),
        "delta rule": lambda found: delta(device, cpu, found),
        "select": lambda found: select(device, cpu, found),
        "attention": lambda found: time_attention(device, found),
        "prompt attention": lambda found: prompt_attention(device, found),
        "conv and route": lambda found: conv_and_route(device, cpu, found),
    }.items():
        out[name] = {}
        topic(out[name])


def compile_attention(device: Any, out: dict[str, Any]) -> None:
    generator, calls = torch.Generator(), []
    for heads, kv_heads, dim in SHAPES.values():
        for kv_type in TYPES:
            plane = plane_to(device, plane_of(kv_heads, dim, 2, 64, kv_type, generator))
            for count in (1, 4, 8, 120):
                rows = rows_to(device, rows_of([(0, 0, count)]))
                q = torch.empty(count, heads, dim, device=device.torch_device)
                calls.append(lambda d, q=q, p=plane, r=rows: attention_gpu.attention(d, q, p, p, r, 0.1))
    out["units compiled"] = compile_all(device, calls)
