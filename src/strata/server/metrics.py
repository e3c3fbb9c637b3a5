"""`GET /metrics`: what the server sees of its requests, and what the engine counts, as Prometheus reads it.

Names are those of vLLM with `strata_` in front, where vLLM has one. The engine's counters start anew with its process,
which Prometheus takes for a restart.
"""

import time

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.registry import Collector

from strata.engine.events import Finished
from strata.server.engine_metrics import EngineCounters, Status
from strata.server.request_log import Record
from strata.server.timeline import Timeline

TYPE = "text/plain; version=0.0.4; charset=utf-8"
FIRST_TOKEN_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
GAP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
LIFE_S = (0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Metrics:
    """Histograms of one server, and the text of a scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.timeline = Timeline()
        self.first_token = self._histogram(
            "time_to_first_token", "From the request's arrival at the engine's door to its first token.", FIRST_TOKEN_S
        )
        self.gap = self._histogram("inter_token_latency", "Between two tokens of one answer.", GAP_S)
        self.queue = self._histogram("request_queue_time", "Waiting for a slot.", LIFE_S)
        self.prefill = self._histogram("request_prefill_time", "Reading the prompt.", LIFE_S)
        self.decode = self._histogram("request_decode_time", "From the prompt's end to the answer's.", LIFE_S)
        self.whole = self._histogram("e2e_request_latency", "From arrival to the answer's end.", LIFE_S)
        self.ended = Counter(
            "strata_requests", "Answers that ended, by how.", labelnames=("finished_reason",), registry=self.registry
        )

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"strata_{name}_seconds", text, buckets=buckets, registry=self.registry)

    def timer(self, record: Record) -> "AnswerTimer":
        """For one answer of a request, from now on."""
        return AnswerTimer(self, record)

    def render(self, status: Status | None, restarts: int, *others: Collector) -> bytes:
        """The scrape; `status` is the engine's, None while there is none."""
        engine = CollectorRegistry()
        for each in (EngineCounters(status, restarts), *others):
            engine.register(each)
        return generate_latest(self.registry) + generate_latest(engine)


class AnswerTimer:
    """Times one answer's tokens."""

    def __init__(self, metrics: Metrics, record: Record) -> None:
        self._metrics = metrics
        self._record = record
        self._last_s = time.perf_counter()
        self._tokens = 0

    def token(self) -> None:
        """A token came."""
        self._record.token()
        now_s = time.perf_counter()
        metrics, waited_s = self._metrics, now_s - self._last_s
        if self._tokens:
            metrics.gap.observe(waited_s)
            metrics.timeline.later_token(time.time(), waited_s)
        else:
            metrics.first_token.observe(waited_s)
            metrics.timeline.first_token(time.time(), waited_s)
        self._last_s, self._tokens = now_s, self._tokens + 1

    def ended(self, reason: str, counts: Finished | None) -> None:
        """The answer is over: stop, length, deadline, cancel or error; `counts` as far as the engine said them."""
        self._record.ended(reason, counts)
        metrics = self._metrics
        metrics.ended.labels(reason).inc()
        if counts is not None:
            metrics.queue.observe(counts.queue_s)
            metrics.prefill.observe(counts.prompt_s)
            metrics.decode.observe(counts.decode_s)
            metrics.whole.observe(counts.queue_s + counts.prompt_s + counts.decode_s)
