"""The whole engine on a GPU: the CPU's bits, and how fast a model of Flash-Next's shape reads and answers.

    python benchmarks/device/all.py --build --only whole_engine
    python benchmarks/device/whole_engine.py --emulator    # a dry run with tiny models, without a GPU

The weights are drawn (drawn_model.py, expert_pool.py), and so is what the caches hold of the context before. Each part
has a time limit and leaves the others alone when it fails; engine.json in $OUT (or in the current folder) is written
after every part.
"""

import argparse
import gc
import json
import os
import signal
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from drawn_model import Formats
from engine_decode import REAL, TINY, Drawn, Scale, curve_of, decode, learned
from engine_equal import assembled, equalities
from engine_prompt import prompt
from engine_trace import ahead, kernels, parts
from expert_pool import host_blocks
from timing import host_rate

from strata.experts.traces import ADVERSE, TYPICAL
from strata.kernels.cubins import default_folder
from strata.kernels.device import Device
from strata.kernels.devices import open_device
from strata.kernels.linear import pair
from strata.kernels.native import Native

TOTAL_S = 400.0
"""After so long no further part begins."""
FORMATS = {
    "IQ3_S": Formats("IQ3_S", "IQ4_NL"),
    "IQ4_NL": Formats("IQ4_NL", "IQ4_NL"),
    "Q4_K": Formats("Q4_K", "Q5_0"),
    "Q8_0": Formats("Q8_0", "Q8_0"),
}


def limited(seconds: float, work: Callable[[], Any]) -> Any:
    """The value of `work`; TimeoutError when it takes longer."""

    def alarm(*_: object) -> None:
        raise TimeoutError(f"longer than {seconds:g} s")

    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


class Report:
    """What the parts found, written down after each of them."""

    def __init__(self, out: dict[str, Any]) -> None:
        self.out = out
        self.began = time.monotonic()
        self.seconds: dict[str, float] = {}
        out["seconds of parts"] = self.seconds

    def part(self, name: str, seconds: float, work: Callable[[], Any]) -> bool:
        """Run a part and write down what it returns, or why it failed -> whether it did not."""
        began = time.monotonic()
        if began - self.began > TOTAL_S:
            self.out[name] = "left out: no time"
            return False
        failed = False
        try:
            found = limited(seconds, work)
            if found is not None:
                self.out[name] = found
        except Exception as error:  # noqa: BLE001 - whatever a part does, the others run
            failed = True
            lines = traceback.format_exc().splitlines()
            self.out[name] = {"error": f"{type(error).__name__}: {error}", "at": lines[-12:]}
        self.seconds[name] = round(time.monotonic() - began, 1)
        print(f"-- {name}: {self.seconds[name]} s{' FAILED' if failed else ''}", flush=True)
        path = Path(os.environ.get("OUT", ".")) / "engine.json"
        path.write_text(json.dumps(self.out, indent=1, default=str))
        return not failed


def place_all(drawn: Drawn) -> Any:
    """Every expert into VRAM; how many there are is known once they are drawn."""
    return drawn.place(drawn.all_gib)


def in_turns(drawn: Drawn) -> dict[str, list[dict[str, Any]]]:
    """Steps with codes and plain floats that read the same row in one launch, and in two, in turn: milliseconds."""
    found: dict[str, list[dict[str, Any]]] = {"one launch": [], "two": []}
    usual = pair.MOST_ROWS
    for _ in range(3):
        for name, rows in (("one launch", usual), ("two", 0)):
            pair.MOST_ROWS = rows
            try:
                step = decode(drawn, 1, 24)
            finally:
                pair.MOST_ROWS = usual
            line = {name: step[name] for name in ("step ms, median", "launches")}
            if drawn.last is not None and drawn.device.torch_device.type == "cuda":
                line |= ahead(drawn.last)
            found[name].append(line)
    return found


def resident(report: Report, drawn: Drawn) -> None:
    """All experts in VRAM: one stream and its parts, several streams, a prompt."""
    if not report.part("resident: placing", 40, partial(place_all, drawn)):
        return
    report.part("resident: 1 stream", 30, lambda: decode(drawn, 1, 48))
    if drawn.last is not None:
        runner, steps = drawn.last, drawn.steps
        if drawn.device.torch_device.type == "cuda":
            report.part("resident: host", 10, lambda: ahead(runner))
        report.part("resident: parts ms", 15, lambda: parts(runner, steps))
    report.part("resident: codes and plain floats in turns", 40, partial(in_turns, drawn))
    for slots in (2, 4, 8):
        report.part(f"resident: {slots} streams", 20, partial(decode, drawn, slots, 24))
    for chunk in drawn.scale.chunks:
        report.part(f"resident: prompt by {chunk}", 30, partial(prompt, drawn, chunk, 8.0))


def budgets(report: Report, drawn: Drawn) -> None:
    """Decoding and a prompt behind budgets of VRAM, with both routing curves."""
    host = host_rate(drawn.native)
    report.out["host GB/s"] = host
    # A tiny model's few experts cannot have favourites.
    for curve in (TYPICAL, ADVERSE) if drawn.scale is REAL else (ADVERSE,):
        trace = curve_of(curve, drawn.shape)
        for gib in (24.0, 12.0) if drawn.scale is REAL else (24.0, 1 / 1024):
            name = f"{curve.name} {gib:g} GiB"
            if not report.part(f"{name}: placing", 40, partial(drawn.place, gib, learned(trace), trace)):
                continue
            report.part(f"{name}: 1 stream", 25, lambda: decode(drawn, 1, 96, host))
            if gib == 24.0 and (curve is TYPICAL or drawn.scale is TINY):
                for slots in (2, 4, 8):
                    report.part(f"{name}: {slots} streams", 20, partial(decode, drawn, slots, 32, host))
                for chunk in drawn.scale.chunks[1:]:
                    report.part(f"{name}: prompt by {chunk}", 30, partial(prompt, drawn, chunk, 8.0))


def profiles(report: Report, drawn: Drawn) -> None:
    """Kernels of resident steps and of steps behind 24 GiB: last, for launches cost 0.2 to 0.4 ms a step more from the
    moment that torch's profiler was in a process."""
    trace = curve_of(TYPICAL, drawn.shape)
    for name, place in (
        ("resident", partial(place_all, drawn)),
        (f"{TYPICAL.name} 24 GiB", partial(drawn.place, 24.0, learned(trace), trace)),
    ):
        if report.part(f"{name}: placing again", 40, place):
            report.part(f"{name}: again", 25, partial(decode, drawn, 1, 24))
            report.part(f"{name}: profile", 30, lambda: kernels(drawn.steps))


def with_drawn(device: Device, native: Native, scale: Scale, work: Callable[[Drawn], None]) -> None:
    """`work` on a drawn model, whose memory is free again behind it."""
    drawn = Drawn(device, native, scale)
    work(drawn)
    drawn.close()
    del drawn
    gc.collect()
    if device.torch_device.type == "cuda":
        torch.cuda.empty_cache()


def run(device: Device, out: dict[str, Any], thorough: bool = False) -> None:
    """What `benchmarks/device/all.py` calls; `thorough`: bits of all architectures at all placements, a minute more."""
    report, native = Report(out), Native()
    out["threads"] = native.threads
    equal: dict[str, object] = {}
    out["equal"] = equal
    report.part("equal", 100, lambda: equalities(device, native, equal, thorough))
    report.part("assembled", 40, lambda: assembled(device))
    emulated = device.torch_device.type == "cpu"
    scale, blocks = TINY if emulated else REAL, host_blocks(device.torch_device)

    def timed(name: str, formats: Formats, drawn: Drawn) -> None:
        if not report.part(f"{name}: drawing", 40, partial(drawn.draw, formats, blocks)):
            return
        if name == "IQ3_S":
            resident(report, drawn)
            budgets(report, drawn)
        elif report.part(f"{name}: placing", 40, partial(place_all, drawn)):
            report.part(f"{name}: resident, 1 stream", 25, partial(decode, drawn, 1, 96))

    def profiled(drawn: Drawn) -> None:
        if report.part("drawing again", 40, partial(drawn.draw, FORMATS["IQ3_S"], blocks)):
            profiles(report, drawn)

    for name, formats in FORMATS.items():
        with_drawn(device, native, scale, partial(timed, name, formats))
    if not emulated:
        with_drawn(device, native, scale, profiled)


def main() -> None:
    """Print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulator", action="store_true")
    parser.add_argument("--thorough", action="store_true")
    asked = parser.parse_args()
    out: dict[str, Any] = {}
    run(open_device("emulator" if asked.emulator else "cuda", default_folder({})), out, asked.thorough)
    print(json.dumps(out, indent=1, default=str))


if __name__ == "__main__":
    main()
