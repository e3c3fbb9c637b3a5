"""What the lane rule of docs/numerics.md costs: the canonical product beside one that keeps no order.

    PYTHONPATH=src python benchmarks/probe_products.py [--cols 2048] [--mib 96] [--rounds 7] [--out FILE.jsonl]

One row of activations, weights from memory (more than the last-level cache holds). "plain" scales activations per 256,
puts a block's scales into its integers where that is cheap (Q4_K) and adds in any order; "read" touches the bytes and
does nothing else. Figures are GB/s of weights: the best round, by wall clock and, for one thread, by CPU time, which
a busy machine disturbs less. JSON lines go to --out or stdout, a table to stderr.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from strata.kernels import _native
from strata.kernels.linear import cpu
from strata.kernels.native import Native, describe
from strata.kernels.views import Weight
from strata.quant.formats import FORMATS

PLAIN = ("Q4_K", "IQ3_S")
OTHERS = ("Q6_K", "IQ4_NL", "Q8_0", "Q2_0", "IQ2_S")


def random_weight(name: str, cols: int, mib: int, rng: np.random.Generator) -> Weight:
    """Random codes with small finite scales, `mib` MiB of them."""
    fmt = FORMATS[name]
    rows = max(64, (mib << 20) // fmt.row_bytes(cols))
    raw = rng.integers(0, 256, (rows, cols // fmt.block, fmt.block_bytes), dtype=np.uint8)
    half = np.array([0.01], np.float16).view(np.uint8)
    at = 208 if name == "Q6_K" else 0
    raw[:, :, at : at + 2] = half
    if name == "Q4_K":
        raw[:, :, 2:4] = half
    return Weight(fmt, rows, cols, (torch.from_numpy(raw.reshape(rows, -1)),))


def best_seconds(call: Callable[[], None], rounds: int) -> tuple[float, float]:
    """(wall seconds, this thread's CPU seconds) of the fastest of `rounds` calls."""
    wall, own = float("inf"), float("inf")
    for _ in range(rounds):
        start, used = time.perf_counter(), time.thread_time()
        call()
        wall, own = min(wall, time.perf_counter() - start), min(own, time.thread_time() - used)
    return wall, own


def measure(native: Native, weight: Weight, kind: str, x: torch.Tensor, rounds: int) -> dict[str, object]:
    """One line of the result."""
    y = torch.empty(weight.rows)
    described = describe(weight)

    def call() -> None:
        if kind == "canonical":
            cpu.linear(native, x, [weight])
        else:
            _native.probe(native.handle, kind, described, x.data_ptr(), y.data_ptr())

    wall, own = best_seconds(call, rounds)
    count = weight.planes[0].numel()
    line: dict[str, object] = {"format": weight.format.name, "kind": kind, "threads": native.threads, "isa": native.isa}
    line |= {"cols": weight.cols, "mib": count >> 20, "gb_per_s": round(count / wall / 1e9, 2)}
    if native.threads == 1:
        line["gb_per_cpu_s"] = round(count / own / 1e9, 2)
    if kind == "plain":
        expected = cpu.linear(native, x, [weight])[0][0]
        line["relative_difference"] = round(float((y - expected).norm() / expected.norm()), 5)
    return line


def say(text: str) -> None:
    """A line of the table, at once."""
    sys.stderr.write(text + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cols", type=int, default=2048, help="values per row, a multiple of 512")
    parser.add_argument("--mib", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--isa", choices=("auto", "portable", "avx2", "avx512"), default="auto")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.cols % 512:
        parser.error(f"--cols must be a multiple of 512, got {options.cols}")
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((1, options.cols)).astype(np.float32))
    machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    lines = []
    say(f"{'format':8} {'kind':10} {'threads':>7} {'GB/s':>7} {'GB/CPU-s':>9}")
    for name in (*PLAIN, *OTHERS):
        weight = random_weight(name, options.cols, options.mib, rng)
        for threads in (1, 2):
            native = Native(threads, options.isa)
            for kind in ("canonical", "plain", "read") if name in PLAIN else ("canonical",):
                if kind == "plain" and native.isa != "avx512":
                    continue
                line = measure(native, weight, kind, x, options.rounds) | machine
                own = line.get("gb_per_cpu_s", "")
                say(f"{name:8} {kind:10} {threads:7} {line['gb_per_s']:7} {own:>9}")
                lines.append(json.dumps(line))
    text = "\n".join(lines) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
