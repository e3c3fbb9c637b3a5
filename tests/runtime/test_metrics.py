"""The metrics of a whole engine on the emulated GPU: counts from places that do not know each other agree."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from models.made import oracle, path_of
from server.test_metrics import by_name
from strata.assemble import Loaded, load
from strata.engine.request import Request
from strata.experts.gpu import GpuExperts
from strata.experts.placed import PlacedExperts
from strata.experts.protocol import Experts
from strata.plan.wishes import Wishes
from strata.server.metrics import Metrics
from strata.store.experts import bank_bytes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    cache = str(tmp_path_factory.mktemp("cache"))
    wishes = Wishes(device="emulator", ctx_size=128, parallel=2, threads=1, cache_dir=cache, vram_gib=1 / 4096)
    made = load(path_of("qwen3_next", "gguf"), wishes)
    made.engine.start()
    ids = tuple(oracle("qwen3_next").ids)
    prompts = (ids[:30], ids[3:20], (*ids[:30], 9, 8, 7), ids[:44])
    sessions = [made.engine.submit(Request(str(i), tokens, 6)) for i, tokens in enumerate(prompts)]
    for session in sessions:
        list(session.events())
    made.engine.stop()
    return made


def inner(experts: Experts) -> GpuExperts:
    """What computes the experts of a model on the emulator."""
    while not isinstance(experts, GpuExperts):
        assert isinstance(experts, PlacedExperts)
        experts = experts.inner
    return experts


def series(found: dict[tuple[str, str], float], name: str) -> dict[str, float]:
    return {labels: value for (key, labels), value in found.items() if key == name}


def test_every_expert_is_counted_where_it_was_computed(loaded: Loaded) -> None:
    status: Any = loaded.engine.status()
    found = by_name(Metrics().render(status, 0).decode())
    hits, misses = (series(found, f"strata_expert_{name}_total") for name in ("hits", "misses"))
    assert hits.keys() == misses.keys() and len(hits) == len(loaded.model.store.banks)
    # Rows from the scheduler, top-k from the model's file, places from the device's ledger.
    routed = found["strata_step_rows_sum", ""] * loaded.model.shape.top_k
    assert routed > 0 and {layer: hits[layer] + misses[layer] for layer in hits} == dict.fromkeys(hits, routed)
    assert status["runner"]["experts"]["disagreement"] == ""
    ways = series(found, "strata_expert_bytes_total")
    assert ways.keys() == {"path=vram", "path=pcie", "path=cpu", "path=disk"}
    # Distinct experts of all calls from the ledger, each of the size that its tensors have in the file.
    counted = inner(loaded.model.experts).counters.experts.sum(axis=1)
    sizes = {layer: bank_bytes(bank) // len(bank.gate) for layer, bank in loaded.model.store.banks.items()}
    assert sum(ways.values()) == sum(int(counted[layer]) * size for layer, size in sizes.items()) > 0
    assert sum(series(found, "strata_expert_swaps_total").values()) == status["runner"]["experts"]["swaps"]


def test_every_prompt_was_looked_up_once(loaded: Loaded) -> None:
    status: Any = loaded.engine.status()
    found = by_name(Metrics().render(status, 0).decode())
    hits = series(found, "strata_conversation_hits_total")
    assert sum(hits.values()) == found["strata_requests_submitted_total", ""] == 4
    held = series(found, "strata_conversation_hit_tokens_total")
    assert sum(held.values()) == found["strata_prefix_cache_hits_total", ""]
    assert series(found, "strata_conversation_bytes").keys() == {"tier=pages", "tier=ram", "tier=disk"}
    assert 0 < found["strata_kv_cache_usage_perc", ""] <= 1


def test_memory_and_stages_are_told(loaded: Loaded) -> None:
    status: Any = loaded.engine.status()
    found = by_name(Metrics().render(status, 0).decode())
    vram = series(found, "strata_vram_bytes")
    assert vram.keys() == {"use=experts", "use=states", "use=weights"}
    assert vram["use=states"] == loaded.runner.contents.nbytes > 0
    held = series(found, "strata_host_memory_bytes")
    assert held.keys() == {
        f"use={use}" for use in ("base", "pool", "states", "kept", "steps", "rest", "files", "shared")
    }
    assert held["use=pool"] == loaded.runner.states.pages.used * loaded.runner.contents.page_bytes > 0
    stages = series(found, "strata_stage_seconds_total")
    assert stages.keys() == {f"stage={name}" for name in ("mixer", "experts", "wait", "head", "sample", "rest")}
    assert all(stages[f"stage={name}"] > 0 for name in ("mixer", "experts", "sample", "rest"))
    assert sum(stages.values()) == pytest.approx(found["strata_step_seconds_total", ""])
    assert 0 < found["strata_timed_steps_total", ""] <= found["strata_steps_total", ""]


COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
PROMISED: dict[str, tuple[str, set[str]]] = {
    "strata_num_requests_running": (GAUGE, set()),
    "strata_num_requests_waiting": (GAUGE, set()),
    "strata_prompt_tokens": (COUNTER, set()),
    "strata_generation_tokens": (COUNTER, set()),
    "strata_time_to_first_token_seconds": (HISTOGRAM, set()),
    "strata_inter_token_latency_seconds": (HISTOGRAM, set()),
    "strata_prefix_cache_queries": (COUNTER, set()),
    "strata_prefix_cache_hits": (COUNTER, set()),
    "strata_draft_offered_tokens": (COUNTER, set()),
    "strata_draft_accepted_tokens": (COUNTER, set()),
    "strata_expert_hits": (COUNTER, {"layer"}),
    "strata_expert_misses": (COUNTER, {"layer"}),
    "strata_expert_swaps": (COUNTER, {"layer"}),
    "strata_expert_bytes": (COUNTER, {"path"}),
    "strata_step_rows": (HISTOGRAM, set()),
    "strata_stage_seconds": (COUNTER, {"stage"}),
    "strata_step_seconds": (COUNTER, set()),
    "strata_vram_bytes": (GAUGE, {"use"}),
    "strata_conversation_hits": (COUNTER, {"tier"}),
    "strata_conversation_bytes": (GAUGE, {"tier"}),
}
"""What dashboards may be built on: the parser's names (a counter's samples end in _total), types, labels."""


def families(loaded: Loaded) -> dict[str, Family]:
    """Every family of a scrape, by its name."""
    status: Any = loaded.engine.status()
    return {family.name: family for family in text_string_to_metric_families(Metrics().render(status, 0).decode())}


def broken(found: Mapping[str, Family]) -> list[str]:
    """Which promises a scrape does not keep."""
    kinds = {
        name: (found[name].type, {label for sample in found[name].samples for label in sample.labels} - {"le"})
        for name in PROMISED
        if name in found and found[name].samples
    }
    return [name for name, promised in PROMISED.items() if kinds.get(name) != promised]


def test_every_metric_that_was_promised_is_there(loaded: Loaded) -> None:
    found = families(loaded)
    assert broken(found) == []
    found["strata_step_rows"].type = GAUGE
    del found["strata_vram_bytes"]
    assert broken(found) == ["strata_step_rows", "strata_vram_bytes"]


def test_nothing_is_told_twice_or_without_help(loaded: Loaded) -> None:
    text = Metrics().render(loaded.engine.status(), 0).decode()
    named = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(named) == len(set(named)) and all(name.startswith("strata_") for name in named)
    assert not [line for line in text.splitlines() if line.startswith("# HELP") and len(line.split()) < 4]


def unanswered(board: Any, found: Mapping[str, Family]) -> list[str]:
    """Expressions of a dashboard that name a metric, or a label in a legend, that a scrape does not have."""
    labels = {s.name: set(s.labels) for family in found.values() for s in family.samples}
    wrong = []
    for panel in board["panels"]:
        for target in panel["targets"]:
            names = re.findall(r"strata_[a-z_]+", target["expr"])
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            if not names or any(name not in labels or not shown <= labels[name] for name in names):
                wrong.append(target["expr"])
    return wrong


def test_the_dashboard_asks_for_what_is_there(loaded: Loaded) -> None:
    board = json.loads((ROOT / "deploy/grafana.json").read_text())
    found = families(loaded)
    assert sum(len(panel["targets"]) for panel in board["panels"]) > 15
    assert unanswered(board, found) == []
    del found["strata_step_rows"]
    board["panels"][0]["targets"][0]["expr"] = "rate(strata_no_such_thing_total[1m])"
    board["panels"][1]["targets"][0]["legendFormat"] = "{{nobody}}"
    wrong = unanswered(board, found)
    assert len(wrong) == 3 and wrong[0].startswith("rate(strata_no") and "strata_step_rows" in wrong[2]
