"""Operations on the rows of a prompt: bits against the CPU, then times at 8,192 rows in the shape of Flash-Next.

Products are counted as two operations for a weight and a row, whatever the hardware does for them.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mixers import plane_of, plane_to, rows_of, rows_to
from products import HIDDEN, TOP_K, WIDTH, copies, on_device, small_bank
from timing import graph_us

from strata.kernels.cpu_ops import CpuOps
from strata.kernels.delta_rule import gpu as delta_gpu
from strata.kernels.delta_rule import prompt as delta_prompt
from strata.kernels.device import Device
from strata.kernels.experts import gpu as experts_gpu
from strata.kernels.experts import prompt as experts_prompt
from strata.kernels.experts.table import ExpertTable, table_of
from strata.kernels.linear import prompt as linear_prompt
from strata.kernels.native import FORMAT_CODES, Native
from strata.kernels.sparse_attention import gpu as sparse_gpu
from strata.kernels.sparse_attention import prompt as sparse_prompt
from strata.kernels.views import ExpertBank, PagedPlane

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from kernels.product_data import activations, differing, weight

ROWS, EXPERTS = 8192, 512
CHECKED = ("Q8_0", "Q4_K", "Q6_K", "Q2_K", "IQ3_S", "IQ4_NL", "NVFP4", "IQ1_M", "F32", "BF16")
"""Both numbers of values per scale, with and without minima."""
DENSE = (
    ("Q8_0", 10240, 2560),
    ("Q4_K", 10240, 2560),
    ("Q6_K", 10240, 2560),
    ("Q8_0", 2560, 6144),
    ("Q8_0", 320, 10240),
    ("Q8_0", 10240, 320),
    ("F32", 512, 2560),
    ("BF16", 320, 10240),
    ("BF16", 10240, 320),
)
"""Format, rows and columns of matrices of the model."""
BANKS = (("IQ3_S", "IQ4_NL"), ("Q4_K", "Q8_0"))


def check_dense(device: Device, cpu: CpuOps) -> dict[str, int]:
    """Values whose bits differ from the CPU's, by format."""
    wrong = {}
    for name in CHECKED:
        rng = np.random.default_rng(FORMAT_CODES[name])
        wrong[name] = 0
        for rows, cols, count in ((517, 2560, 200), (129, 768, 33)):
            w, x = weight(name, rows, cols, rng), activations(count, cols, rng)
            (expected,) = cpu.linear(x, [w])
            (got,) = linear_prompt.linear(device, on_device(device, x), [w])
            wrong[name] += differing(got.cpu(), expected)
    return wrong


def check_experts(device: Device, cpu: CpuOps) -> dict[str, int]:
    """The same for experts, whose tiles are full, half full and empty."""
    wrong = {}
    for gate, down in BANKS:
        rng = np.random.default_rng(3)
        bank = small_bank(rng, gate, down, 12)
        x = activations(300, HIDDEN, rng) * 0.01
        ids = torch.from_numpy(np.stack([rng.permutation(11)[:TOP_K] for _ in range(300)]).astype(np.int32))
        factors = torch.from_numpy(rng.random((300, TOP_K)).astype(np.float32))
        table = table_of(device, bank)
        there = [on_device(device, t) for t in (x, ids, factors)]
        got = experts_prompt.experts(device, there[0], there[1], there[2], table)
        wrong[f"{gate}+{down}"] = differing(got.cpu(), cpu.experts(x, ids, factors, bank))
    return wrong


def figure(us: float, products: float) -> dict[str, float]:
    """Milliseconds and 10^12 operations a second."""
    return {"ms": us / 1e3, "tops": 2 * products / us / 1e6}


def time_dense(device: Device, out: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    for name, rows, cols in DENSE:
        w = weight(name, rows, cols, rng)
        x = torch.randn(ROWS, cols, device=device.torch_device)
        us = graph_us(lambda: linear_prompt.linear(device, x, [w]), 5)  # noqa: B023
        found = out[f"{name} {rows} x {cols}"] = figure(us, ROWS * rows * cols)
        if w.format.kind == "codes":
            found["quantise ms"] = graph_us(lambda: linear_prompt.quantise(device, x, {w.format}), 5) / 1e3  # noqa: B023
            found["unpack ms"] = graph_us(lambda: linear_prompt.unpack(device, w), 5) / 1e3  # noqa: B023


def delta(device: Device, cpu: CpuOps, out: dict[str, Any]) -> None:
    """The delta rule of 48 heads: bits, then 8,192 rows in both forms."""
    heads, width = 48, 2 * 16 * 128 + 48 * 128
    for segments in ([(2, 0, 130), (0, 1, 3)], [(0, 0, ROWS)]):
        rows = rows_of(segments)
        count = len(rows.slot)
        host = [torch.randn(count, width), torch.rand(count, heads), torch.rand(count, heads)]
        state = torch.randn(4, heads, 128, 128)
        there = [x.to(device.torch_device) for x in (*host, state)]
        at = rows_to(device, rows)
        found = delta_prompt.delta_rule(device, there[0], there[1], there[2], there[3], at, 16, "grouped", 1e-6)
        if count < 1000:
            expected = cpu.delta_rule(host[0], host[1], host[2], state, rows, 16, "grouped", 1e-6)
            out["differing"] = differing(found.cpu(), expected) + differing(there[3].cpu(), state)
            continue
        for name, form in {"prompt": delta_prompt, "window": delta_gpu}.items():
            us = graph_us(lambda: form.delta_rule(device, *there, at, 16, "grouped", 1e-6), 3)  # noqa: B023
            out[f"{name} ms"] = us / 1e3


def sparse(device: Device, cpu: CpuOps, out: dict[str, Any]) -> None:
    """Attention of 24 heads over lists of 2,051 positions: bits, then 1,024 rows in both forms."""
    generator = torch.Generator().manual_seed(4)
    keys, values = (plane_of(2, 256, 1, 8192, "f32", generator) for _ in range(2))
    there = [plane_to(device, p) for p in (keys, values)]
    for count in (40, 1024):
        rows, q = rows_of([(0, 7000, count)]), torch.randn(count, 24, 256, generator=generator)
        positions = torch.stack([torch.randperm(7000, generator=generator)[:2051].sort().values for _ in range(count)])
        listed = positions.to(torch.int32), torch.full((count,), 2051, dtype=torch.int32)
        listed[1][:3] = torch.tensor([1, 700, 0])
        at, x, lists = rows_to(device, rows), on_device(device, q), [on_device(device, t) for t in listed]
        found = sparse_prompt.sparse_attention(device, x, there[0], there[1], at, 0.06, lists[0], lists[1])
        if count < 1000:
            expected = cpu.sparse_attention(q, keys, values, rows, 0.06, listed[0], listed[1])
            out["differing"] = differing(found.cpu(), expected)
            continue
        for name, form in {"prompt": sparse_prompt, "window": sparse_gpu}.items():
            us = graph_us(lambda: form.sparse_attention(device, x, there[0], there[1], at, 0.06, lists[0], lists[1]), 3)  # noqa: B023
            out[f"{name} ms for 8,192 rows"] = us / 1e3 * ROWS / count


def select(device: Device, cpu: CpuOps, out: dict[str, Any]) -> None:
    """QSA's choice of 512 of about 1,800 blocks with four heads: choices, then 1,024 rows in both forms."""
    generator = torch.Generator().manual_seed(5)
    keys = PagedPlane(torch.randn(32, 64, 128, generator=generator), torch.arange(32, dtype=torch.int32)[None])
    there = PagedPlane(keys.data.to(device.torch_device), keys.table.to(device.torch_device))
    for count in (41, 1024):
        rows, q = rows_of([(0, 7000, count)]), torch.randn(count, 4, 128, generator=generator)
        at, x = rows_to(device, rows), on_device(device, q)
        found = sparse_prompt.select_blocks(device, x, there, at, 4, 512)
        if count < 1000:
            expected = cpu.select_blocks(q, keys, rows, 4, 512)
            out["differing"] = sum(int((a.cpu() != b).sum()) for a, b in zip(found, expected, strict=True))
            continue
        for name, form in {"prompt": sparse_prompt, "window": sparse_gpu}.items():
            us = graph_us(lambda: form.select_blocks(device, x, there, at, 4, 512), 3)  # noqa: B023
            out[f"{name} ms for 8,192 rows"] = us / 1e3 * ROWS / count


def bank_of(device: Device, gate: str, down: str) -> ExpertBank:
    """As many experts as a layer has, each with bytes of its own."""
    one = small_bank(np.random.default_rng(2), gate, down, 1)
    return ExpertBank(*(tuple(copies(device, w[0], EXPERTS)) for w in (one.gate, one.up, one.down)))


def time_experts(device: Device, out: dict[str, Any]) -> None:
    x = torch.randn(ROWS, HIDDEN, device=device.torch_device)
    ids = torch.rand(ROWS, EXPERTS, device=device.torch_device).topk(TOP_K).indices.to(torch.int32).contiguous()
    factors = torch.rand(ROWS, TOP_K, device=device.torch_device)
    for gate, down in BANKS:
        out[f"{gate}+{down}"] = time_bank(device, x, ids, factors, bank_of(device, gate, down))
        torch.cuda.empty_cache()


def time_bank(
    device: Device, x: torch.Tensor, ids: torch.Tensor, factors: torch.Tensor, bank: ExpertBank
) -> dict[str, Any]:
    """A call as a whole, its parts, and what windows of 32 rows take."""
    table, few = table_of(device, bank), slice(0, 256)
    us = graph_us(lambda: experts_prompt.experts(device, x, ids, factors, table), 5)
    windows = graph_us(lambda: experts_gpu.experts(device, x[few], ids[few], factors[few], table), 3)
    return {
        **figure(us, ROWS * TOP_K * 3 * HIDDEN * WIDTH),
        "parts ms": parts(device, x, ids, factors, table),
        "windows, ms for 8,192 rows": windows / 1e3 * ROWS / 256,
    }


def parts(
    device: Device, x: torch.Tensor, ids: torch.Tensor, factors: torch.Tensor, table: ExpertTable
) -> dict[str, float]:
    """Milliseconds of each part of a call, by itself."""
    gate, _, down = table.formats
    order = experts_prompt.sort(device, ids, table)
    rows = linear_prompt.quantise(device, x, {*gate})
    inputs = experts_prompt.pack(device, rows, order, EXPERTS, TOP_K)
    both = device.empty(2, order.count, WIDTH)
    results = device.empty(ROWS, TOP_K, HIDDEN)
    room = linear_prompt.panels(device, 64, WIDTH, HIDDEN, gate)
    whole = (0, 64)
    experts_prompt.one_matrix(device, inputs, order, table, 0, both[0])
    experts_prompt.one_matrix(device, inputs, order, table, 1, both[1])
    between = experts_prompt.middle_of(device, both, down)
    middle = experts_prompt.pack(device, between, order, EXPERTS, 0)
    y = device.empty(ROWS, HIDDEN)
    cases: dict[str, Callable[[], object]] = {
        "sort": lambda: experts_prompt.sort(device, ids, table),
        "quantise": lambda: linear_prompt.quantise(device, x, {*gate}),
        "pack": lambda: experts_prompt.pack(device, rows, order, EXPERTS, TOP_K),
        "gate": lambda: experts_prompt.one_matrix(device, inputs, order, table, 0, both[0]),
        "unpack gate of 64 experts": lambda: experts_prompt.unpack(
            device, order, table, whole, 0, gate[0], room, WIDTH, HIDDEN
        ),
        "products of gate of 64 experts": lambda: experts_prompt.products(
            device, inputs, order, table, whole, 0, gate[0], room, both[0], -1
        ),
        "middle": lambda: experts_prompt.middle_of(device, both, down),
        "pack the middle": lambda: experts_prompt.pack(device, between, order, EXPERTS, 0),
        "down": lambda: experts_prompt.one_matrix(device, middle, order, table, 2, results),
        "combine": lambda: experts_gpu.combine(device, results, factors, y),
    }
    return {name: graph_us(case, 5) / 1e3 for name, case in cases.items()}


def profile() -> list[str]:
    """What the scheduler waits for in three of the kernels, in ncu's words; nothing without ncu."""
    tool = shutil.which("ncu")
    if tool is None:
        return []
    sections = [word for name in ("WarpStateStats", "ComputeWorkloadAnalysis") for word in ("--section", name)]
    kernels = "regex:prompt_products|prompt_floats|delta_prompt"
    command = [tool, "--clock-control", "none", "--print-details", "all", *sections, "-k", kernels, "-c", "3"]
    script = [sys.executable, str(Path(__file__).parent / "prompts_once.py")]
    try:
        done = subprocess.run([*command, *script], check=False, capture_output=True, text=True, timeout=45)
    except subprocess.TimeoutExpired:
        return ["ncu took more than 45 s"]
    lines = [" ".join(line.split()) for line in (done.stdout + done.stderr).splitlines()]
    return [line for line in lines if line and "----" not in line][-240:]


def run(device: Device, out: dict[str, Any]) -> None:
    """Differing values, then times; on the emulator nothing, its tests have smaller sizes."""
    if device.torch_device.type != "cuda":
        return
    cpu = CpuOps(Native())
    out["differing_dense"] = check_dense(device, cpu)
    out["differing_experts"] = check_experts(device, cpu)
    out["delta"] = {}
    delta(device, cpu, out["delta"])
    out["sparse"] = {}
    sparse(device, cpu, out["sparse"])
    out["select"] = {}
    select(device, cpu, out["select"])
    for name, topic in {"dense": time_dense, "experts": time_experts}.items():
        out[name] = {}
        topic(device, out[name])
    out["profile"] = dict(enumerate(profile()))
