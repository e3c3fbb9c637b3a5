"""This machine's rates, measured once and kept: what forecasts are made from."""

import json
import mmap
import os
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from strata.checks.company import DISTURBED
from strata.checks.facts import processor
from strata.checks.kernel_cases import linear_case, random_weight, read_case
from strata.checks.kernel_rates import KernelRate, measure
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.views import Weight
from strata.plan.forecast import Rates
from strata.quant.formats import FORMATS

Told = Callable[[str, int, int], None]
"""(what is measured, how many were, of how many)"""

VERSION = 2
MEGABYTES, COLS, MANY_ROWS, REPEATS = 128, 2048, 64, 3
CALL = ("Q8_0", 64, 256)
"""A product that takes as long as any takes at least: format, rows, columns."""


SINGLE = ("read", "call")
"""What is measured beside formats."""


def in_small_pages(weight: Weight) -> Weight:
    """The same weight in pages of 4 KiB, as the system's cache of a model's file has: large arrays lie in larger ones,
    which a product reads 10 to 25% faster.
    """
    codes, *scales = weight.planes
    pages = mmap.mmap(-1, codes.numel())
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    copy = np.frombuffer(pages, np.uint8).reshape(tuple(codes.shape))
    copy[:] = codes.numpy()
    return replace(weight, planes=(torch.from_numpy(copy), *scales))


class Measured:
    """Rates by threads and instruction set, in `folder`/rates.json; what another processor measured is dropped."""

    def __init__(self, folder: Path, threads: int, isa: str) -> None:
        self.path = folder / "rates.json"
        self.key = f"{threads} threads, {isa}"
        self.known: dict[str, dict[str, float]] = self._read()
        self.disturbed = False
        """Other processes were busy while something was measured here."""

    def _read(self) -> dict[str, dict[str, float]]:
        try:
            found = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        if not isinstance(found, dict) or found.get("version") != VERSION or found.get("cpu") != processor():
            return {}
        rates = found.get("rates")
        return rates if isinstance(rates, dict) else {}

    @property
    def here(self) -> Mapping[str, float]:
        """GB/s of "read" and of every format as "FORMAT, 1 row"; 10^9 multiply-adds as "FORMAT, rows"; us of "call"."""
        return self.known.get(self.key, {})

    def need(self, formats: Iterable[str], ops: CpuOps, told: Told, again: bool = False) -> Rates:
        """The rates of these formats; what is missing (or everything, `again`) is measured first and kept.

        What was measured while others were busy is not kept, unless it was asked for `again`: it is tried once more.
        """
        names = sorted(set(formats))
        every = (*SINGLE, *names)
        wanted = [name for name in every if again or self._key_of(name) not in self.here]
        passing = set[str]()
        rng = np.random.default_rng(0)
        for done, name in enumerate(wanted):
            told(name, done, len(wanted))
            if self._measure(name, ops, rng) and not again:
                passing |= {self._key_of(name), f"{name}, 1 row"}
        if wanted:
            told("", len(wanted), len(wanted))
            self._write(passing)
        here = self.here
        gbs = {name: here[f"{name}, 1 row"] for name in names}
        return Rates(here["read"], gbs, {name: here[f"{name}, rows"] for name in names}, here["call"])

    @staticmethod
    def _key_of(name: str) -> str:
        return name if name in SINGLE else f"{name}, rows"

    def _measure(self, name: str, ops: CpuOps, rng: np.random.Generator) -> bool:
        """Measure what goes by one name; whether others were busy meanwhile."""
        rates = self.known.setdefault(self.key, {})
        if name == "read":
            read = measure(read_case(ops, MEGABYTES), REPEATS)
            rates["read"] = read.gb_per_second
            return self._disturbed(read)
        if name == "call":
            kind, rows, cols = CALL
            call = measure(linear_case(ops, random_weight(kind, rows, cols, rng), 1, rng), REPEATS)
            rates["call"] = statistics.median(call.seconds) * 1e6
            return self._disturbed(call)
        num_rows = MEGABYTES * 1_000_000 // FORMATS[name].row_bytes(COLS)
        weight = in_small_pages(random_weight(name, num_rows, COLS, rng))
        one = measure(linear_case(ops, weight, 1, rng), REPEATS)
        many = measure(linear_case(ops, weight, MANY_ROWS, rng), 1)
        rates[f"{name}, 1 row"] = one.gb_per_second
        rates[f"{name}, rows"] = many.macs / min(many.seconds) / 1e9
        return self._disturbed(one, many)

    def _disturbed(self, *measured: KernelRate) -> bool:
        """Whether one of them had company, which is noted."""
        found = any(rate.company is not None and rate.company > DISTURBED for rate in measured)
        self.disturbed |= found
        return found

    def _write(self, passing: Collection[str]) -> None:
        """Keep all that is known here but for what is `passing`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = {
            key: {name: rates[name] for name in rates if key != self.key or name not in passing}
            for key, rates in self.known.items()
        }
        text = json.dumps({"version": VERSION, "cpu": processor(), "rates": kept}, indent=1)
        part = self.path.with_suffix(".part")
        part.write_text(text + "\n")
        os.replace(part, self.path)
