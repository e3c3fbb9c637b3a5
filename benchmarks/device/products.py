"""The quantised products on a device: bits of every format at real sizes, then rates.

Dense: GB/s of weights for 1 .. 32 rows, over more than 500 MB of distinct matrices. Experts: microseconds of a grouped
call in the shape of Flash-Next (hidden 2560, width 640, 10 of many experts), likewise, and of each of its parts.
"""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from strata.kernels.cpu_ops import CpuOps
from strata.kernels.device import Device, Kernel
from strata.kernels.experts import gpu as experts_gpu
from strata.kernels.experts import launch as expert_launch
from strata.kernels.experts.table import ExpertTable, table_of
from strata.kernels.linear import gpu as linear_gpu
from strata.kernels.linear import launch
from strata.kernels.native import FORMAT_CODES, Native
from strata.kernels.views import ExpertBank, Weight
from strata.quant.formats import FORMATS

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from timing import graph_us

from kernels.product_data import activations, differing, weight

HIDDEN, WIDTH, TOP_K = 2560, 640, 10
DISTINCT_BYTES = 600_000_000
"""More than ten times the second-level cache."""
LIMIT_GBS = 4450.0
"""Device memory read of the card (gpu.md 1)."""
DENSE = ("Q8_0", "Q4_0", "IQ4_NL", "Q4_K", "Q5_K", "Q6_K", "IQ3_S", "IQ2_XS", "MXFP4", "NVFP4", "BF16", "FP8")
EXPERTS = (("Q8_0", "Q8_0"), ("IQ4_NL", "IQ4_NL"), ("Q4_K", "IQ4_NL"), ("IQ3_S", "IQ4_NL"))
"""Formats of gate and up, and of down."""


def on_device(device: Device, x: torch.Tensor) -> torch.Tensor:
    return x.to(device.torch_device)


def copies(device: Device, w: Weight, count: int) -> list[Weight]:
    """The same weight at `count` places of the device's memory."""
    return [replace(w, planes=tuple(p.to(device.torch_device, copy=True) for p in w.planes)) for _ in range(count)]


def weight_bytes(w: Weight) -> int:
    return sum(p.numel() * p.element_size() for p in w.planes)


def compile_units(device: Device) -> None:
    """Every format's kernels at once: one after the other they would take minutes."""
    if device.torch_device.type != "cuda":
        return
    kernels = [Kernel(launch.unit(FORMATS[name]), "linear_1") for name in FORMAT_CODES]
    kernels += [Kernel(expert_launch.unit(FORMATS[name]), "one_matrix_1") for name in FORMAT_CODES]
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(device.function, kernels))  # type: ignore[attr-defined]


def check_dense(device: Device, cpu: CpuOps) -> dict[str, int]:
    """Values whose bits differ from the CPU's, by format; over several sizes and numbers of rows."""
    wrong = {}
    for name in FORMAT_CODES:
        rng = np.random.default_rng(FORMAT_CODES[name])
        wrong[name] = 0
        for rows, cols, counts in ((517, 2560, (1, 2, 3, 8, 33)), (129, 768, (1, 5)), (70, 6144, (1, 4))):
            w, x = weight(name, rows, cols, rng), activations(max(counts), cols, rng)
            (expected,) = cpu.linear(x, [w])
            for count in counts:
                (got,) = linear_gpu.linear(device, on_device(device, x[:count]), [w])
                wrong[name] += differing(got.cpu(), expected[:count])
    return wrong


def small_bank(rng: np.random.Generator, gate: str, down: str, count: int) -> ExpertBank:
    ups = [weight(gate, WIDTH, HIDDEN, rng) for _ in range(2 * count)]
    downs = [weight(down, HIDDEN, WIDTH, rng, scale=0.01) for _ in range(count)]
    return ExpertBank(tuple(ups[:count]), tuple(ups[count:]), tuple(downs))


def check_experts(device: Device, cpu: CpuOps, formats: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The same for experts, by the formats of gate and up, and of down."""
    wrong = {}
    for gate, down in formats:
        rng = np.random.default_rng(3)
        bank = small_bank(rng, gate, down, 12)
        table = table_of(device, bank)
        wrong[f"{gate}+{down}"] = 0
        for rows in (1, 2, 8, 32, 33):
            x = activations(rows, HIDDEN, rng) * 0.01
            ids = torch.from_numpy(np.stack([rng.permutation(12)[:TOP_K] for _ in range(rows)]).astype(np.int32))
            factors = torch.from_numpy(rng.random((rows, TOP_K)).astype(np.float32))
            expected = cpu.experts(x, ids, factors, bank)
            got = experts_gpu.experts(device, *(on_device(device, t) for t in (x, ids, factors)), table)
            wrong[f"{gate}+{down}"] += differing(got.cpu(), expected)
    return wrong


def dense_rates(device: Device, name: str) -> dict[str, Any]:
    """GB/s of weights by rows of x, the products alone."""
    rng = np.random.default_rng(1)
    w = weight(name, 4096, HIDDEN, rng)
    ws = copies(device, w, max(2, DISTINCT_BYTES // weight_bytes(w)))
    found: dict[str, Any] = {}
    for rows in (1, 2, 4, 8, 32):
        inputs = launch.quantise(device, on_device(device, activations(rows, HIDDEN, rng)), {w.format})
        us = graph_us(lambda inputs=inputs: [linear_gpu.of_format(device, inputs, w.format, [one]) for one in ws])
        rate = weight_bytes(w) * len(ws) / us / 1e3
        found[str(rows)] = {"us": us / len(ws), "gbs": rate, "share": rate / LIMIT_GBS}
    return found


def routings(device: Device, experts: int, rows: int) -> list[torch.Tensor]:
    """Choices of different experts, one call after the other through all of them."""
    rng = np.random.default_rng(5)
    order, each = rng.permutation(experts).astype(np.int32), rows * TOP_K
    chosen = [order[i : i + each].reshape(rows, TOP_K) for i in range(0, experts - each + 1, each)]
    return [on_device(device, torch.from_numpy(ids)) for ids in chosen]


def expert_rates(device: Device, gate: str, down: str) -> dict[str, Any]:
    """Microseconds of a call by rows (each with its own experts), of its parts for one row, and shares of the limit."""
    rng = np.random.default_rng(2)
    one = small_bank(rng, gate, down, 1)
    kinds = [one.gate[0], one.up[0], one.down[0]]
    expert_bytes = sum(weight_bytes(w) for w in kinds)
    count = max(160, DISTINCT_BYTES // expert_bytes)
    bank = ExpertBank(*(tuple(copies(device, w, count)) for w in kinds))  # the table holds its addresses only
    table = table_of(device, bank)
    found: dict[str, Any] = {"expert_bytes": expert_bytes}
    for rows in (1, 2, 4, 8):
        x = on_device(device, activations(rows, HIDDEN, rng) * 0.01)
        factors = on_device(device, torch.from_numpy(rng.random((rows, TOP_K)).astype(np.float32)))
        ids = routings(device, count, rows)

        def calls(x: torch.Tensor = x, ids: list[torch.Tensor] = ids, factors: torch.Tensor = factors) -> None:
            for i in ids:
                experts_gpu.experts(device, x, i, factors, table)

        us = graph_us(calls) / len(ids)
        least = rows * TOP_K * expert_bytes / LIMIT_GBS / 1e3
        found[str(rows)] = {"us": us, "limit_us": least, "share": least / us}
        if rows in (1, 8):
            found[f"parts of {rows}"] = parts(device, x, ids, factors, table)
    del bank
    return found


def parts(
    device: Device, x: torch.Tensor, ids: list[torch.Tensor], factors: torch.Tensor, table: ExpertTable
) -> dict[str, float]:
    """Microseconds of each launch of a call, by itself."""
    down = table.formats[2]
    groups = [experts_gpu.group(device, x, i, table) for i in ids]
    h = experts_gpu.middle_of(device, groups[0], table)
    results = device.empty(len(x), TOP_K, HIDDEN)
    y = device.empty(len(x), HIDDEN)
    cases: dict[str, Callable[[int], object]] = {
        "group": lambda i: experts_gpu.group(device, x, ids[i], table),
        "gate_up": lambda i: experts_gpu.middle_of(device, groups[i], table),
        "down": lambda i: experts_gpu.down_codes(device, h, groups[i], table, down[0], results),
        "combine": lambda _: experts_gpu.combine(device, results, factors, y),
    }
    return {
        name: graph_us(lambda case=case: [case(i) for i in range(len(ids))]) / len(ids) for name, case in cases.items()
    }


def run(device: Device, out: dict[str, Any]) -> None:
    """Differing values by format, then rates; on the emulator the bits alone."""
    cpu = CpuOps(Native())
    compile_units(device)
    out["differing_dense"] = check_dense(device, cpu)
    out["differing_experts"] = check_experts(device, cpu, (*EXPERTS, ("Q4_K", "Q5_0"), ("BF16", "F16")))
    if device.torch_device.type != "cuda":
        return
    out["experts"] = {}
    for gate, down in EXPERTS:
        out["experts"][f"{gate}+{down}"] = expert_rates(device, gate, down)
    out["groups"] = sweep(device)
    out["dense"] = {}
    for name in DENSE:
        out["dense"][name] = dense_rates(device, name)


def sweep(device: Device) -> dict[str, Any]:
    """Rates with other numbers of groups of lanes."""
    found, usual = {}, launch.MOST_GROUPS
    for groups in (8, 12, 14):
        launch.MOST_GROUPS = groups
        found[str(groups)] = {
            "IQ3_S+IQ4_NL": expert_rates(device, "IQ3_S", "IQ4_NL"),
            "Q8_0": dense_rates(device, "Q8_0"),
            "Q4_K": dense_rates(device, "Q4_K"),
        }
    launch.MOST_GROUPS = usual
    return found
