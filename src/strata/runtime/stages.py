"""Which stages the time of steps goes into.

One step of many is timed from within, and the others of its shape are taken to spend their time as it did. So the
stages of all steps add up to the time of all steps, and looking costs next to nothing.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from strata.kernels.step_program import Timing

KINDS = {
    "embed": "embed",
    "attn_norm": "norms",
    "ffn_norm": "norms",
    "attention": "mixer",
    "delta_net": "mixer",
    "router": "router",
    "routed": "experts",
    "moe": "shared expert",
    "shared": "shared expert",
    "ffn": "dense feed-forward",
    "ple": "n-gram embedding",
    "hyper_attn": "streams",
    "hyper_ffn": "streams",
    "output_norm": "head",
    "output_hyper": "head",
    "head": "head",
    "draw": "sample on the device",
}
"""By the first word of the part, after the layer's number; "norms" have the residual's addition in them."""
WITHIN = ("mixer", "experts", "wait", "head", "sample")
"""What is told apart: attention and delta nets; routed experts; the device's wait for those that the CPU computes; the
output's norm and logits; the choice of tokens. Everything else of a step is "rest"."""
OF_KIND = {"mixer": "mixer", "experts": "experts", "head": "head", "sample on the device": "sample"}

EVERY = 64
"""Recorded steps of a shape of which one is timed."""
EVERY_APART = 512
"""The same on a device, where it takes a millisecond or two to read some hundred events."""
EVERY_CHUNK = 16
"""Prompt chunks of which one is timed on a device, which has to be waited for at every part of such a step. The first
is not: it may wait for kernels."""


def kind_of(part: str) -> str:
    """The kind of layer that closed `part`, "other" for what is not known."""
    leaf = part.split(".", 2)[2] if part.startswith("blk.") else part
    return KINDS.get(leaf.split(".")[0], "other")


@cache
def stage_of(part: str) -> str:
    """The stage of `part`."""
    return OF_KIND.get(kind_of(part), "rest")


def by_stage(times: Iterable[Timing]) -> dict[str, int]:
    """Nanoseconds by stage."""
    found = dict.fromkeys((*WITHIN, "rest"), 0)
    for timing in times:
        found[stage_of(timing.part)] += timing.nanoseconds
    return found


@dataclass(slots=True)
class Alike:
    """Steps that are taken to spend their time alike."""

    every: int
    """One of so many is timed."""
    left: int = 1
    """Steps until the next of them."""
    parts: Mapping[str, int] | None = None
    """Nanoseconds by stage of the step that has just run, where it was timed."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of the last timed one's run, by stage; none before there was one."""

    def due(self) -> bool:
        """Whether the step that begins now is to be timed."""
        self.parts = None  # of a step that failed
        self.left -= 1
        if self.left > 0:
            return False
        self.left = self.every
        return True


class StageClock:
    """A Mark (layers/batch.py) that times a step which runs op by op."""

    def __init__(self, wait: Callable[[], None]) -> None:
        """`wait` returns when all that was asked for is done."""
        self.parts = dict.fromkeys((*WITHIN, "rest"), 0)
        self._wait = wait
        self._at = time.perf_counter_ns()

    def __call__(self, part: str) -> None:
        """All since the last call was `part`."""
        self._wait()
        now = time.perf_counter_ns()
        self.parts[stage_of(part)] += now - self._at
        self._at = now


class Stages:
    """Nanoseconds of all steps so far."""

    def __init__(self) -> None:
        self.whole = 0
        """Of the steps, from outside."""
        self.within = dict.fromkeys(WITHIN, 0.0)
        self.timed = 0
        """Steps that were timed from within."""

    def step(self, alike: Alike, run: int, whole: int) -> None:
        """A step took `whole`, of which from the first operation to its results `run`."""
        if alike.parts is not None:
            alike.shares = {stage: alike.parts[stage] / run for stage in WITHIN if alike.parts[stage]}
            alike.parts = None
            self.timed += 1
        self.whole += whole
        for stage, share in alike.shares.items():
            self.within[stage] += share * run

    def seconds(self, drawn: int) -> dict[str, float]:
        """By stage, their sum being that of all steps; `drawn` nanoseconds went into tokens chosen on the host."""
        within = {**self.within, "sample": self.within["sample"] + drawn}
        return {name: ns / 1e9 for name, ns in {**within, "rest": self.whole - sum(within.values())}.items()}
