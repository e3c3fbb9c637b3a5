"""`GET /metrics`: what the server sees of its requests, and what the engine counts, as Prometheus reads it.

Names are those of vLLM with `strata_` in front, where vLLM has one. The engine's counters start anew with its process,
which Prometheus takes for a restart.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

TYPE = "text/plain; version=0.0.4; charset=utf-8"
FIRST_TOKEN_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
GAP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)

Status = Mapping[str, Any]


class Metrics:
    """Histograms of one server, and the text of a scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.first_token = Histogram(
            "strata_time_to_first_token_seconds",
            "From the request's arrival at the engine's door to its first token.",
            buckets=FIRST_TOKEN_S,
            registry=self.registry,
        )
        self.gap = Histogram(
            "strata_inter_token_latency_seconds",
            "Between two tokens of one answer.",
            buckets=GAP_S,
            registry=self.registry,
        )
        self.ended = Counter(
            "strata_requests", "Answers that ended, by how.", labelnames=("finished_reason",), registry=self.registry
        )

    def timer(self) -> "AnswerTimer":
        """For one answer, from now on."""
        return AnswerTimer(self)

    def render(self, status: Status | None, restarts: int) -> bytes:
        """The scrape; `status` is the engine's, None while there is none."""
        engine = CollectorRegistry()
        engine.register(EngineCounters(status, restarts))
        return generate_latest(self.registry) + generate_latest(engine)


class AnswerTimer:
    """Times one answer's tokens."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._last_s = time.perf_counter()
        self._tokens = 0

    def token(self) -> None:
        """A token came."""
        now_s = time.perf_counter()
        histogram = self._metrics.gap if self._tokens else self._metrics.first_token
        histogram.observe(now_s - self._last_s)
        self._last_s, self._tokens = now_s, self._tokens + 1

    def ended(self, reason: str) -> None:
        """The answer is over: stop, length, cancel or error."""
        self._metrics.ended.labels(reason).inc()


class EngineCounters(Collector):
    """What STAT says, at one moment."""

    def __init__(self, status: Status | None, restarts: int) -> None:
        self._status = status
        self._restarts = restarts

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        up = GaugeMetricFamily("strata_engine_up", "Whether the engine takes requests.")
        up.add_metric([], float(self._status is not None))
        yield up
        yield counter("strata_engine_restarts", "Engine processes started again after a failure.", self._restarts)
        if self._status is not None:
            yield from gauges(self._status)
            yield from counters(self._status)
            yield from (
                histogram("strata_step_rows", "Rows of each step.", self._status["rows_per_step"]),
                histogram("strata_step_streams", "Decoding sessions of each step.", self._status["decoding_per_step"]),
            )


def counter(name: str, text: str, value: float) -> CounterMetricFamily:
    """A counter without labels."""
    family = CounterMetricFamily(name, text)
    family.add_metric([], float(value))
    return family


def gauges(status: Status) -> Iterator[GaugeMetricFamily]:
    """What is under way."""
    for name, text, value in (
        ("strata_num_requests_running", "Requests in a slot, decoding.", status["running"]),
        ("strata_num_requests_reading", "Requests in a slot whose prompt is being read.", status["reading"]),
        ("strata_num_requests_waiting", "Requests without a slot.", status["waiting"]),
        ("strata_slots", "Slots that are served.", status["slots"]["serving"]),
        ("strata_slots_requested", "Slots that were asked for.", status["slots"]["requested"]),
        ("strata_context_tokens", "Tokens that one conversation can hold.", status["context"]),
    ):
        family = GaugeMetricFamily(name, text)
        family.add_metric([], float(value))
        yield family


def counters(status: Status) -> Iterator[CounterMetricFamily]:
    """What was done since the engine started."""
    tokens, sessions = status["tokens"], status["sessions"]
    for name, text, value in (
        ("strata_prompt_tokens", "Prompt tokens read.", tokens["prompt"]),
        ("strata_generation_tokens", "Answer tokens.", tokens["generated"]),
        ("strata_prefix_cache_queries", "Prompt tokens looked up.", tokens["prompt"] + tokens["reused"]),
        ("strata_prefix_cache_hits", "Prompt tokens that were held already.", tokens["reused"]),
        ("strata_draft_offered_tokens", "Draft tokens verified.", tokens["drafted"]),
        ("strata_draft_accepted_tokens", "Draft tokens that were right.", tokens["accepted"]),
        ("strata_steps", "Steps of the engine.", status["steps"]),
        ("strata_failed_steps", "Steps that failed.", status["failed_steps"]),
        ("strata_requests_submitted", "Requests that the engine took in.", sessions["submitted"]),
        ("strata_requests_refused", "Requests that the engine refused.", sessions["refused"]),
        ("strata_reads_set_aside", "Long reads that made way for a short prompt.", sessions["set_aside"]),
    ):
        yield counter(name, text, value)


def histogram(name: str, text: str, counts: Mapping[str, int]) -> HistogramMetricFamily:
    """Counts by exact value as cumulative buckets."""
    pairs = [(int(value), count) for value, count in counts.items()]
    buckets: list[tuple[str, float]] = [
        (str(float(edge)), float(sum(count for value, count in pairs if value <= edge))) for edge in ROWS
    ]
    buckets.append(("+Inf", float(sum(count for _, count in pairs))))
    family = HistogramMetricFamily(name, text)
    family.add_metric([], buckets, sum_value=float(sum(value * count for value, count in pairs)))
    return family


def slots_of(status: Status) -> Iterable[Mapping[str, Any]]:
    """`GET /slots`: one entry per slot."""
    found: list[Mapping[str, Any]] = status["seats"]
    return found
