"""This machine's rates, measured once and kept: what forecasts are made from."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from strata.checks.company import DISTURBED
from strata.checks.facts import processor
from strata.checks.kernel_cases import linear_case, random_weight, read_case
from strata.checks.kernel_rates import KernelRate, measure
from strata.kernels.cpu_ops import CpuOps
from strata.plan.forecast import Rates
from strata.quant.formats import FORMATS

Told = Callable[[str, int, int], None]
"""(what is measured, how many were, of how many)"""

VERSION = 1
MEGABYTES, COLS, MANY_ROWS, REPEATS = 128, 2048, 64, 3


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
        """GB/s of "read", and of every format as "FORMAT, 1 row"; 10^9 multiply-adds as "FORMAT, rows"."""
        return self.known.get(self.key, {})

    def need(self, formats: Iterable[str], ops: CpuOps, told: Told, again: bool = False) -> Rates:
        """The rates of these formats; what is missing (or everything, `again`) is measured first and kept."""
        names = sorted(set(formats))
        wanted = ["read", *names] if again else [n for n in ("read", *names) if self._key_of(n) not in self.here]
        rng = np.random.default_rng(0)
        for done, name in enumerate(wanted):
            told(name, done, len(wanted))
            self._measure(name, ops, rng)
        if wanted:
            told("", len(wanted), len(wanted))
            self._write()
        here = self.here
        gbs = {name: here[f"{name}, 1 row"] for name in names}
        return Rates(here["read"], gbs, {name: here[f"{name}, rows"] for name in names})

    @staticmethod
    def _key_of(name: str) -> str:
        return name if name == "read" else f"{name}, rows"

    def _measure(self, name: str, ops: CpuOps, rng: np.random.Generator) -> None:
        rates = self.known.setdefault(self.key, {})
        if name == "read":
            rates["read"] = self._quiet(measure(read_case(ops, MEGABYTES), REPEATS)).gb_per_second
            return
        weight = random_weight(name, MEGABYTES * 1_000_000 // FORMATS[name].row_bytes(COLS), COLS, rng)
        rates[f"{name}, 1 row"] = self._quiet(measure(linear_case(ops, weight, 1, rng), REPEATS)).gb_per_second
        many = self._quiet(measure(linear_case(ops, weight, MANY_ROWS, rng), 1))
        rates[f"{name}, rows"] = many.macs / min(many.seconds) / 1e9

    def _quiet(self, rate: KernelRate) -> KernelRate:
        """`rate`, and a note of company."""
        self.disturbed |= rate.company is not None and rate.company > DISTURBED
        return rate

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"version": VERSION, "cpu": processor(), "rates": self.known}, indent=1)
        part = self.path.with_suffix(".part")
        part.write_text(text + "\n")
        os.replace(part, self.path)
