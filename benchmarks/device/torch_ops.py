"""The registered torch operators on a device: the specification's bits, on a stream of the caller's, from a graph.

python benchmarks/device/all.py --only torch_ops
"""

from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import torch

from strata.checks.kernel_cases import random_weight
from strata.kernels.device import Device
from strata.kernels.experts import naive as experts_naive
from strata.kernels.linear import naive
from strata.kernels.torch_ops import register
from strata.kernels.views import ExpertBank, Weight

FORMATS = ["Q4_K", "Q4_K", "Q6_K"]
HIDDEN, WIDTH, EXPERTS, TOP_K = 512, 256, 8, 4


def equal(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Bit for bit."""
    return torch.equal(found.cpu().view(torch.int32), expected.view(torch.int32))


def matrices(name: str, rows: int, cols: int, rng: np.random.Generator) -> torch.Tensor:
    """uint8 [EXPERTS, rows, row bytes]"""
    return random_weight(name, EXPERTS * rows, cols, rng).planes[0].view(EXPERTS, rows, -1)


def run(device: Device, out: dict[str, Any]) -> None:
    """Few rows and many, then the same call captured in a graph of a stream of its own and replayed on other rows."""
    where, rng = device.torch_device, np.random.default_rng(1)
    library = register(Path(gettempdir()) / "strata-device-kernels", "strata_checked")
    ops: Any = torch.ops.strata_checked
    stream = 0 if where.type == "cpu" else torch.cuda.current_stream().cuda_stream
    for rows in (1, 8, 64):
        x = torch.from_numpy(rng.standard_normal((rows, HIDDEN), dtype=np.float32))
        weight = random_weight("Q4_K", 96, HIDDEN, rng)
        y = ops.linear(x.to(where), weight.planes[0].to(where), None, "Q4_K", 0.5, stream)
        scaled = Weight(weight.format, weight.rows, weight.cols, weight.planes, 0.5)
        out[f"linear, {rows} rows"] = equal(y, naive.linear(x, [scaled])[0])
    parts = [matrices(name, *size, rng) for name, size in zip(
        FORMATS, ((WIDTH, HIDDEN), (WIDTH, HIDDEN), (HIDDEN, WIDTH)), strict=True)]  # fmt: skip
    kinds = [random_weight(name, 1, 256, rng).format for name in FORMATS]
    sizes = ((WIDTH, HIDDEN), (WIDTH, HIDDEN), (HIDDEN, WIDTH))
    bank = ExpertBank(*(tuple(Weight(kind, *size, (each,)) for each in part)
                        for kind, size, part in zip(kinds, sizes, parts, strict=True)))  # fmt: skip
    there = [part.to(where) for part in parts]
    table = ops.expert_table(*there, FORMATS)

    def inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ids = np.stack([rng.permutation(EXPERTS)[:TOP_K] for _ in range(rows)]).astype(np.int32)
        x = torch.from_numpy(rng.standard_normal((rows, HIDDEN), dtype=np.float32)) * 1e-2
        return x, torch.from_numpy(ids), torch.from_numpy(rng.random((rows, TOP_K), dtype=np.float32))

    for rows in (1, 8, 64):
        x, ids, factors = inputs(rows)
        y = ops.experts(x.to(where), ids.to(where), factors.to(where), table, WIDTH, FORMATS, stream)
        out[f"experts, {rows} rows"] = equal(y, experts_naive.experts(x, ids, factors, bank))
    if where.type == "cuda":
        own = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        first, second = inputs(2), inputs(2)
        held = [each.to(where) for each in first]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=own):
            y = ops.experts(*held, table, WIDTH, FORMATS, own.cuda_stream)
        for here, other in zip(held, second, strict=True):
            here.copy_(other)
        graph.replay()
        torch.cuda.synchronize()
        out["experts, replayed on other rows"] = equal(y, experts_naive.experts(*second, bank))
        out["negative control: differs from the first rows"] = not equal(y, experts_naive.experts(*first, bank))
    del library
