"""Times of device work from captured graphs, so that Python is not in them."""

import statistics
from collections.abc import Callable

import torch


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
