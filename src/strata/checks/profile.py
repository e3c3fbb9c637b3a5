"""Where the time of a decode step goes: its parts as the recorded step times them, the rest as the host sees it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from strata.checks.rates import Bench
from strata.core.errors import UsageError
from strata.kernels.step_program import Timing
from strata.runtime.stages import kind_of


@dataclass(frozen=True, slots=True)
class Profile:
    """Milliseconds of one step, the mean of all timed ones."""

    context: int
    slots: int
    steps: int
    operations: int
    """Of one step; launches, on a device."""
    parts: Mapping[str, float]
    """By kind of layer, largest first."""
    by_operation: Mapping[str, float]
    """By name, largest first; empty where operations are not told apart."""
    reserve: float
    gaps: float
    """Between and around the operations, until the logits can be read."""
    sample: float
    commit: float

    @property
    def total(self) -> float:
        """A whole step."""
        return sum(self.parts.values()) + self.reserve + self.gaps + self.sample + self.commit

    def values(self) -> dict[str, object]:
        """As plain values."""
        return {
            "context": self.context,
            "slots": self.slots,
            "steps": self.steps,
            "operations_per_step": self.operations,
            "milliseconds": {**self.parts, **self.host()},
            "operation_milliseconds": dict(self.by_operation),
            "step_milliseconds": self.total,
        }

    def host(self) -> dict[str, float]:
        """What is not in an operation."""
        return {"gaps": self.gaps, "sample": self.sample, "reserve": self.reserve, "commit": self.commit}


def profile(bench: Bench, context: int, slots: int, tokens: int) -> Profile:
    """Decode `tokens` tokens behind `context` in each of `slots` slots, `bench.repeats` times after two that warm up.

    UsageError where steps are not recorded and cannot be timed. From now on the runner's steps stay timed.
    """
    runner = bench.runner
    starts = [bench.prepared(slot, context) for slot in range(slots)]
    runner.forwarder.time()
    for _ in range(2):
        # On a device it is the second step of a shape that is recorded.
        bench.decode_once(starts, tokens)
    before, spent = runner.forwarder.times(), replace(runner.spent)
    if not before:
        raise UsageError("--profile: steps of these operations are not recorded", "leave --isa naive out")
    for _ in range(bench.repeats):
        bench.decode_once(starts, tokens)
    steps = bench.repeats * tokens
    after = runner.forwarder.times()
    host = runner.spent.since(spent)
    timed = [Timing(b.part, b.operation, b.nanoseconds - a.nanoseconds) for a, b in zip(before, after, strict=True)]
    parts = milliseconds([(kind_of(t.part), t.nanoseconds) for t in timed], steps)
    return Profile(
        context=context,
        slots=slots,
        steps=steps,
        operations=sum(len(known.program) for known in runner.forwarder.recorded.values()),
        parts=parts,
        by_operation=milliseconds([(t.operation, t.nanoseconds) for t in timed if t.operation], steps),
        reserve=host.reserve / steps / 1e6,
        gaps=host.run / steps / 1e6 - sum(parts.values()),
        sample=host.draw / steps / 1e6,
        commit=host.commit / steps / 1e6,
    )


def milliseconds(times: Sequence[tuple[str, int]], steps: int) -> dict[str, float]:
    """Milliseconds per step by name, largest first."""
    total: Counter[str] = Counter()
    for name, nanoseconds in times:
        total[name] += nanoseconds
    return {name: nanoseconds / steps / 1e6 for name, nanoseconds in total.most_common()}
