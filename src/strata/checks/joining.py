"""`bench join`: what streams feel of prompts that join them, and a short prompt of the long one before it.

Everything runs on one engine in this process, so the times are those of the engine alone: no server, no tokenizer.
Prompts are cold: no part begins like another.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strata.assemble import Loaded
from strata.checks.batch import counts
from strata.checks.crowd import Answer, Crowd, Moment, Part
from strata.checks.engines import running
from strata.checks.runners import keeping
from strata.core.errors import StrataError
from strata.engine.engine import EngineSettings
from strata.engine.pace import STEPS
from strata.engine.request import Request

WARM = 8
"""Tokens that streams say before prompts join, and prompts after they were read: then decode steps are measured."""
DELAY_S = 0.005
"""After a chunk's end the next one has begun."""


@dataclass(frozen=True, slots=True)
class Joined:
    """What prompts that joined streams did to them, and they to the prompts."""

    streams: int
    prompts: tuple[int, ...]
    """Tokens of each."""
    bound_s: float
    """Longest gap that is allowed: the setting, or three decode steps."""
    decode_step_s: float
    """Median gap while nobody reads."""
    longest_gap_s: float
    """Of any stream, from the prompts' arrival to the last one's first token."""
    gaps_s: Mapping[str, float]
    """Median and 95th percentile of the same gaps."""
    least_tokens: int
    """What the stream that got least said in that time."""
    most_tokens: int
    alone_s: tuple[float, ...]
    """Time to first token of each prompt when nobody else is there."""
    together_s: tuple[float, ...]
    """The same beside the streams and each other."""
    rows_per_step: Mapping[int, int]

    @property
    def failure(self) -> str:
        """What is wrong; "" when nothing is."""
        if self.longest_gap_s > self.bound_s:
            return f"a stream waited {self.longest_gap_s * 1e3:.0f} ms (at most {self.bound_s * 1e3:.0f})"
        if 2 * self.least_tokens < self.most_tokens:
            return f"a stream starved: {self.least_tokens} tokens where another got {self.most_tokens}"
        return ""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A short prompt behind a long one that is being read."""

    slots: int
    long: int
    short: int
    read_s: float
    """Time to first token of the long prompt alone."""
    first_s: float
    """Time to first token of the short one behind it."""
    long_first_s: float
    """Time to first token of the long one, which was overtaken."""

    @property
    def share(self) -> float:
        """Of the long prompt's read."""
        return self.first_s / self.read_s


class Bed:
    """Runs crowds on fresh engines over one model, with the same settings."""

    def __init__(self, loaded: Loaded, settings: EngineSettings) -> None:
        self.loaded = loaded
        self.settings = settings

    def run(
        self, parts: Sequence[Part], slots: int, until: Sequence[str] = ()
    ) -> tuple[Mapping[str, Answer], Mapping[str, object]]:
        """A crowd on an engine that holds nothing -> answers, and the status at the end. StrataError: one failed."""
        with running(keeping(self.loaded, slots), self.settings) as engine:
            answers = Crowd(engine, parts, until=until).run()
            require_whole(answers)
            return answers, engine.status()

    def first_s(self, tokens: Sequence[int]) -> float:
        """Time to first token of a prompt when nobody else is there."""
        answers, _ = self.run([Part(Request("alone", tuple(tokens), max_new=1))], 1)
        return answers["alone"].first_s


def require_whole(answers: Mapping[str, Answer]) -> None:
    """StrataError when a request ended with an error."""
    for name, answer in answers.items():
        if answer.finished is not None and answer.finished.error:
            raise StrataError(f"request {name} failed: {answer.finished.error}")


def join(bed: Bed, streams: int, prompts: Sequence[Sequence[int]], short: Sequence[int], max_gap_s: float) -> Joined:
    """Prompts join streams, all at once; each is read alone before. The streams begin with `short`, turned a little."""
    bed.first_s(short)  # warms up
    alone_s = tuple(bed.first_s(prompt) for prompt in prompts)
    begin = [(*short[i:], *short[:i]) for i in range(streams)]
    room = bed.loaded.plan.context - len(short)
    parts = [Part(Request(f"stream-{i}", begin[i], max_new=room)) for i in range(streams)]
    asked = Moment("stream-0", said=WARM)
    names = [f"prompt-{i}" for i in range(len(prompts))]
    parts += [
        Part(Request(name, tuple(prompt), max_new=WARM), comes=asked)
        for name, prompt in zip(names, prompts, strict=True)
    ]
    answers, status = bed.run(parts, streams + len(prompts), names)
    flows = [answers[f"stream-{i}"] for i in range(streams)]
    if any(len(flow.tokens) >= room for flow in flows):
        raise StrataError("the streams ended before the prompts were read", hint="use shorter prompts")
    came = answers[names[0]].asked_s
    read = max(answers[name].times_s[0] for name in names)
    gaps = sorted(gap for flow in flows for gap in gaps_between(flow.times_s, came, read))
    calm = [gap for flow in flows for gap in gaps_between(flow.times_s, read, float("inf"))]
    during = [sum(came < time <= read for time in flow.times_s) for flow in flows]
    decode_s = statistics.median(calm)
    return Joined(
        streams=streams,
        prompts=tuple(map(len, prompts)),
        bound_s=max(max_gap_s, STEPS * decode_s),
        decode_step_s=decode_s,
        longest_gap_s=gaps[-1],
        gaps_s={"p50": statistics.median(gaps), "p95": gaps[int(0.95 * (len(gaps) - 1))]},
        least_tokens=min(during),
        most_tokens=max(during),
        alone_s=alone_s,
        together_s=tuple(answers[name].first_s for name in names),
        rows_per_step=counts(status["rows_per_step"]),
    )


def gaps_between(times_s: Sequence[float], first_s: float, last_s: float) -> list[float]:
    """Gaps that end after `first_s` and begin before `last_s`."""
    return [b - a for a, b in itertools.pairwise(times_s) if b > first_s and a < last_s]


def overtake(bed: Bed, long: Sequence[int], short: Sequence[int], slots: int) -> Overtaken:
    """A short prompt comes when the second chunk of a long one has just begun, so that it waits for all of it."""
    bed.first_s(short)  # warms up
    read_s = bed.first_s(long)
    parts = [
        Part(Request("long", tuple(long), max_new=2)),
        Part(Request("short", tuple(short), max_new=2), Moment("long", read=1), delay_s=DELAY_S),
    ]
    answers, _ = bed.run(parts, slots)
    return Overtaken(slots, len(long), len(short), read_s, answers["short"].first_s, answers["long"].first_s)
