"""What the engine's status says, as families of Prometheus. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Status = Mapping[str, Any]
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
MIB = 1 << 20
STAGES = (
    "Seconds of all steps, by what they went into: one step of 64 of a shape (on a GPU one of 512, and one of 16 prompt"
    " chunks) is timed from within, and those after it are taken to be alike. wait: for experts that the CPU computes"
    " beside a GPU."
)
PATHS = (
    "Bytes of experts that steps read, by where they were. disk: not in memory when they were needed, as one call of"
    " 127 on the CPU finds."
)


class EngineCounters(Collector):
    """What STAT says, at one moment."""

    def __init__(self, status: Status | None, restarts: int) -> None:
        self._status = status
        self._restarts = restarts

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        yield gauge("strata_engine_up", "Whether the engine takes requests.", float(self._status is not None))
        yield counter("strata_engine_restarts", "Engine processes started again after a failure.", self._restarts)
        if self._status is not None:
            yield from gauges(self._status)
            yield from counters(self._status)
            yield histogram("strata_step_rows", "Rows of each step.", self._status["rows_per_step"])
            yield histogram("strata_step_streams", "Decoding sessions of each step.", self._status["decoding_per_step"])
            depths = self._status["drafts_by_depth"]
            yield from by_label(
                "strata_draft_offered_at_depth", "Draft tokens verified, by depth.", "depth", depths["offered"]
            )
            yield from by_label(
                "strata_draft_accepted_at_depth", "Draft tokens that were right.", "depth", depths["accepted"]
            )
            runner = self._status.get("runner", {})
            yield from kept(runner.get("kept", {}))
            yield from experts(runner.get("experts", {}))
            yield from by_use("strata_vram_bytes", "VRAM by use.", vram_uses(runner, self._status.get("plan", {})))
            yield from by_use("strata_host_memory_bytes", "The engine's RAM by use.", runner.get("memory", {}))
            yield from stages(runner)


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    """A gauge without labels."""
    family = GaugeMetricFamily(name, text)
    family.add_metric([], float(value))
    return family


def counter(name: str, text: str, value: float) -> CounterMetricFamily:
    """A counter without labels."""
    family = CounterMetricFamily(name, text)
    family.add_metric([], float(value))
    return family


def by_label(name: str, text: str, label: str, values: Mapping[str, float] | None) -> Iterator[CounterMetricFamily]:
    """A counter with one label; nothing when there are no values."""
    if values:
        family = CounterMetricFamily(name, text, labels=[label])
        for key, value in values.items():
            family.add_metric([key], float(value))
        yield family


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
        yield gauge(name, text, value)


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


def kept(status: Status) -> Iterator[Metric]:
    """What is kept of conversations, by where it is; pages of the pool."""
    if not status:
        return
    yield from by_label(
        "strata_conversation_hits", "Prompts by the slowest place of what was held of them.", "tier", status["hits"]
    )
    yield from by_label(
        "strata_conversation_hit_tokens", "Prompt tokens that were held, by place.", "tier", status["hit_tokens"]
    )
    yield from by_label("strata_conversation_moves", "Kept prefixes that gave way.", "kind", status["moved"])
    family = GaugeMetricFamily("strata_conversation_bytes", "What is kept takes so much.", labels=["tier"])
    for tier, nbytes in status["bytes"].items():
        family.add_metric([tier], float(nbytes))
    yield family
    used = 1.0 - status["free_pages"] / status["pages"] if status["pages"] else 0.0
    yield gauge("strata_kv_cache_usage_perc", "Part of the pages that is held (1 = all).", used)


def experts(status: Status) -> Iterator[Metric]:
    """Where experts were computed. Of every layer, hits + misses = rows x top-k."""
    layers: Sequence[Mapping[str, int]] = status.get("layers", ())
    for name, text in (
        ("hits", "(Row, rank) pairs whose expert was in VRAM."),
        ("misses", "(Row, rank) pairs whose expert was read over PCIe, or computed by the CPU."),
        ("swaps", "Experts that were brought into VRAM beside the steps."),
    ):
        counts = {str(layer["layer"]): layer[name] for layer in layers}
        yield from by_label(f"strata_expert_{name}", text, "layer", counts)
    yield from by_label("strata_expert_bytes", PATHS, "path", status.get("bytes"))
    if "resident" in status:
        yield gauge("strata_experts_resident", "Experts in VRAM.", status["resident"])


def stages(runner: Status) -> Iterator[Metric]:
    """What the time of steps went into; the stages add up to all of it."""
    seconds: Mapping[str, float] = runner.get("seconds", {})
    if seconds:
        yield from by_label("strata_stage_seconds", STAGES, "stage", seconds)
        yield counter("strata_step_seconds", "Seconds of all steps.", sum(seconds.values()))
        yield counter("strata_timed_steps", "Steps that were timed from within.", runner["timed_steps"])


def vram_uses(runner: Status, plan: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Bytes of VRAM by use; nothing where there is none."""
    uses = {
        "experts": runner.get("experts", {}).get("arena_bytes"),
        "states": runner.get("device_state_bytes"),
        "weights": plan["vram_weights_mib"]["value"] * MIB if "vram_weights_mib" in plan else None,
    }
    return {use: int(nbytes) for use, nbytes in uses.items() if nbytes is not None}


def by_use(name: str, text: str, uses: Mapping[str, float]) -> Iterator[Metric]:
    """A gauge by use; nothing when there are none."""
    if uses:
        family = GaugeMetricFamily(name, text, labels=["use"])
        for use, nbytes in uses.items():
            family.add_metric([use], float(nbytes))
        yield family


def slots_of(status: Status) -> list[Mapping[str, Any]]:
    """`GET /slots`: one entry per slot; `n_ctx` and `is_processing` are llama.cpp's names."""
    return [{**seat, "n_ctx": status["context"], "is_processing": seat["state"] != "idle"} for seat in status["seats"]]
