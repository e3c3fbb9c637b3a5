"""The split of misses between CPU and PCIe beside each of them alone, in turns over the same tokens.

    python benchmarks/device/all.py --build --only split_modes
    python benchmarks/device/split_modes.py --emulator    # a dry run with a tiny model, without a GPU

Some layers of Flash-Next's shape behind their part of a budget. Each round decodes the same tokens of a routing trace
three times, who begins goes round, and what is resident stays. Wanted: the split is never slower than the better of the
other two by more than 3%.
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from drawn_model import Formats
from engine_decode import REAL, TINY, WARM, Decoding, Drawn, curve_of, learned
from expert_pool import host_blocks

from strata.experts.adaptive import AdaptSettings
from strata.experts.gpu import GpuExperts, SplitPlan
from strata.experts.split import fixed_table
from strata.experts.traces import ADVERSE, TYPICAL, Curve
from strata.kernels.cubins import default_folder
from strata.kernels.device import Device
from strata.kernels.devices import open_device
from strata.kernels.native import Native

MODES = ("split", "cpu", "pcie")
LAYERS = 8
BUDGETS = (24.0, 12.0)
"""GiB for 48 layers."""
LEARNING, ROUNDS, TOKENS = 48, 8, 6
"""Steps before the first round, in which the split learns; rounds, and the tokens of each."""
CALLS = ((ADVERSE, 1), (TYPICAL, 1), (ADVERSE, 4))
"""Routing curves with numbers of streams."""

Seconds = Mapping[str, Sequence[Sequence[float]]]
"""By mode: of every round, of every step."""


@dataclass(frozen=True)
class Switch:
    """Lets a device's experts decide in one of the modes; recorded steps read the same tables in all of them."""

    experts: GpuExperts
    plan: SplitPlan

    def use(self, mode: str) -> None:
        """From the next step on."""
        plan = self.plan
        if mode == "split":
            self.experts.split, rows = plan, [plan.splits[size].table() for size in plan.sizes]
        else:
            most = plan.tables.shape[1] - 1
            self.experts.split, rows = (
                replace(plan, splits={}),
                [fixed_table(float(mode == "pcie"), most)] * len(plan.sizes),
            )
        plan.tables.copy_(torch.from_numpy(np.stack(rows)))


def compared(seconds: Seconds) -> dict[str, Any]:
    """Milliseconds of a step by mode, and the split's time over that of the better of the others."""
    totals = {mode: sum(map(sum, rounds)) for mode, rounds in seconds.items()}
    better = min(("cpu", "pcie"), key=lambda mode: totals[mode])
    each = sorted(sum(a) / sum(b) for a, b in zip(seconds["split"], seconds[better], strict=True))
    steps = {mode: [s for one in rounds for s in one] for mode, rounds in seconds.items()}
    return {
        "ms, mean": {mode: 1e3 * statistics.mean(found) for mode, found in steps.items()},
        "ms, median": {mode: 1e3 * statistics.median(found) for mode, found in steps.items()},
        "better alone": better,
        "split / better": totals["split"] / totals[better],
        "split / better, by medians": statistics.median(steps["split"]) / statistics.median(steps[better]),
        "by round: least, median, most": [each[0], statistics.median(each), each[-1]],
        "within 3%": totals["split"] <= 1.03 * totals[better],
    }


def in_turns(drawn: Drawn, slots: int, rounds: int, tokens: int) -> dict[str, Any]:
    """Rounds of `tokens` steps of `slots` streams in every mode."""
    experts, traced = drawn.experts, drawn.traced
    assert experts is not None and traced is not None
    experts.settings = AdaptSettings(every=0)
    switch, context = Switch(experts, experts.split), drawn.scale.context
    drawn.decoding = decoding = Decoding(drawn.runner(slots, context + 512), slots, context)
    drawn.steps(WARM + (LEARNING if rounds > 1 else 0))
    seconds: dict[str, list[list[float]]] = {mode: [] for mode in MODES}
    sent = np.zeros(3, np.int64)
    for turn in range(rounds):
        first = traced.token
        for mode in (MODES[(turn + i) % len(MODES)] for i in range(len(MODES))):
            switch.use(mode)
            traced.token = first
            experts.read_ledger()
            before = experts.counters.experts.sum(axis=0)
            seconds[mode].append([decoding.step() for _ in range(tokens)])
            experts.read_ledger()
            if mode == "split":
                sent += experts.counters.experts.sum(axis=0) - before
    switch.use("split")
    return {
        **compared(seconds),
        "experts of the split: VRAM, PCIe, CPU": sent.tolist(),
        "disagreement": experts.counters.disagreement(),
    }


def run(device: Device, out: dict[str, Any], threads: int | None = None) -> None:
    """What `benchmarks/device/all.py` calls."""
    native, began = Native(threads), time.perf_counter()
    emulated = device.torch_device.type == "cpu"
    scale = TINY if emulated else replace(REAL, layers=LAYERS)
    out["threads"] = native.threads
    drawn = Drawn(device, native, scale)
    drawn.draw(Formats("IQ3_S", "IQ4_NL"), host_blocks(device.torch_device))
    out["drawing s"] = round(time.perf_counter() - began, 1)
    calls: Sequence[tuple[Curve, int]] = CALLS[:1] if emulated else CALLS
    rounds, tokens = (1, 2) if emulated else (ROUNDS, TOKENS)
    for curve, slots in calls:
        trace = curve_of(curve, drawn.shape)
        for gib in BUDGETS[:1] if emulated else BUDGETS:
            name = f"{curve.name} {gib:g} GiB, {slots} streams"
            lines = drawn.place(1 / 1024 if emulated else gib * LAYERS / 48, learned(trace), trace)
            found = in_turns(drawn, slots, rounds, tokens)
            out[name] = {**found, **{key: lines[key] for key in ("cpu us of 1, 10", "pcie us of 1, 10")}}
    drawn.close()
    out["s"] = round(time.perf_counter() - began, 1)


def main() -> None:
    """Print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulator", action="store_true")
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    out: dict[str, Any] = {}
    run(open_device("emulator" if asked.emulator else "cuda", default_folder({})), out, asked.threads)
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
