"""Our rates at several budgets of VRAM, from one start: a JSON line for each test at each budget.

    PYTHONPATH=src python benchmarks/device/ours_at_budgets.py MODEL.gguf --limits LIMITS.json [--device cuda]

LIMITS.json is a list of {"layers_on_cpu", "kind" (decode or prompt), "size", "expert_mib", "most_mib"}: what llama.cpp
had. Experts start with the smallest of those budgets and get more as `POST /v1/vram` gives it, so that the model is
opened and its experts are pinned once. A run that had more VRAM at its peak than `most_mib` does not count; the experts
then give that back, and it is repeated. All experts in VRAM (`layers_on_cpu` 0) have no such limit.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vram_watch import VramWatch

from strata.assemble import Loaded, load
from strata.checks.prompts import drawn_ids
from strata.checks.rates import Bench
from strata.core.log import Level, Log
from strata.core.order import Order
from strata.experts.gpu import GpuExperts
from strata.plan.wishes import Wishes

EQUAL_MIB = 64
"""So much more at the peak still counts as equal."""
GENERATED = 64
TRIES = 3

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limit:
    """One test at one budget."""

    layers_on_cpu: int
    kind: str
    size: int
    expert_mib: int
    """For experts, before what else takes VRAM is known."""
    most_mib: int | None
    """That the card may have in use at the test's peak."""


class Budgets:
    """Runs the tests on a loaded model, budgets growing."""

    def __init__(self, loaded: Loaded, limits: list[Limit], repeats: int, deadline: float) -> None:
        self.loaded = loaded
        self.limits = sorted(limits, key=lambda limit: (-limit.layers_on_cpu, limit.kind))
        self.deadline = deadline
        vocabulary = loaded.model.shape.vocabulary
        longest = max(limit.size for limit in limits)
        self.bench = Bench(loaded.runner, drawn_ids(longest + 1, vocabulary, 1), loaded.plan.chunk, repeats, drawn=True)

    def run(self) -> None:
        """Every test, one line for each try."""
        spare = dict[str, int]()
        for limit in self.limits:
            for _ in range(TRIES):
                if time.monotonic() > self.deadline:
                    return
                asked = limit.expert_mib - spare.get(limit.kind, 0)
                arena_mib = self.resize(None if not limit.layers_on_cpu else asked)
                line = self.measure(limit, arena_mib)
                more = 0
                if limit.layers_on_cpu and limit.most_mib is not None and line["peak_vram_mib"] is not None:
                    more = line["peak_vram_mib"] - limit.most_mib
                line["counts"] = more <= EQUAL_MIB
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()
                if line["counts"]:
                    break
                # What experts leave of a budget must be taken from it first.
                spare[limit.kind] = spare.get(limit.kind, 0) + more + max(0, asked - arena_mib)

    def resize(self, mib: int | None) -> int:
        """Give experts so much VRAM (None: all that they need) -> MiB that they have."""
        cache, store = self.experts().cache, self.loaded.model.store
        there = sum(len(bank.gate) for bank in store.banks.values())
        found, wanted = cache.frames.nbytes >> 20, store.nbytes >> 20 if mib is None else max(mib, 0)
        if mib is not None or len(cache.frames.held) < there:
            found = self.loaded.runner.order(Order("vram", mib=wanted))["arena_mib"]
        while mib is None and len(cache.frames.held) < there:  # frames leave something of each block unused
            before, wanted = found, wanted + (cache.frames.block_bytes >> 20) + 1
            found = self.loaded.runner.order(Order("vram", mib=wanted))["arena_mib"]
            if found == before:
                raise SystemExit(f"{found} MiB hold {len(cache.frames.held)} of {there} experts, and there is no more")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return found

    def experts(self) -> GpuExperts:
        """The model's, placed on the device."""
        found = self.loaded.model.experts.inner
        assert isinstance(found, GpuExperts)
        return found

    def measure(self, limit: Limit, arena_mib: int) -> Line:
        """One test."""
        experts = self.experts()
        before, began = experts.status(), time.monotonic()
        with VramWatch() as watch:
            if limit.kind == "prompt":
                rates = self.bench.prompt(limit.size)
            else:
                rates = self.bench.decode(limit.size, 1, GENERATED)
        after = experts.status()
        ways = {key: int(str(after[key])) - int(str(before[key])) for key in ("hits", "misses_pcie", "misses_cpu")}
        return {
            "engine": "strata",
            "test": f"{limit.kind} {limit.size}",
            "layers_on_cpu": limit.layers_on_cpu,
            "rates": [round(rate, 2) for rate in rates.runs],
            "peak_vram_mib": watch.peak_mib,
            "expert_mib": arena_mib,
            "resident": after["resident"],
            "pinned_mib": int(str(after["pinned_bytes"])) >> 20,
            **ways,
            "wall_seconds": round(time.monotonic() - began, 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--limits", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=1800.0)
    asked = parser.parse_args()
    deadline = time.monotonic() + asked.seconds
    limits = [Limit(**each) for each in json.loads(asked.limits.read_text())]
    first = max(limits, key=lambda limit: limit.layers_on_cpu)
    wishes = Wishes(
        device=asked.device,
        kv_type="bf16",
        parallel=1,
        ctx_size=max(limit.size for limit in limits) + GENERATED,
        vram_gib=None if not first.layers_on_cpu else first.expert_mib / 1024,
    )
    loaded = load(asked.model, wishes, Log(Level.WARNING))
    plan = {choice.name: choice.value for choice in loaded.plan.choices}
    sys.stderr.write(f"loaded after {time.monotonic() - deadline + asked.seconds:.1f} s: {json.dumps(plan)}\n")
    Budgets(loaded, limits, asked.repeats, deadline).run()
    loaded.runner.close()


if __name__ == "__main__":
    main()
