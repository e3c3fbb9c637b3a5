"""How fast single kernels run, beside what the memory gives: medians of repeated samples after one that warms up."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

import numpy as np

from strata.checks.company import DISTURBED, Company
from strata.checks.kernel_cases import (
    Case,
    Measured,
    attention_case,
    delta_case,
    experts_case,
    linear_case,
    random_bank,
    random_weight,
    read_case,
)
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.native import FORMAT_CODES
from strata.kernels.views import KvType
from strata.quant.formats import FORMATS

SAMPLE_SECONDS = 0.02
"""A sample repeats its call until it lasted this long."""

MOST_CALLS = 2000
"""Of a sample."""

MOST_TRIES = 3
"""What other processes disturbed is measured again."""

KERNELS = ("read", "linear", "experts", "attention", "delta")
BANKS = ("IQ3_S+IQ4_NL", "Q4_K+Q6_K")
HEADS = ((32, 4, 128), (16, 2, 256))
"""Of Qwen3-30B-A3B, and of Qwen3-Next and Qwen3.5."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is measured."""

    kernels: Sequence[str] = KERNELS
    formats: Sequence[str] = tuple(FORMAT_CODES)
    rows: Sequence[int] = (1, 2, 4, 8, 32)
    contexts: Sequence[int] = (1024, 4096, 16384)
    kv_types: Sequence[KvType] = get_args(KvType)
    cols: int = 2048
    megabytes: int = 128
    """Of operands per case; more than three times the last-level cache, so that they come from memory."""
    repeats: int = 7


@dataclass(frozen=True, slots=True)
class KernelRate:
    """Seconds per call of every sample."""

    kernel: str
    shape: str
    rows: int
    nbytes: int
    macs: int
    seconds: tuple[float, ...]
    company: float | None = None
    """The share of the processors that other processes took meanwhile."""

    @property
    def gb_per_second(self) -> float:
        """Of what a call must read, by the median."""
        return self.nbytes / statistics.median(self.seconds) / 1e9

    def values(self, read: "KernelRate") -> dict[str, object]:
        """As plain values, with the share of the memory's own rate."""
        median = statistics.median(self.seconds)
        values: dict[str, object] = {
            "kernel": self.kernel,
            "shape": self.shape,
            "rows": self.rows,
            "milliseconds": {
                "median": median * 1e3,
                "min": min(self.seconds) * 1e3,
                "max": max(self.seconds) * 1e3,
                "samples": len(self.seconds),
            },
            "bytes": self.nbytes,
            "gb_per_second": self.gb_per_second,
            "read_gb_per_second": read.gb_per_second,
            "share_of_read": self.gb_per_second / read.gb_per_second,
            "company": self.company,
        }
        if self.macs:
            values["gmac_per_second"] = self.macs / median / 1e9
        return values


def measure(case: Case, repeats: int, ops: GpuOps | None = None) -> KernelRate:
    """Seconds per call, `repeats` times over as many calls as fill a sample; the least disturbed of a few tries.

    On the device of `ops` a sample is a program, which runs without the host between its calls.
    """
    once, sample = (timed, timed) if ops is None else (partial(waited, ops), partial(waited, ops))
    once(case, 1)
    count = min(MOST_CALLS, max(1, round(SAMPLE_SECONDS / once(case, 1))))
    if ops is not None and case.recordable:
        sample = Recorded(ops, case, count)
        sample(case, count)
    tries: list[KernelRate] = []
    while len(tries) < MOST_TRIES:
        company = Company()
        seconds = tuple(sample(case, count) for _ in range(repeats))
        share = company.share()
        tries.append(KernelRate(case.kernel, case.shape, case.rows, case.nbytes, case.macs, seconds, share))
        if share is None or share <= DISTURBED:
            break
    return min(tries, key=lambda rate: rate.company or 0.0)


def timed(case: Case, count: int) -> float:
    """Seconds per call over `count` calls."""
    calls = case.calls
    started = time.perf_counter()
    for _ in range(count):
        next(calls)()
    return (time.perf_counter() - started) / count


def waited(ops: GpuOps, case: Case, count: int) -> float:
    """Seconds per call over `count` calls, until the device is done with them."""
    calls = [next(case.calls) for _ in range(count)]
    ops.device.synchronize()
    started = time.perf_counter()
    for call in calls:
        call()
    ops.device.synchronize()
    return (time.perf_counter() - started) / count


class Recorded:
    """`count` calls of a case as one program, each on other operands as far as they go."""

    def __init__(self, ops: GpuOps, case: Case, count: int) -> None:
        self.ops = ops
        self.program = ops.device.program(False)
        with self.program.recording():
            for _ in range(count):
                next(case.calls)()

    def __call__(self, case: Case, count: int) -> float:
        """Seconds per call."""
        self.ops.device.synchronize()
        started = time.perf_counter()
        self.program.run()
        self.ops.device.synchronize()
        return (time.perf_counter() - started) / count


def linear_cases(ops: Measured, choice: Choice, rng: np.random.Generator) -> Iterator[Case]:
    """Products: formats x rows."""
    for name in choice.formats:
        row_bytes = FORMATS[name].row_bytes(choice.cols)
        weight = random_weight(name, -(-choice.megabytes * 1_000_000 // row_bytes), choice.cols, rng)
        for rows in choice.rows:
            yield linear_case(ops, weight, rows, rng)


def experts_cases(ops: Measured, choice: Choice, rng: np.random.Generator) -> Iterator[Case]:
    """A layer's experts: two mixes of formats x rows."""
    for name in BANKS:
        bank = random_bank(name, choice.megabytes, rng)
        for rows in choice.rows:
            yield experts_case(ops, bank, rows, rng)


def attention_cases(ops: Measured, choice: Choice, rng: np.random.Generator) -> Iterator[Case]:
    """Attention of one row: two shapes of heads x forms of keys and values x contexts."""
    for heads in HEADS:
        for kv_type in choice.kv_types:
            for context in choice.contexts:
                yield attention_case(ops, heads, kv_type, context, choice.megabytes, rng)


def delta_cases(ops: Measured, choice: Choice, rng: np.random.Generator) -> Iterator[Case]:
    """The delta rule: one token, a verify window, a part of a prompt."""
    for rows in (1, 4, 64):
        yield delta_case(ops, rows, choice.megabytes, rng)


def no_cases(ops: Measured, choice: Choice, rng: np.random.Generator) -> Iterator[Case]:
    """Nothing beside the memory's rate, which is always measured."""
    return iter(())


CASES: dict[str, Callable[[Measured, Choice, np.random.Generator], Iterator[Case]]] = {
    "read": no_cases,
    "linear": linear_cases,
    "experts": experts_cases,
    "attention": attention_cases,
    "delta": delta_cases,
}


def kernel_rates(ops: Measured, choice: Choice) -> Iterator[tuple[KernelRate, KernelRate]]:
    """(what was measured, the memory's rate as measured at the start); the first is the memory's rate itself."""
    device_ops = ops if isinstance(ops, GpuOps) else None
    reading = read_case(ops, choice.megabytes)
    read = measure(reading, choice.repeats, device_ops)
    yield read, read
    rng = np.random.default_rng(0)
    for kernel in choice.kernels:
        for case in CASES[kernel](ops, choice, rng):
            yield measure(case, choice.repeats, device_ops), read
