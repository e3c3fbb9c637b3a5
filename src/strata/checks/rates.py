"""Decode and prompt rates of the CPU runner: medians of repeated runs after a warm-up.

Nothing but the runner is timed: no scheduler, no tokenizer, no server. A decode run starts from a snapshot, so that
the prompt is read once, and picks tokens greedily, so that experts are routed as in an answer.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from strata.core.window import Window
from strata.kernels.cpu_ops import CpuOps
from strata.runtime.runner import CpuRunner
from strata.sampling.params import SamplingParams
from strata.state.sequence import Snapshot


@dataclass(frozen=True, slots=True)
class Work:
    """What the kernels have read so far; zeros where they do not count (the naive ones)."""

    experts: int
    bytes: int

    def since(self, before: "Work") -> "Work":
        """The difference."""
        return Work(self.experts - before.experts, self.bytes - before.bytes)


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens per second of every run, in order, and what a step read."""

    context: int
    slots: int
    tokens: int
    """Tokens per slot and run."""
    steps: int
    """Steps per run."""
    runs: tuple[float, ...]
    rows_per_step: float
    distinct_experts_per_step: float | None
    """Over all layers; None where it is not counted."""
    bytes_per_step: float | None
    """Weights read; None where it is not counted."""

    def values(self) -> dict[str, object]:
        """As plain values: median, least and most."""
        return {
            "context": self.context,
            "slots": self.slots,
            "tokens": self.tokens,
            "tokens_per_second": {
                "median": statistics.median(self.runs),
                "min": min(self.runs),
                "max": max(self.runs),
            },
            "runs": list(self.runs),
            "steps": self.steps,
            "rows_per_step": self.rows_per_step,
            "distinct_experts_per_step": self.distinct_experts_per_step,
            "bytes_per_step": self.bytes_per_step,
        }


@dataclass(frozen=True, slots=True)
class Start:
    """Where a decode run begins."""

    snapshot: Snapshot
    token: int
    """Follows what the snapshot holds."""


class Bench:
    """Times one runner on fixed tokens. `repeats` runs count; one more before them warms up and does not."""

    def __init__(self, runner: CpuRunner, reading: Sequence[int], chunk: int, repeats: int) -> None:
        self.runner = runner
        self.reading = reading
        self.chunk = chunk
        self.repeats = repeats

    def decode(self, context: int, slots: int, tokens: int) -> Rates:
        """`tokens` greedy tokens in each of `slots` slots that hold `context` tokens each."""
        starts = [self.prepared(slot, context) for slot in range(slots)]
        runs, work = self.repeated(lambda: self.decode_once(starts, tokens))
        rates = tuple(slots * tokens / s for s in runs)
        return self.rates(context, slots, tokens, tokens, rates, work, float(slots))

    def prompt(self, context: int) -> Rates:
        """Reading a prompt of `context` tokens in chunks."""
        steps = -(-context // self.chunk)
        runs, work = self.repeated(lambda: self.read_once(context))
        rates = tuple(context / s for s in runs)
        return self.rates(context, 1, context, steps, rates, work, context / steps)

    def rates(
        self, context: int, slots: int, tokens: int, steps: int, runs: tuple[float, ...], work: Work, rows: float
    ) -> Rates:
        """The figures of all counted runs."""
        counted = isinstance(self.runner.ops, CpuOps)
        each = self.repeats * steps
        experts = work.experts / each if counted else None
        return Rates(context, slots, tokens, steps, runs, rows, experts, work.bytes / each if counted else None)

    def repeated(self, run: Callable[[], float]) -> tuple[list[float], Work]:
        """Seconds of each counted run, and what they read together."""
        run()
        before = self.work()
        seconds = [run() for _ in range(self.repeats)]
        return seconds, self.work().since(before)

    def prepared(self, slot: int, context: int) -> Start:
        """A slot that has read `context` tokens, other ones in every slot."""
        turned = [*self.reading[slot:], *self.reading[:slot]][:context]
        token = self.read(slot, turned)
        return Start(self.runner.states.snapshot(slot), token)

    def decode_once(self, starts: Sequence[Start], tokens: int) -> float:
        """Seconds of one run."""
        runner, last = self.runner, {}
        for slot, start in enumerate(starts):
            runner.seat(slot, start.snapshot.tokens.tolist(), SamplingParams())
            runner.states.restore(slot, start.snapshot)
            last[slot] = start.token
        started = time.perf_counter()
        for _ in range(tokens):
            windows = [Window(slot, runner.states.length[slot], (token,), 1) for slot, token in last.items()]
            for result in runner.step(windows):
                last[result.slot] = result.drawn[-1].token
        return time.perf_counter() - started

    def read_once(self, context: int) -> float:
        """Seconds of one read."""
        started = time.perf_counter()
        self.read(0, self.reading[:context])
        return time.perf_counter() - started

    def read(self, slot: int, tokens: Sequence[int]) -> int:
        """Read `tokens` into the emptied slot -> the token that follows them."""
        self.runner.seat(slot, tokens, SamplingParams())
        self.runner.states.clear(slot)
        results = [self.runner.step([window])[0] for window in chunked(slot, tokens, self.chunk)]
        return results[-1].drawn[0].token

    def work(self) -> Work:
        """What the kernels have read so far."""
        if not isinstance(self.runner.ops, CpuOps):
            return Work(0, 0)
        native = self.runner.ops.native
        return Work(native.distinct_experts, native.expert_bytes + native.product_bytes)


def chunked(slot: int, tokens: Sequence[int], chunk: int) -> Iterator[Window]:
    """The windows of a read."""
    for start in range(0, len(tokens), chunk):
        part = tuple(tokens[start : start + chunk])
        yield Window(slot, start, part, int(start + len(part) == len(tokens)))
