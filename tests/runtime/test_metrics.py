"""The metrics of a whole engine on the emulated GPU: counts from places that do not know each other agree."""

from typing import Any

import pytest

from models.made import oracle, path_of
from server.test_metrics import by_name
from strata.assemble import Loaded, load
from strata.engine.request import Request
from strata.plan.wishes import Wishes
from strata.server.metrics import Metrics


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
    assert ways.keys() == {"path=vram", "path=pcie", "path=cpu"} and sum(ways.values()) > 0
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
    assert stages.keys() == {f"stage={name}" for name in ("reserve", "run", "sample", "commit")}
    assert all(seconds > 0 for seconds in stages.values())
