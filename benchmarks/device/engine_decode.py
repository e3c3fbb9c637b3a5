"""Decoding on a drawn model: milliseconds per token beside the bytes that it touches and what they would take at least.

The ideal behind a budget: dense weights and states at the speed of device memory, then layer by layer the experts, hits
at device-memory speed beside misses at the sum of PCIe and the host's memory.
"""

import gc
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from drawn_model import Formats, drawn_model, shape_of
from expert_pool import ExpertPool

from strata.convert.shapes import Shape
from strata.core.limits import Limits
from strata.core.window import Window
from strata.experts.gpu import GpuExperts
from strata.experts.measure import measured
from strata.experts.placing import ARENA_BLOCK, Sizes, place_experts, side_of, split_plan
from strata.experts.traced import TracedExperts
from strata.experts.traces import Curve, RoutingTrace, generate
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.device import Device
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.native import Native
from strata.models.base import Model
from strata.models.weights import dense_bytes, row_tables
from strata.runtime.apart import Apart
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams
from strata.state.memory import Memory

READ_GBS, PCIE_GBS = 4450.0, 52.0
"""Measured limits of the card: device memory read, host to device."""
RESERVE = 6 << 30
"""As the engine leaves alone on such a card, with 8,192 rows of a prompt."""
LEARNED, TRIED = 500, 450
"""Tokens of a trace that say what is resident at first, and tokens that are decoded."""
WARM = 3
"""Steps before those that count: the first runs op by op, the second is recorded."""


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    name: str = "real"
    layers: int = 48
    context: int = 4096
    prompt: int = 8192
    chunks: tuple[int, ...] = (512, 2048, 8192)
    """Prompt tokens of a step."""
    steps: int = 1 << 10
    """Steps at most that are timed."""
    arch: str = "qwen4exp"


REAL = Scale()
TINY = Scale("tiny", 4, 32, 48, (20, 40), 2)
"""For a dry run on the emulator."""

Counts = npt.NDArray[np.float64]


def curve_of(curve: Curve, shape: Shape) -> RoutingTrace:
    """A trace by the curve."""
    return generate(curve, (LEARNED + TRIED, shape.layers, shape.top_k), shape.experts, 0.3, 1)


def learned(trace: RoutingTrace) -> Counts:
    """What a run before would have learned: the uses of the trace's first tokens."""
    return RoutingTrace(trace.ids[:LEARNED], trace.experts, trace.origin).uses().astype(np.float64)


class Drawn:
    """A drawn model on the device with its experts somewhere; `last` is the runner that decoded last."""

    model: Model
    shape: Shape
    pool: ExpertPool

    def __init__(self, device: Device, native: Native, scale: Scale) -> None:
        self.device, self.native, self.scale = device, native, scale
        self.ops = GpuOps(device)
        self.experts: GpuExperts | None = None
        self.traced: TracedExperts | None = None
        self.decoding: Decoding | None = None

    def draw(self, formats: Formats, blocks: list[torch.Tensor]) -> dict[str, Any]:
        """Make the weights."""
        self.shape = shape_of(self.scale.arch, self.scale.layers, self.scale.name)
        self.model, pool = drawn_model(self.shape, formats, self.ops, self.device.torch_device, blocks=blocks)
        assert pool is not None
        self.pool = pool
        for table in row_tables(self.model):
            self.device.leave(table)
        self.device.synchronize()
        return {"bytes of an expert": pool.layout.nbytes, "experts GiB": round(self.all_gib, 1)}

    @property
    def all_gib(self) -> float:
        """A budget for all experts."""
        count, each = self.shape.layers * self.shape.experts, ARENA_BLOCK // self.pool.layout.nbytes
        return -(-count // each) * ARENA_BLOCK / (1 << 30)

    def place(self, gib: float, counts: Counts | None = None, trace: RoutingTrace | None = None) -> dict[str, Any]:
        """Put the experts behind a budget, the most used ones in VRAM; with `trace`, it says who is used."""
        self.close()
        began = time.perf_counter()
        pinned, at = self.pool.store(self.model.store), self.device.torch_device
        sizes = Sizes(int(gib * (1 << 30)), RESERVE, 0)
        top_k = self.model.shape.top_k
        experts = place_experts(self.device, self.native, pinned, top_k, sizes, side_of(at), counts)
        placed = time.perf_counter()
        rates = measured(self.device, self.native, experts)
        experts.split = split_plan(pinned, experts.split.tables.shape[1] - 1, None, rates, at)
        self.experts = self.model.experts.inner = experts
        if trace is not None:
            self.traced = TracedExperts(experts, trace, sorted(self.model.store.banks), at)
            self.traced.token = LEARNED
            self.model.experts.inner = self.traced
        size = self.pool.layout.nbytes
        return {
            "arena GiB": experts.cache.frames.nbytes / (1 << 30),
            "resident": len(experts.cache.frames.held),
            "of": self.shape.layers * self.shape.experts,
            "cpu us of 1, 10": [round(1e6 * rates.cpu(size).at(n), 1) for n in (1, 10)],
            "pcie us of 1, 10": [round(1e6 * rates.pcie(size).at(n), 1) for n in (1, 10)],
            "placing s": round(placed - began, 2),
            "measuring s": round(time.perf_counter() - placed, 2),
        }

    def runner(self, slots: int, context: int) -> DeviceRunner:
        """A runner with empty slots; the one before is dropped."""
        self.decoding = None
        gc.collect()
        apart = Apart(self.device.name, Memory(self.device.torch_device, apart=True), CpuOps(self.native))
        return DeviceRunner(self.model, self.ops, Limits(slots, context, max(self.scale.chunks)), apart=apart)

    @property
    def last(self) -> DeviceRunner | None:
        """The runner that decoded last."""
        return None if self.decoding is None else self.decoding.runner

    def steps(self, count: int) -> None:
        """More steps of the last decoding."""
        assert self.decoding is not None
        for _ in range(count):
            self.decoding.step()

    def close(self) -> None:
        """The experts leave the device."""
        self.decoding = None
        if self.experts is not None:
            self.experts.close()
        self.experts = self.traced = None
        if hasattr(self, "model"):
            self.model.experts.inner = None  # type: ignore[assignment]
        gc.collect()
        if self.device.torch_device.type == "cuda":
            torch.cuda.empty_cache()


class Decoding:
    """Greedy decoding in several slots behind a context that is pretended."""

    def __init__(self, runner: DeviceRunner, slots: int, context: int) -> None:
        self.runner = runner
        self.last = dict.fromkeys(range(slots), 1)
        for slot in range(slots):
            pretend(runner, slot, context)

    def step(self) -> float:
        """One step of all slots -> seconds."""
        lengths = self.runner.states.length
        windows = [Window(slot, lengths[slot], (token,), 1) for slot, token in self.last.items()]
        began = time.perf_counter()
        for result in self.runner.step(windows):
            self.last[result.slot] = result.drawn[-1].token
        return time.perf_counter() - began


def pretend(runner: DeviceRunner, slot: int, context: int) -> None:
    """The slot holds `context` tokens whose caches are random."""
    tokens = [1 + slot] * context
    runner.seat(slot, tokens, SamplingParams())
    runner.states.reserve(slot, tokens, 0, keep=False)
    if slot == 0:
        for name, tensor in (*runner.states.planes(), *runner.states.recurrent()):
            tensor.normal_().mul_(1.0 if name.split(".")[1] in ("k", "v", "raw", "block") else 0.1)
    runner.states.commit(slot, context, runner.ops)


def state_bytes(runner: DeviceRunner, shape: Shape, context: int) -> int:
    """Of one slot: keys and values that attention reads, recurrent states read and written."""
    total = 0
    for layer in runner.states.layers:
        seen = context if layer.block_keys is None else min(context, shape.index_budget)
        for plane in (layer.keys, layer.values):
            if plane is not None:
                total += seen * int(np.prod(plane.entry)) * plane.data.element_size()
        if layer.block_keys is not None:
            total += context // 4 * layer.block_keys.data.shape[-1] * 4
        if layer.delta is not None:
            total += 2 * layer.delta[0].nbytes
    return total


def ideal_seconds(experts: GpuExperts, ids: npt.NDArray[np.int32], fixed_bytes: float, host_gbs: float) -> float:
    """A step's ideal; ids [rows, layers, k] of layers 0, 1, .."""
    total = fixed_bytes / (READ_GBS * 1e9)
    for layer in range(ids.shape[1]):
        chosen = np.unique(ids[:, layer])
        held = sum((layer, int(e)) in experts.cache.frames.held for e in chosen)
        size = float(experts.cache.sizes[layer])
        hits, misses = held * size, (len(chosen) - held) * size
        total += max(hits / (READ_GBS * 1e9), misses / ((PCIE_GBS + host_gbs) * 1e9))
    return total


def decode(drawn: Drawn, slots: int, steps: int, host_gbs: float | None = None) -> dict[str, Any]:
    """Steps of `slots` streams; with `host_gbs`, beside the ideal of what the trace asks for."""
    steps = min(steps, drawn.scale.steps)
    experts = drawn.experts
    assert experts is not None
    context = drawn.scale.context
    runner = drawn.runner(slots, context + 512)
    drawn.decoding = Decoding(runner, slots, context)
    drawn.steps(WARM)
    experts.read_ledger()
    before = experts.counters.ledger.copy()
    swaps, moved = experts.swaps, experts.cache.moved_bytes
    dense, states = dense_bytes(drawn.model), state_bytes(runner, drawn.shape, context)
    seconds, ideals = [], []
    for _ in range(steps):
        if drawn.traced is not None and host_gbs is not None:
            ids = drawn.traced.trace.rows(drawn.traced.token, slots)
            ideals.append(ideal_seconds(experts, ids, dense + slots * states, host_gbs))
        seconds.append(drawn.decoding.step())
    experts.read_ledger()
    change = experts.counters.ledger - before
    entries, distinct = change[:, 0:3].sum(axis=0), change[:, 3:6].sum()
    routed = float(distinct) / steps * drawn.pool.layout.nbytes
    total = dense + slots * states + routed
    median, mean, spent = statistics.median(seconds), statistics.mean(seconds), runner.spent
    result: dict[str, Any] = {
        "step ms, median": 1e3 * median,
        "step ms, mean": 1e3 * mean,
        "tokens per second": slots / median,
        "bytes touched": {"dense": dense, "experts": routed, "states": slots * states, "all": total},
        "GB/s": total / median / 1e9,
        "share of read": total / median / 1e9 / READ_GBS,
        "share of read, weights alone": (dense + routed) / median / 1e9 / READ_GBS,
        "limit tokens per second": slots * READ_GBS * 1e9 / total,
        "host ms": {name: getattr(spent, name) / runner.steps / 1e6 for name in ("reserve", "draw", "commit")},
        "launches": [len(known.program) for known in runner.forwarder.recorded.values()],
        "hits": float(entries[0] / entries.sum()),
        "pcie": float(entries[1] / entries.sum()),
        "cpu": float(entries[2] / entries.sum()),
        "swaps": experts.swaps - swaps,
        "moved MB": (experts.cache.moved_bytes - moved) / 1e6,
        "disagreement": experts.counters.disagreement(),
    }
    if ideals:
        result["routing"] = drawn.traced.trace.origin if drawn.traced is not None else ""
        result["ideal ms"] = 1e3 * statistics.mean(ideals)
        result["share of ideal"] = statistics.mean(ideals) / mean
    return result
