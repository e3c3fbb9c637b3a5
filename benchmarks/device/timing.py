"""Times of device work from captured graphs, so that Python is not in them; and what the host's memory gives."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from strata.kernels import _native
from strata.kernels.native import Native
from strata.kernels.views import Weight
from strata.quant.formats import FORMATS


def graph_us(work: Callable[[], object], repeats: int = 9) -> float:
    """Median microseconds of one replay of `work` captured as a graph; `work` runs once before, to compile."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    return statistics.median(times[1:])


def each_us(work: Callable[[], object], count: int = 200) -> float:
    """Median microseconds of one of `count` calls of `work` in one graph, each after the one before."""

    def many() -> None:
        for _ in range(count):
            work()

    return graph_us(many) / count


def host_rate(native: Native) -> float:
    """GB/s at which the threads read host memory."""
    size = 2 << 30
    big = Weight(FORMATS["Q8_0"], size // FORMATS["Q8_0"].row_bytes(4096), 4096, ())
    plane = torch.ones(big.rows, FORMATS["Q8_0"].row_bytes(4096), dtype=torch.uint8)
    described = native.weight(replace(big, planes=(plane,)))
    x, y, best = torch.zeros(1, 4096), torch.zeros(1, big.rows), 0.0
    for _ in range(4):
        began = time.perf_counter()
        _native.probe(native.handle, "read", described, x.data_ptr(), y.data_ptr())
        best = max(best, plane.nbytes / (time.perf_counter() - began) / 1e9)
    return best
