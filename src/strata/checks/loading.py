"""`bench serve`: clients that ask a server all at once, as fast as it answers."""

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strata.checks.batch import counts
from strata.checks.client import Ask, Client, Got
from strata.checks.prompts import long_text

LINE = 25
"""Tokens of a ledger's line, about."""
APART = 100
"""Days between the first lines of two prompts."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, 95th percentile and largest, in seconds."""

    p50: float
    p95: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Spread":
        """Zeros of nothing."""
        line_up = sorted(seconds) or [0.0]
        return cls(statistics.median(line_up), line_up[int(0.95 * (len(line_up) - 1))], line_up[-1])

    def words(self) -> str:
        """Milliseconds."""
        return f"{self.p50 * 1e3:.0f} / {self.p95 * 1e3:.0f} / {self.max * 1e3:.0f} ms"


@dataclass(frozen=True, slots=True)
class Load:
    """What the clients saw, and what the server's steps were like meanwhile."""

    clients: int
    requests: int
    failed: int
    first_error: str
    prompt_tokens: int
    reused_tokens: int
    tokens: int
    """Answer tokens of all."""
    wall_s: float
    first_token_s: Spread
    gap_s: Spread
    """Between pieces of text: a token without text of its own (a special one, a part of a character) makes a gap of two
    steps."""
    rows_per_step: Mapping[int, int] | None
    """Steps by rows; None where the server does not say."""
    streams_per_step: Mapping[int, int] | None

    @property
    def rate(self) -> float:
        """Answer tokens of all clients per second."""
        return self.tokens / self.wall_s


def prompt_of(number: int, tokens: int) -> str:
    """About `tokens` tokens that begin like no other number's."""
    return long_text(max(1, tokens // LINE), 1 + APART * number)


def load(
    client: Client, clients: int, each: int, prompt_tokens: int, answer: int, tell: Callable[[int, int], None]
) -> Load:
    """`clients` threads that send `each` requests one after the other."""
    numbers, got = itertools.count(), list[Got]()
    started = threading.Barrier(clients + 1)

    def work() -> None:
        """One client."""
        started.wait()
        for _ in range(each):
            got.append(client.complete(Ask(prompt_of(next(numbers), prompt_tokens), answer)))
            tell(len(got), clients * each)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    before = histograms(client)
    started.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - began
    rows, streams = (since(b, a) for b, a in zip(before, histograms(client), strict=True))
    return summed(clients, got, wall_s, rows, streams)


def summed(
    clients: int,
    got: Sequence[Got],
    wall_s: float,
    rows: Mapping[int, int] | None,
    streams: Mapping[int, int] | None,
) -> Load:
    """All answers together."""
    errors = [each.error or "the answer did not end" for each in got if each.error or not each.finish]
    whole = [each for each in got if each.finish and not each.error]
    return Load(
        clients=clients,
        requests=len(got),
        failed=len(errors),
        first_error=errors[0] if errors else "",
        prompt_tokens=sum(each.prompt for each in whole),
        reused_tokens=sum(each.reused for each in whole),
        tokens=sum(each.tokens for each in whole),
        wall_s=wall_s,
        first_token_s=Spread.of([each.first_s for each in whole if each.times_s]),
        gap_s=Spread.of([b - a for each in whole for a, b in itertools.pairwise(each.times_s)]),
        rows_per_step=rows,
        streams_per_step=streams,
    )


def histograms(client: Client) -> tuple[Mapping[int, int] | None, Mapping[int, int] | None]:
    """Steps by rows and by decoding streams, as the server counts them."""
    engine: Mapping[str, Any] | None = (client.get("/v1/status") or {}).get("engine")
    if engine is None:
        return None, None
    return counts(engine["rows_per_step"]), counts(engine["decoding_per_step"])


def since(before: Mapping[int, int] | None, after: Mapping[int, int] | None) -> Mapping[int, int] | None:
    """The difference of two histograms."""
    if before is None or after is None:
        return None
    found = {value: count - before.get(value, 0) for value, count in sorted(after.items())}
    return {value: count for value, count in found.items() if count}


def mean(histogram: Mapping[int, int] | None) -> float | None:
    """Of its values above zero."""
    if histogram is None:
        return None
    steps = {value: count for value, count in histogram.items() if value}
    return sum(value * count for value, count in steps.items()) / max(1, sum(steps.values()))
