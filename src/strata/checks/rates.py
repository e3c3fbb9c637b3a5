"""Decode and prompt rates of the runner: medians of repeated runs after a warm-up.

Nothing but the runner is timed: no scheduler, no tokenizer, no server. A decode run starts from a snapshot, so that
the prompt is read once, and picks tokens greedily, so that experts are routed as in an answer; or it is fed drawn ids,
as other engines' benchmarks do it.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from strata.core.window import Window
from strata.experts.gpu import GpuExperts
from strata.kernels.cpu_ops import CpuOps
from strata.models.weights import dense_bytes
from strata.runtime.runner import DeviceRunner
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
    first: float
    """The rate of the run that warms up: a cold one when the file was not in memory."""
    rows_per_step: float
    distinct_experts_per_step: float | None
    """Over all layers; None where it is not counted."""
    bytes_per_step: float | None
    """Weights read; None where it is not counted."""
    state_bytes_per_step: float
    """Keys, values and recurrent states of the slots, read (and recurrent ones written); prompts: at their middle."""

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
            "first": self.first,
            "steps": self.steps,
            "rows_per_step": self.rows_per_step,
            "distinct_experts_per_step": self.distinct_experts_per_step,
            "bytes_per_step": self.bytes_per_step,
            "state_bytes_per_step": self.state_bytes_per_step,
        }


def share_of_bytes(one: Rates, many: Rates) -> float | None:
    """What `many` slots reach of what their bytes allow: rate(n) / (n rate(1) bytes(1) / bytes(n)).

    Bytes are the weights, each distinct expert once, and the state of every slot. 1 = a step takes as long per byte
    as with one slot; None where bytes are not counted.
    """
    if not one.bytes_per_step or not many.bytes_per_step:
        return None
    alone = one.bytes_per_step + one.state_bytes_per_step
    together = many.bytes_per_step + many.state_bytes_per_step
    allowed = many.slots / one.slots * statistics.median(one.runs) * alone / together
    return statistics.median(many.runs) / allowed


@dataclass(frozen=True, slots=True)
class Start:
    """Where a decode run begins."""

    snapshot: Snapshot
    token: int
    """Follows what the snapshot holds."""


class Bench:
    """Times one runner on fixed tokens. `repeats` runs count; one more before them warms up and does not."""

    def __init__(
        self, runner: DeviceRunner, reading: Sequence[int], chunk: int, repeats: int, drawn: bool = False
    ) -> None:
        self.runner = runner
        self.reading = reading
        self.chunk = chunk
        self.repeats = repeats
        self.drawn = drawn
        """Whether a decode run is fed ids drawn with a fixed seed, and not the model's own choices."""

    def decode(self, context: int, slots: int, tokens: int) -> Rates:
        """`tokens` tokens in each of `slots` slots that hold `context` tokens each (0: none)."""
        starts = [self.prepared(slot, context) for slot in range(slots)]
        first, runs, work = self.repeated(lambda: self.decode_once(starts, tokens))
        rates = tuple(slots * tokens / s for s in runs)
        experts, weights = self.per_step(work, tokens)
        state = slots * self.state_bytes(context + tokens / 2)
        return Rates(
            context, slots, tokens, tokens, rates, slots * tokens / first, float(slots), experts, weights, state
        )

    def prompt(self, context: int) -> Rates:
        """Reading a prompt of `context` tokens in chunks."""
        steps = -(-context // self.chunk)
        first, runs, work = self.repeated(lambda: self.read_once(context))
        rates = tuple(context / s for s in runs)
        experts, weights = self.per_step(work, steps)
        state = self.state_bytes(context / 2)
        return Rates(context, 1, context, steps, rates, context / first, context / steps, experts, weights, state)

    def per_step(self, work: Work, steps: int) -> tuple[float | None, float | None]:
        """(distinct experts, bytes of weights) per step of all counted runs."""
        if isinstance(self.runner.model.experts.inner, GpuExperts):
            dense = dense_bytes(self.runner.model)
            return work.experts / (self.repeats * steps), work.bytes / (self.repeats * steps) + dense
        if not isinstance(self.runner.ops, CpuOps):
            return None, None
        return work.experts / (self.repeats * steps), work.bytes / (self.repeats * steps)

    def state_bytes(self, tokens: float) -> float:
        """What a step moves of the state of one slot that holds `tokens` tokens."""
        layouts = self.runner.model.layouts
        kv_type = self.runner.states.kv_type
        recurrent = sum(layout.sequence_bytes() for layout in layouts)
        return tokens * sum(layout.token_bytes(kv_type) for layout in layouts) + 2 * recurrent

    def repeated(self, run: Callable[[], float]) -> tuple[float, list[float], Work]:
        """Seconds of the run that warms up and of each counted run, and what those read together."""
        first = run()
        before = self.work()
        seconds = [run() for _ in range(self.repeats)]
        return first, seconds, self.work().since(before)

    def prepared(self, slot: int, context: int) -> Start:
        """A slot that has read `context` tokens, other ones in every slot."""
        turned = [*self.reading[slot:], *self.reading[:slot]]
        if context == 0:
            self.runner.states.clear(slot)
            return Start(self.runner.states.snapshot(slot), turned[0])
        token = self.read(slot, turned[:context])
        return Start(self.runner.states.snapshot(slot), token)

    def decode_once(self, starts: Sequence[Start], tokens: int) -> float:
        """Seconds of one run."""
        size = self.runner.model.shape.vocabulary
        draw = random.Random(0)
        runner, last = self.runner, {}
        for slot, start in enumerate(starts):
            runner.seat(slot, start.snapshot.tokens.tolist(), SamplingParams())
            runner.forget(slot)
            runner.states.restore(slot, start.snapshot)
            last[slot] = start.token
        started = time.perf_counter()
        for _ in range(tokens):
            windows = [Window(slot, runner.states.length[slot], (token,), 1) for slot, token in last.items()]
            for result in runner.step(windows):
                last[result.slot] = draw.randrange(size) if self.drawn else result.drawn[-1].token
        return time.perf_counter() - started

    def read_once(self, context: int) -> float:
        """Seconds of one read."""
        started = time.perf_counter()
        self.read(0, self.reading[:context])
        return time.perf_counter() - started

    def read(self, slot: int, tokens: Sequence[int]) -> int:
        """Read `tokens` into the emptied slot -> the token that follows them."""
        self.runner.seat(slot, tokens, SamplingParams())
        self.runner.forget(slot)  # what is kept of earlier reads is not to be timed, and its pages are needed
        results = [self.runner.step([window])[0] for window in chunked(slot, tokens, self.chunk)]
        return results[-1].drawn[0].token

    def work(self) -> Work:
        """What the kernels have read so far; on a device experts alone, `per_step` adds the weights of every step."""
        experts = self.runner.model.experts.inner
        if isinstance(experts, GpuExperts):
            experts.read_ledger()
            sizes = {layer: int(nbytes) for layer, nbytes in enumerate(experts.cache.sizes)}
            return Work(int(experts.counters.experts.sum()), sum(experts.counters.bytes_by_way(sizes).values()))
        if not isinstance(self.runner.ops, CpuOps):
            return Work(0, 0)
        native = self.runner.ops.native
        return Work(native.distinct_experts, native.expert_bytes + native.product_bytes)


def chunked(slot: int, tokens: Sequence[int], chunk: int) -> Iterator[Window]:
    """The windows of a read."""
    for start in range(0, len(tokens), chunk):
        part = tuple(tokens[start : start + chunk])
        yield Window(slot, start, part, int(start + len(part) == len(tokens)))
