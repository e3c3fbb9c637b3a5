"""Experts in three places on a device, in the shape of Flash-Next (512 experts of 2.33 MB, 10 chosen, 48 layers).

Bits first: a call's experts in VRAM, read over PCIe and computed by the CPU, against the CPU. Then the doorbell, the
rate of PCIe reads in place, a layer's call by (hits, PCIe, CPU), and decoding through all layers behind 12 and 24 GiB
with both routing curves, beside the ideal: hits at device-memory speed, misses at the sum of PCIe and host memory.

The 57 GB of experts share 8 GB of host memory, far more than any cache; what lies in VRAM is apart.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import host_rate

from strata.experts.adaptive import AdaptSettings
from strata.experts.gpu import GpuExperts
from strata.experts.placing import Rates, Sizes, cuda, place_experts
from strata.experts.split import Line, fit_line
from strata.experts.traces import ADVERSE, TYPICAL, Curve, RoutingTrace, generate
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.device import Device
from strata.kernels.native import Native
from strata.kernels.views import ExpertBank, Weight
from strata.quant.formats import FORMATS
from strata.store.blobs import BlobLayout
from strata.store.experts import ExpertStore
from strata.store.pinned import PinnedStore, pinned_memory

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from kernels.product_data import activations, bank_of, differing

HIDDEN, WIDTH, TOP_K, EXPERTS, LAYERS = 2560, 640, 10, 512, 48
GATE, DOWN = FORMATS["IQ3_S"], FORMATS["IQ4_NL"]
POOL_BLOCKS, BLOCK_BYTES = 16, 512 << 20
PIN_BLOCK = 64 << 20
VRAM_GBS, PCIE_GBS = 4450.0, 52.0
"""Measured limits of the card (device memory read; host to device)."""
CHECKED = (("IQ3_S", "IQ4_NL"), ("Q8_0", "Q8_0"), ("Q4_K", "Q5_0"), ("IQ4_NL", "IQ4_NL"), ("BF16", "F16"))
STILL = AdaptSettings(every=0)
LEARNED, TRIED = 500, 150
"""Tokens that say what is resident, and tokens that are decoded."""


def small(device: Device, native: Native, bank: ExpertBank, tiers: str, layers: int = 1) -> GpuExperts:
    """One bank with all experts in one place: "vram", "pcie", "cpu" or "mixed" (a third each)."""
    store = ExpertStore(dict.fromkeys(range(layers), bank))
    pinned = PinnedStore(store, pinned_memory, PIN_BLOCK)
    count, nbytes = len(bank.gate) * layers, pinned.layouts[0].nbytes
    arena = {"vram": count, "pcie": 0, "cpu": 0, "mixed": count // 3}[tiers]
    pin = {"vram": 0, "pcie": count, "cpu": 0, "mixed": 2 * count // 3}[tiers]
    each = PIN_BLOCK // nbytes
    pin_bytes, block = -(-pin // each) * PIN_BLOCK, max(1, arena) * nbytes
    share = 0.5 if tiers == "mixed" else 1.0
    sizes = Sizes(arena * nbytes, 0, pin_bytes, share, adapt=STILL, block_bytes=block)
    return place_experts(device, native, pinned, TOP_K, sizes, cuda(device.torch_device))


def check(device: Device, native: Native) -> dict[str, int]:
    """Values whose bits differ from the CPU's, by formats and place."""
    cpu, found = CpuOps(native), {}
    for gate, down in CHECKED:
        rng = np.random.default_rng(5)
        bank = bank_of(rng, [(gate, gate, down)] * 24, HIDDEN, WIDTH)
        for tiers in ("vram", "pcie", "cpu", "mixed"):
            experts, wrong = small(device, native, bank, tiers), 0
            for rows in (1, 3, 32):
                x = activations(rows, HIDDEN, rng) * 0.01
                ids = torch.from_numpy(np.stack([rng.permutation(24)[:TOP_K] for _ in range(rows)]).astype(np.int32))
                weights = torch.from_numpy(rng.random((rows, TOP_K)).astype(np.float32))
                experts.begin_step(rows)
                y = experts.run(0, *(t.to(device.torch_device) for t in (x, ids, weights)))
                experts.end_step()
                wrong += differing(y.cpu(), cpu.experts(x, ids, weights, bank))
            experts.read_ledger()
            found[f"{gate}+{down} {tiers}"] = wrong
            entries = experts.counters.entries.sum(axis=0)
            if tiers != "mixed" and entries[("vram", "pcie", "cpu").index(tiers)] != entries.sum():
                found[f"{gate}+{down} {tiers}: entries by way {entries.tolist()}"] = 1
            if experts.counters.disagreement():
                found[f"{gate}+{down} {tiers}: {experts.counters.disagreement()}"] = 1
            experts.close()
    return found


def replays(work: Callable[[], Any], count: int) -> list[float]:
    """Seconds of `count` replays of a graph of `work`, each waited for."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    del kept
    return times[len(times) // 4 :]


def doorbell(device: Device, native: Native) -> dict[str, float]:
    """Microseconds that asking the CPU adds to a call, with experts that are next to nothing to compute."""
    rng, calls, found = np.random.default_rng(1), 64, {}
    for tiers in ("vram", "cpu"):
        bank = bank_of(rng, [("Q8_0",) * 3] * 16, 32, 32)
        experts = small(device, native, bank, tiers)
        for k in (1, TOP_K):
            x = torch.ones(1, 32, device=device.torch_device)
            ids = torch.arange(k, dtype=torch.int32, device=device.torch_device)[None]
            weights = torch.ones(1, k, device=device.torch_device)
            times = replays(lambda e=experts, a=x, b=ids, c=weights: [e.run(0, a, b, c) for _ in range(calls)], 41)
            found[f"{tiers} {k}"] = 1e6 * statistics.median(times) / calls
            answers = experts.answerer.drain()
            if answers:
                found[f"cpu {k} computing"] = statistics.median(a.nanoseconds for a in answers) / 1e3
        experts.close()
    found["round trip"] = found["cpu 1"] - found["vram 1"] - found["cpu 1 computing"]
    return found


@dataclass
class Pool:
    """The experts' bytes in pinned host memory, and banks of views of them."""

    pinned: PinnedStore
    layout: BlobLayout


def make_pool(device: Device, layers: int, experts: int) -> Pool:
    """Random codes with small finite scales; many experts share a blob."""
    template = blank()
    layout = BlobLayout.of(ExpertBank(*((w,) for w in template)))
    each = BLOCK_BYTES // layout.nbytes
    blobs: list[torch.Tensor] = []
    for _ in range(POOL_BLOCKS):
        block = pinned_memory(BLOCK_BYTES)
        filled = torch.randint(0, 256, (each, layout.nbytes), dtype=torch.uint8, device=device.torch_device)
        for offset, w in zip(layout.offsets[0::2], template, strict=True):
            blocks = filled[:, offset : offset + w.planes[0].nbytes].unflatten(1, (-1, w.format.block_bytes))
            blocks[:, :, 0], blocks[:, :, 1] = 0, 0x1C
        block[: each * layout.nbytes].copy_(filled.view(-1))
        blobs += list(block[: each * layout.nbytes].view(each, layout.nbytes))
    order = np.random.default_rng(2).permutation(layers * experts) % len(blobs)
    views = [layout.views(template, blob) for blob in blobs]
    banks, owned = {}, {}
    for layer in range(layers):
        mine = [int(i) for i in order[layer * experts : (layer + 1) * experts]]
        banks[layer] = ExpertBank(*(tuple(views[i][part] for i in mine) for part in range(3)))
        owned.update({(layer, e): blobs[i] for e, i in enumerate(mine)})
    pinned = PinnedStore(ExpertStore(banks), pinned_memory)
    pinned.blobs.update(owned)
    return Pool(pinned, layout)


def blank() -> tuple[Weight, Weight, Weight]:
    """An expert's weights; their bytes do not matter."""

    def of(fmt: Any, rows: int, cols: int) -> Weight:
        return Weight(fmt, rows, cols, (torch.zeros(rows, fmt.row_bytes(cols), dtype=torch.uint8),))

    return of(GATE, WIDTH, HIDDEN), of(GATE, WIDTH, HIDDEN), of(DOWN, HIDDEN, WIDTH)


def place_pool(
    device: Device, native: Native, pool: Pool, gib: float, share: float | None, counts: Any, rates: Rates
) -> GpuExperts:
    """All layers behind a budget; what has no frame is read over PCIe or computed by the CPU."""
    sizes = Sizes(int(gib * (1 << 30)), 4 << 30, 0, share, rates, STILL)
    return place_experts(device, native, pool.pinned, TOP_K, sizes, cuda(device.torch_device), counts)


def layer_calls(device: Device, native: Native, pool: Pool, first: Rates) -> tuple[dict[str, Any], Rates]:
    """Microseconds of a layer's call by (hits, PCIe, CPU), rows rotated through the layers; the lines of both sides."""
    counts = np.zeros((LAYERS, EXPERTS))
    counts[:, :64] = 1.0
    found: dict[str, Any] = {}
    x = torch.randn(1, HIDDEN, device=device.torch_device)
    weights = torch.full((1, TOP_K), 0.1, device=device.torch_device)

    def through(experts: GpuExperts, ids: torch.Tensor) -> list[torch.Tensor]:
        return [experts.run(n, x, ids[n : n + 1], weights) for n in range(LAYERS)]

    lines: dict[str, list[tuple[int, float]]] = {"pcie": [], "cpu": []}
    for share in (0.0, 0.5, 1.0):
        experts = place_pool(device, native, pool, LAYERS * 64 * pool.layout.nbytes / (1 << 30), share, counts, first)
        rng = np.random.default_rng(3)
        for misses in (1, 2, 4, 6, 8, 10) if share != 0.5 else (2, 4, 10):
            picked = [
                np.concatenate([rng.permutation(64)[: TOP_K - misses], 64 + rng.permutation(EXPERTS - 64)[:misses]])
                for _ in range(LAYERS)
            ]
            ids = torch.from_numpy(np.stack(picked).astype(np.int32)).to(device.torch_device)
            experts.answerer.drain()
            times = replays(lambda e=experts, i=ids: through(e, i), 13)
            over = round(share * misses)
            per_call = statistics.median(times) / LAYERS
            found[f"{TOP_K - misses} hits {over} pcie {misses - over} cpu"] = round(1e6 * per_call, 2)
            if share == 1.0:
                lines["pcie"].append((misses, per_call))
            answers = experts.answerer.drain()
            if share == 0.0:
                lines["cpu"].append((misses, per_call))
                found[f"cpu {misses} computing"] = round(statistics.median(a.nanoseconds for a in answers) / 1e3, 2)
        if share == 0.0:
            ids = torch.arange(TOP_K, dtype=torch.int32, device=device.torch_device)[None].repeat(LAYERS, 1)
            times = replays(lambda e=experts, i=ids: through(e, i), 13)
            found[f"{TOP_K} hits"] = round(1e6 * statistics.median(times) / LAYERS, 2)
        experts.close()
        torch.cuda.empty_cache()
    cpu, pcie = fit_line(lines["cpu"]), fit_line(lines["pcie"])
    found["pcie GB/s"] = round(pool.layout.nbytes / pcie.each / 1e9, 1)
    found["cpu GB/s"] = round(pool.layout.nbytes / cpu.each / 1e9, 1)
    return found, Rates(lambda _: cpu, lambda _: pcie)


def ideal_seconds(experts: GpuExperts, ids: np.ndarray, host_gbs: float) -> float:
    """A token's ideal: hits at device-memory speed beside misses at the sum of PCIe and host memory, layer by layer."""
    total = 0.0
    for layer, chosen in enumerate(ids):
        held = sum((layer, int(e)) in experts.cache.frames.held for e in chosen)
        size = float(experts.cache.sizes[layer])
        hits, misses = held * size, (len(chosen) - held) * size
        total += max(hits / (VRAM_GBS * 1e9), misses / ((PCIE_GBS + host_gbs) * 1e9))
    return total


def decode(device: Device, experts: GpuExperts, trace: RoutingTrace, host_gbs: float) -> dict[str, Any]:
    """Tokens through the experts of all layers, one stream, ids from the trace."""
    torch_device = device.torch_device
    x = torch.randn(1, HIDDEN, device=torch_device)
    weights = torch.full((1, TOP_K), 0.1, device=torch_device)
    ids = torch.zeros(LAYERS, 1, TOP_K, dtype=torch.int32, device=torch_device)
    rows = trace.ids[LEARNED:]

    def work() -> list[torch.Tensor]:
        return [experts.run(layer, x, ids[layer], weights) for layer in range(LAYERS)]

    ids[:, 0].copy_(torch.from_numpy(rows[0]))
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()
    times, ideals, waits = [], [], []
    experts.desk.ledger.zero_()
    experts.answerer.drain()
    for token in range(TRIED):
        ids[:, 0].copy_(torch.from_numpy(rows[token]))
        experts.begin_step(1)
        torch.cuda.synchronize()
        began = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        took = time.perf_counter() - began
        experts.end_step()
        if token >= TRIED // 3:
            times.append(took)
            ideals.append(ideal_seconds(experts, rows[token], host_gbs))
            waits.append(int(experts.desk.ledger[:, 10].sum()) / 1e9)
    del kept
    experts.read_ledger()
    entries = experts.counters.entries.sum(axis=0)
    return {
        "ms": round(1e3 * statistics.median(times), 3),
        "mean ms": round(1e3 * statistics.mean(times), 3),
        "ideal ms": round(1e3 * statistics.mean(ideals), 3),
        "share": round(statistics.mean(ideals) / statistics.mean(times), 3),
        "waiting ms": round(1e3 * statistics.mean(waits), 3),
        "hits": round(float(entries[0] / entries.sum()), 3),
        "pcie": round(float(entries[1] / entries.sum()), 3),
        "cpu": round(float(entries[2] / entries.sum()), 3),
        "disagreement": experts.counters.disagreement(),
    }


def budgets(device: Device, native: Native, pool: Pool, rates: Rates, host_gbs: float) -> dict[str, Any]:
    """Decoding behind both budgets with both curves by the found split, and once by each side alone."""
    found: dict[str, Any] = {}
    curves: Sequence[Curve] = (TYPICAL, ADVERSE)
    for curve in curves:
        trace = generate(curve, (LEARNED + TRIED, LAYERS, TOP_K), EXPERTS, 0.3, 1)
        counts = RoutingTrace(trace.ids[:LEARNED], EXPERTS, trace.origin).uses().astype(float)
        for gib in (12.0, 24.0):
            for share in (None, 0.0, 1.0) if curve is TYPICAL and gib == 12.0 else (None,):
                experts = place_pool(device, native, pool, gib, share, counts, rates)
                name = f"{curve.name} {gib:g} GiB {'split' if share is None else 'cpu' if share == 0.0 else 'pcie'}"
                found[name] = decode(device, experts, trace, host_gbs)
                experts.close()
                del experts
                torch.cuda.empty_cache()
    return found


def run(device: Device, out: dict[str, Any]) -> None:
    """All of it; `out` is filled as it goes."""
    native = Native()
    out["threads"] = native.threads
    out["wrong bits"] = check(device, native)
    out["doorbell us"] = doorbell(device, native)
    began = time.perf_counter()
    pool = make_pool(device, LAYERS, EXPERTS)
    out["pool s"] = round(time.perf_counter() - began, 1)
    out["host GB/s"] = host = host_rate(native)
    guess = Rates(lambda size: Line(1e-5, size / 1e11), lambda size: Line(5e-6, size / 5e10))
    out["layer call us"], rates = layer_calls(device, native, pool, guess)
    out["decode"] = budgets(device, native, pool, rates, host)
    out["s"] = round(time.perf_counter() - began, 1)
