"""Where the time of a long prompt goes: each kernel in a drawn model of few layers, gaps, copies, and the host's part.

    python benchmarks/device/prompt_kernels.py [--arch qwen3moe] [--tokens 2048] [--layers 8] [--resident 0.5]

The extensions are built already. Lines: the step as a whole, with what the host took to start it; copies from the host;
the kernels, largest first: milliseconds, launches, microseconds of one; the longest gaps between kernels; then the same
for a layer of each kind.
"""

import argparse
import importlib
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import numpy as np
import torch
from drawn_model import Formats
from engine_decode import REAL, TINY, Drawn
from expert_pool import BLOCK_BYTES, host_blocks

from strata.core.limits import Limits
from strata.core.window import Window
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.cubins import cached
from strata.kernels.device import Device
from strata.kernels.device_source import units
from strata.kernels.devices import open_device
from strata.kernels.native import Native
from strata.kernels.views import KvType
from strata.runtime.apart import Apart
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams
from strata.state.memory import Memory
from strata.store.pinned import pinned_memory

FORMATS = {"qwen3moe": Formats("Q4_K", "Q6_K", "Q4_K"), "qwen4exp": Formats("IQ3_S", "IQ4_NL")}
"""As the files that other measurements take."""
KV_TYPES: dict[str, KvType] = {"qwen3moe": "bf16", "qwen4exp": "f32"}
POOL_BLOCKS = 4
PARTS = ("products", "prompt_products", "prompt_unpack", "prompt_arrange")


@dataclass(frozen=True)
class Span:
    """One thing that the device did, in microseconds."""

    name: str
    start: float
    end: float

    @property
    def is_copy(self) -> bool:
        """Whether a copy engine did it."""
        return self.name.startswith(("Memcpy", "Memset"))

    @property
    def us(self) -> float:
        """Its length."""
        return self.end - self.start


def covered(spans: Iterable[Span]) -> float:
    """Microseconds in which at least one of them ran."""
    total = end = 0.0
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0.0, span.end - max(span.start, end))
        end = max(end, span.end)
    return total


def compile_at_once(device: Device, formats: Formats, cache: Path) -> None:
    """The units that every model needs and those of the formats, side by side."""
    names = {formats.expert, formats.down, formats.dense, "F32", "BF16"}
    wanted = [
        unit
        for unit in units()
        if not unit.startswith(("attention_", "select_prompt", "probe"))
        and (not unit.startswith(PARTS) or unit.startswith("prompt_products") or unit.split("=")[-1] in names)
    ]

    nvrtc = importlib.import_module("strata.kernels.nvrtc")  # not at the top: a dry run has no CUDA
    cuda_device = importlib.import_module("strata.kernels.cuda_device")
    architecture = cuda_device.architecture_of(*torch.cuda.get_device_capability(device.torch_device))

    def one(unit: str) -> None:
        wanted = (unit, architecture, *device.shared.defines)
        cached(cache, nvrtc.key(*wanted), lambda: nvrtc.compile_unit(*wanted)[0])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, wanted))


class Reading:
    """A drawn model that reads prompts."""

    def __init__(self, arch: str, layers: int, tokens: int, resident: float, cache: Path, dry: bool) -> None:
        device = open_device("emulator" if dry else "cuda", cache)
        began = time.perf_counter()
        if not dry:
            compile_at_once(device, FORMATS[arch], cache)
            print(f"compiling: {time.perf_counter() - began:.1f} s", flush=True)
        self.drawn = Drawn(device, Native(), replace(TINY if dry else REAL, layers=layers, arch=arch))
        blocks = host_blocks(device.torch_device) if dry else [pinned_memory(BLOCK_BYTES) for _ in range(POOL_BLOCKS)]
        self.drawn.draw(FORMATS[arch], blocks)
        self.drawn.place(self.drawn.all_gib * resident)
        self.tokens, self.device = tokens, device
        apart = Apart(device.name, Memory(device.torch_device, apart=True), CpuOps(self.drawn.native))
        limits = Limits(1, tokens + 64, tokens)
        self.runner = DeviceRunner(self.drawn.model, self.drawn.ops, limits, kv_type=KV_TYPES[arch], apart=apart)
        self.rng = np.random.default_rng(3)

    def read(self) -> float:
        """A prompt in one chunk -> seconds."""
        ids = self.rng.integers(0, self.drawn.shape.vocabulary - 10, self.tokens).tolist()
        self.runner.seat(0, ids, SamplingParams())
        began = time.perf_counter()
        self.runner.step([Window(0, 0, tuple(ids), 1)])
        return time.perf_counter() - began

    def spans(self) -> tuple[list[Span], list[Span]]:
        """What the device did while it read, and the host's calls that started kernels."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            self.read()
        here: list[Span] = []
        there: list[Span] = []
        for event in profile.events():
            is_device = event.device_type == torch.autograd.DeviceType.CUDA
            if is_device or "aunchKernel" in event.name:
                (here if is_device else there).append(Span(event.name, event.time_range.start, event.time_range.end))
        return here, there


def report(here: list[Span], there: list[Span]) -> list[str]:
    """Lines about a step."""
    here = sorted(here, key=lambda span: span.start)
    kernels, copies = [s for s in here if not s.is_copy], [s for s in here if s.is_copy]
    length = max(s.end for s in here) - min(s.start for s in here)
    busy, host = covered(kernels), max(s.end for s in there) - min(s.start for s in there) if there else 0.0
    alone = covered(here) - busy
    lines = [
        f"device: {length / 1e3:.2f} ms, of which kernels {busy / 1e3:.2f}, copies alone {alone / 1e3:.2f}, "
        f"nothing {(length - busy - alone) / 1e3:.2f}; the host started {len(there)} kernels in {host / 1e3:.2f} ms",
        f"copies: {len(copies)} in {covered(copies) / 1e3:.2f} ms",
    ]
    for name, us in most(kernels, 40):
        calls = sum(span.name == name for span in kernels)
        lines.append(f"{us / 1e3:9.2f} ms {calls:5} x {us / calls:9.1f} us  {name[:90]}")
    gaps = sorted(((b.start - a.end, a.name, b.name) for a, b in pairwise(kernels) if b.start > a.end), reverse=True)
    lines += [f"gap of {us:.1f} us between {before[:40]} and {after[:40]}" for us, before, after in gaps[:6]]
    return lines


def by_layers(here: list[Span]) -> list[str]:
    """Lines about a layer of each kind, of those that end with the experts' combination and follow another."""
    kernels = sorted((span for span in here if not span.is_copy), key=lambda span: span.start)
    ends = [i for i, span in enumerate(kernels) if span.name == "combine"]
    kinds: dict[str, list[list[Span]]] = {}
    for before, end in pairwise(ends):
        layer = kernels[before + 1 : end + 1]
        kind = "delta net" if any(span.name == "delta_prompt" for span in layer) else "attention"
        kinds.setdefault(kind, []).append(layer)
    lines = []
    for kind, layers in kinds.items():
        spans, count = [span for layer in layers for span in layer], 1e3 * len(layers)
        whole = sum(span.us for span in spans)
        lines.append(f"{kind}: {whole / count:.2f} ms of kernels in one of {len(layers)} layers")
        lines += [f"{us / count:9.3f} ms  {name[:90]}" for name, us in most(spans, 24)]
    return lines


def most(spans: Iterable[Span], count: int) -> list[tuple[str, float]]:
    """The names that take most, with their microseconds."""
    spent: defaultdict[str, float] = defaultdict(float)
    for span in spans:
        spent[span.name] += span.us
    return sorted(spent.items(), key=lambda each: -each[1])[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=sorted(FORMATS), default="qwen3moe")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--resident", type=float, default=1.0, help="share of the experts")
    parser.add_argument("--cache", type=Path, help="where compiled kernels are kept")
    parser.add_argument("--dry", action="store_true", help="a tiny model on the emulator")
    asked = parser.parse_args()
    cache = asked.cache or Path(tempfile.mkdtemp())
    reading = Reading(asked.arch, asked.layers, asked.tokens, asked.resident, cache, asked.dry)
    began = time.perf_counter()
    reading.read()
    print(f"first: {time.perf_counter() - began:.1f} s", flush=True)
    took = min(reading.read() for _ in range(3))
    what = f"{asked.arch}, {asked.layers} layers, {asked.tokens} tokens, {asked.resident:.0%} resident"
    print(f"{what}: {took * 1e3:.2f} ms")
    if asked.dry:
        print("dry: what each kernel took needs CUDA's profiler, so it ends here", flush=True)
        return
    here, there = reading.spans()
    print("\n".join([*report(here, there), *by_layers(here)]), flush=True)


if __name__ == "__main__":
    main()
