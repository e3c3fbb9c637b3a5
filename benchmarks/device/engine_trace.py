"""Where a step's time goes on a GPU, and that it does not wait for the host."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from strata.checks.profile import kind_of
from strata.experts.gpu import GpuExperts
from strata.runtime.runner import DeviceRunner

STEPS = 4
"""Steps that are looked at."""
HOST_CALLS = ("Synchronize", "GraphLaunch", "LaunchKernel", "Memcpy", "Memset", "Malloc", "Free")
"""What of the driver's calls is counted, by a part of their names."""

Steps = Callable[[int], object]


def kernels(steps: Steps) -> dict[str, Any]:
    """Microseconds per step of every kernel, largest first; gaps on the device; calls of the driver per step.

    A kernel that starts early waits for the one before it, and that time is in its own; `adds_us` (adds) sums to the
    time in which the device was busy.
    """
    steps(2)
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        steps(STEPS)
    spent: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    host: Counter[str] = Counter()
    named: list[tuple[float, float, str]] = []
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            spent[event.name] += event.time_range.elapsed_us()
            calls[event.name] += 1
            named.append((event.time_range.start, event.time_range.end, event.name))
        elif event.name.startswith("cu") and any(part in event.name for part in HOST_CALLS):
            host[event.name] += 1
    added = adds(named)
    return {
        "kernels": {
            name: {
                "adds_us": round(us / STEPS, 2),
                "adds_us_each": round(us / calls[name], 2),
                "us": round(spent[name] / STEPS, 2),
                "calls": calls[name] / STEPS,
            }
            for name, us in added.most_common(50)
        },
        "device": gaps([span[:2] for span in named]),
        "driver calls per step": {name: count / STEPS for name, count in host.most_common()},
    }


def adds(named: list[tuple[float, float, str]]) -> Counter[str]:
    """By name, the time in which one of the kernels (start, end, name) ran and none that ended before it: their sum is
    the time in which any ran."""
    found: Counter[str] = Counter()
    covered: list[tuple[float, float]] = []
    for start, end, name in sorted(named, key=lambda span: span[1]):
        first, new = start, end - start
        while covered and covered[-1][1] > start:
            begin, over = covered.pop()
            new -= over - max(begin, start)
            first = min(first, begin)
        covered.append((first, end))
        found[name] += new
    return found


def gaps(spans: list[tuple[float, float]]) -> dict[str, float]:
    """Microseconds of a step on the device, from its first kernel to its last; a pause above 100 us ends a step."""
    spans = sorted(spans)
    busy, inside, longest, wide, end = 0.0, 0.0, 0.0, 0, spans[0][0] if spans else 0.0
    for start, stop in spans:
        gap = start - end
        if gap > 100.0:
            wide += 1
        elif gap > 0.0:
            inside += gap
            longest = max(longest, gap)
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return {
        "busy us": busy / STEPS,
        "gaps between kernels us": inside / STEPS,
        "longest of them us": longest,
        "pauses above 100 us": wide / STEPS,
        "busy share": busy / (busy + inside) if spans else 0.0,
    }


def parts(runner: DeviceRunner, steps: Steps) -> dict[str, Any]:
    """Milliseconds of a step on the device by kind of layer, from events in its graph."""
    runner.forwarder.time()
    steps(3)
    before = runner.forwarder.times()
    began = time.perf_counter()
    steps(8)
    whole = (time.perf_counter() - began) / 8 * 1e3
    found: Counter[str] = Counter()
    for old, new in zip(before, runner.forwarder.times(), strict=True):
        found[kind_of(new.part)] += new.nanoseconds - old.nanoseconds
    return {**{name: ns / 8 / 1e6 for name, ns in found.most_common()}, "whole step": whole}


def ahead(runner: DeviceRunner) -> dict[str, float]:
    """Milliseconds of a recorded step that is started again and again while nobody waits for any, and started alone.

    Where a step needed the host in between, the first could not be had: the host does nothing but start them.
    """
    shape, recorded = next(reversed(runner.forwarder.recorded.items()))
    program, experts = recorded.program, runner.model.experts.inner
    assert isinstance(experts, GpuExperts)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(16):
        program.run()
    started = time.perf_counter() - began
    torch.cuda.synchronize()
    through = time.perf_counter() - began
    alone = []
    for _ in range(9):
        began = time.perf_counter()
        program.run()
        torch.cuda.synchronize()
        alone.append(time.perf_counter() - began)
    experts.counters.rows[list(experts.calls)] += (16 + len(alone)) * shape.rows
    return {"16 ahead, each": through / 16 * 1e3, "to start one": started / 16 * 1e3, "alone": sorted(alone)[4] * 1e3}
