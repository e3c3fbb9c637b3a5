"""Where the time of a long prompt goes: microseconds of each kernel in a drawn model of few layers.

    python benchmarks/device/prompt_kernels.py [LAYERS]

The extensions are built already. A line for each kernel, largest first: milliseconds, launches, microseconds of one.
"""

import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import numpy as np
import torch
from drawn_model import Formats
from engine_decode import REAL, Drawn
from expert_pool import host_blocks

from strata.core.window import Window
from strata.kernels.devices import open_device
from strata.kernels.native import Native
from strata.sampling.params import SamplingParams


def main() -> None:
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    device = open_device("cuda", Path(tempfile.mkdtemp()))
    drawn = Drawn(device, Native(), replace(REAL, layers=layers))
    drawn.draw(Formats("IQ3_S", "IQ4_NL"), host_blocks(device.torch_device))
    drawn.place(drawn.all_gib)
    tokens = drawn.scale.prompt
    runner, rng = drawn.runner(1, tokens + 64), np.random.default_rng(3)

    def read() -> float:
        ids = rng.integers(0, drawn.shape.vocabulary - 10, tokens).tolist()
        runner.seat(0, ids, SamplingParams())
        began = time.perf_counter()
        runner.step([Window(0, 0, tuple(ids), 1)])
        return time.perf_counter() - began

    read()
    took = read()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        read()
    spent: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            spent[event.name] += event.time_range.elapsed_us()
            calls[event.name] += 1
    print(f"{layers} layers, {tokens} tokens: {took * 1e3:.1f} ms, kernels {sum(spent.values()) / 1e3:.1f} ms")
    for name, us in spent.most_common(40):
        print(f"{us / 1e3:9.2f} ms {calls[name]:5} x {us / calls[name]:9.1f} us  {name[:90]}")


if __name__ == "__main__":
    main()
