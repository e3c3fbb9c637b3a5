"""What the CPU and PCIe take for some experts, each alone: the start of the split."""

import time
from dataclasses import replace

import numpy as np
import torch

from strata.experts.gpu import GpuExperts
from strata.experts.placing import TYPICAL_RATES, Rates
from strata.experts.residency import is_there
from strata.experts.split import Line, fit_line
from strata.kernels import _native
from strata.kernels.device import Device
from strata.kernels.experts.gpu import group, pair_results
from strata.kernels.native import Native
from strata.kernels.views import ExpertBank

COUNTS = (1, 2, 4, 8)
REPEATS = 3
DOORBELL_S = 10e-6
"""What asking the CPU adds to its work."""
LAUNCHES_S = 15e-6
"""What a call of the kernels takes beside its reads; as a part of a recorded step, which the measurement is not."""
LEAST_S = 1e-7
"""Of an expert: what a clock that stands still would give is no rate."""


def cpu_line(native: Native, bank: ExpertBank) -> Line:
    """Seconds for n experts of one row; every repetition reads other ones."""
    hidden, experts = bank.gate[0].cols, len(bank.gate)
    x, outputs = torch.zeros(1, hidden), torch.empty(max(COUNTS), hidden)
    described, samples, first = native.bank(bank), [], 0
    for count in (n for n in COUNTS if n <= experts):
        times = []
        for _ in range(REPEATS):
            ids = (torch.arange(count, dtype=torch.int32) + first) % experts
            first += count
            began = time.perf_counter()
            _native.experts_apart(native.handle, described, x.data_ptr(), 1, ids.data_ptr(), count, outputs.data_ptr())
            times.append(time.perf_counter() - began)
        samples.append((count, DOORBELL_S + min(times)))
    return fit_line(samples)


def pcie_line(device: Device, experts: GpuExperts, layer: int) -> Line | None:
    """Seconds for n pinned experts of one row, read in place; None when fewer than two are pinned in the layer."""
    table, known = experts.cache.table, experts.calls[layer]
    pinned = np.flatnonzero(is_there(table.pinned[layer]))
    if len(pinned) < 2:
        return None
    here = np.zeros(len(table.pinned[layer]), np.int64)
    entries = torch.from_numpy(table.rows(layer, table.pinned[layer], here)).to(device.torch_device)
    calls = replace(known, entries=entries)
    x, samples = torch.zeros(1, known.hidden, device=device.torch_device), []
    for count in (n for n in COUNTS if n <= len(pinned)):
        times = []
        for turn in range(REPEATS + 1):
            picked = np.roll(pinned, -turn * count)[:count].astype(np.int32)[None]
            ids = torch.from_numpy(picked).to(device.torch_device)
            results = device.empty(1, count, known.hidden)
            device.synchronize()
            began = time.perf_counter()
            pair_results(device, group(device, x, ids, calls), calls, results)
            device.synchronize()
            times.append(time.perf_counter() - began)
        samples.append((count, min(times[1:])))
    (few, little), (many, much) = samples[0], samples[-1]
    return Line(LAUNCHES_S, max((much - little) / (many - few), LEAST_S))


def measured(device: Device, native: Native, experts: GpuExperts) -> Rates:
    """The lines of every size of experts; where nothing is pinned, PCIe is not used and its line does not matter."""
    cpu: dict[int, Line] = {}
    pcie: dict[int, Line] = {}
    for layer, kind in experts.split.kind.items():
        size = experts.split.sizes[kind]
        if size not in cpu:
            cpu[size] = cpu_line(native, experts.cache.pinned.store.bank(layer))
        if size not in pcie:
            found = pcie_line(device, experts, layer)
            if found is not None:
                pcie[size] = found
    return Rates(lambda size: cpu[size], lambda size: pcie.get(size, TYPICAL_RATES.pcie(size)))
