"""docs/reference/metrics.md: what GET /metrics gives."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric

from references.tables import code, page, table
from strata.server.engine_metrics import EngineCounters
from strata.server.loader import Tally
from strata.server.metrics import Metrics
from strata.server.model_metrics import ModelCounters

INTRODUCTION = """
`GET /metrics` answers in Prometheus' text form. Names are vLLM's with `strata_` in front, where vLLM has one.
Counters end in `_total`; those of the engine start anew with its process. Of every layer, `strata_expert_hits_total`
and `strata_expert_misses_total` sum to rows x top-k. Stages sum to `strata_step_seconds_total`, paths of expert bytes
to the sizes of the distinct experts of all calls. `deploy/grafana.json` is a dashboard of them.
"""

COUNTED = {"1": 1}
SAMPLE = {
    "running": 0,
    "reading": 0,
    "waiting": 0,
    "slots": {"serving": 1, "requested": 1},
    "context": 1,
    "tokens": dict.fromkeys(("prompt", "generated", "reused", "drafted", "accepted"), 0),
    "sessions": dict.fromkeys(("submitted", "refused", "set_aside"), 0),
    "steps": 0,
    "failed_steps": 0,
    "rows_per_step": COUNTED,
    "decoding_per_step": COUNTED,
    "drafts_by_depth": {"offered": COUNTED, "accepted": COUNTED},
    "plan": {"vram_weights_mib": {"value": 0}},
    "runner": {
        "kept": {
            **dict.fromkeys(("hits", "hit_tokens", "moved", "bytes"), COUNTED),
            "pages": 1,
            "free_pages": 1,
        },
        "experts": {
            "layers": [{"layer": 0, "hits": 0, "misses": 0, "swaps": 0}],
            "bytes": COUNTED,
            "resident": 0,
            "arena_bytes": 0,
        },
        "device_state_bytes": 0,
        "memory": COUNTED,
        "seconds": COUNTED,
        "timed_steps": 0,
    },
}
"""A status that has everything; only names and labels are read."""

TALLY = Tally(Counter({("", ""): 1}), {"": 1.0}, Counter({("", ""): 1}))


def metrics() -> str:
    """The page."""
    server = Metrics()
    server.ended.labels("stop")
    parts = [
        "## Of the server",
        _table(server.registry.collect()),
        "## Of the engine",
        _table(EngineCounters(SAMPLE, 0).collect()),
        "## Of models",
        _table(ModelCounters({"name": "loaded"}, 0, TALLY).collect()),
    ]
    return page("Metrics", INTRODUCTION, *parts)


def _table(families: Iterable[Metric]) -> str:
    rows = []
    for family in families:
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        rows.append((code(name), family.type, ", ".join(map(code, labels)), family.documentation))
    return table(("name", "kind", "labels", "what"), rows)
