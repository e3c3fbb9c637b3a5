"""Microseconds of the dense products of one step of Flash-Next, each in its own shape, over distinct copies.

A case is what one launch joins: matrices of one format that read the same rows. Beside its time stands what reading
its bytes alone would take. A pair is codes and plain floats that read the same rows, in one launch and in two.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from products import DISTINCT_BYTES, LIMIT_GBS, copies, on_device, weight_bytes
from timing import graph_us

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from kernels.product_data import activations, differing, weight
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.device import Device
from strata.kernels.linear import gpu as linear_gpu
from strata.kernels.linear import launch, pair
from strata.kernels.native import Native
from strata.quant.formats import FORMATS

CASES = (
    ("Q6_K", (10240, 6144), 2560, 36),
    ("Q6_K", (2560,), 6144, 48),
    ("Q6_K", (12288, 512, 512), 2560, 12),
    ("Q6_K", (640, 640), 2560, 48),
    ("Q8_0", (2560,), 640, 48),
    ("Q6_K", (248320,), 2560, 1),
    ("BF16", (320, 4), 10240, 96),
    ("BF16", (10240,), 320, 96),
    ("BF16", (48, 48), 2560, 36),
    ("F32", (512,), 2560, 48),
    ("IQ3_S", (16384,), 2560, 0),
    ("IQ4_NL", (16384,), 2560, 0),
    ("Q4_K", (16384,), 2560, 0),
    ("Q8_0", (16384,), 2560, 0),
)
"""Format, rows of the matrices, columns, launches a step (0: for comparison only)."""
PAIRS = (
    (("Q6_K", (10240, 6144)), ("BF16", (48, 48)), 2560),
    (("Q6_K", (640, 640)), ("F32", (512, 1)), 2560),
    (("Q6_K", (12288, 512, 512)), ("BF16", (512, 128)), 2560),
)
"""Formats and rows of codes and of plain floats, columns: a delta net, a router, an indexer."""


def of_case(device: Device, cpu: CpuOps, name: str, lines: tuple[int, ...], cols: int) -> dict[str, Any]:
    """Differing values, and microseconds by rows of x."""
    rng = np.random.default_rng(1)
    one = [weight(name, rows, cols, rng) for rows in lines]
    nbytes = sum(map(weight_bytes, one))
    count = max(2, DISTINCT_BYTES // nbytes)
    sets = list(zip(*(copies(device, w, count) for w in one), strict=True))
    found: dict[str, Any] = {"MB": nbytes / 1e6, "limit_us": nbytes / LIMIT_GBS / 1e3}
    for rows in (1, 2, 8):
        x = activations(rows, cols, rng)
        inputs = launch.quantise(device, on_device(device, x), {one[0].format})
        if rows == 1 or nbytes < 4e7:
            got = linear_gpu.of_format(device, inputs, one[0].format, sets[0])
            found[f"differing {rows}"] = sum(
                differing(g.cpu(), e) for g, e in zip(got, cpu.linear(x, one), strict=True)
            )
        us = graph_us(lambda inputs=inputs: [linear_gpu.of_format(device, inputs, one[0].format, ws) for ws in sets])
        found[f"{rows} us"] = us / count
        found[f"{rows} share"] = nbytes * count / us / 1e3 / LIMIT_GBS
    return found


def of_pair(device: Device, cpu: CpuOps, parts: tuple[tuple[str, tuple[int, ...]], ...], cols: int) -> dict[str, Any]:
    """Differing values, and microseconds by rows of x in one launch and in two, each in a chain of its own."""
    rng = np.random.default_rng(1)
    one = [weight(name, rows, cols, rng) for name, lines in parts for rows in lines]
    count = max(2, DISTINCT_BYTES // sum(map(weight_bytes, one)))
    sets = list(zip(*(copies(device, w, count) for w in one), strict=True))
    formats = [FORMATS[name] for name, _ in parts]
    each = [{fmt: [w for w in ws if w.format == fmt] for fmt in formats} for ws in sets]
    found: dict[str, Any] = {}
    for rows in (1, 2):
        x = activations(rows, cols, rng)
        inputs = launch.quantise(device, on_device(device, x), set(formats))
        launched = pair.find(device, inputs.x, each[0])
        assert launched is not None
        got = linear_gpu.linear(device, inputs.x, sets[0])
        found[f"differing {rows}"] = sum(differing(g.cpu(), e) for g, e in zip(got, cpu.linear(x, one), strict=True))

        def together(inputs: launch.Inputs = inputs, launched: pair.Pair = launched) -> None:
            for weights in each:
                pair.products(device, inputs, launched, weights)

        def apart(inputs: launch.Inputs = inputs) -> None:
            for weights in each:
                for fmt, ws in weights.items():
                    linear_gpu.of_format(device, inputs, fmt, ws)

        found[f"{rows} us"] = {"one launch": graph_us(together) / count, "two": graph_us(apart) / count}
        found[f"{rows} blocks"] = {"floats": launched.float_blocks, "codes": launched.code_blocks}
    return found


def run(device: Device, out: dict[str, Any]) -> None:
    """Every case and pair, and the sum of a step's launches."""
    cpu, total = CpuOps(Native()), 0.0
    for name, lines, cols, launches in CASES:
        found = of_case(device, cpu, name, lines, cols)
        out[f"{name} {'+'.join(map(str, lines))} x {cols}"] = found
        total += launches * found["1 us"]
    out["dense products of a step, us"] = total
    for codes, floats, cols in PAIRS:
        names = " and ".join(f"{name} {sum(lines)}" for name, lines in (codes, floats))
        out[f"{names} x {cols}"] = of_pair(device, cpu, (codes, floats), cols)
