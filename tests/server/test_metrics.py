"""What a scrape says: the engine's counters as they are, and the server's own histograms."""

import time

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from server.harness import running
from strata.server.metrics import ROWS, Metrics, histogram


def scrape(http: httpx.Client) -> dict[tuple[str, str], float]:
    """Value by name and labels."""
    answer = http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return by_name(answer.text)


def by_name(text: str) -> dict[tuple[str, str], float]:
    samples: list[Sample] = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return {(s.name, ",".join(f"{k}={v}" for k, v in s.labels.items())): s.value for s in samples}


def test_engine_counters_are_those_of_the_engine() -> None:
    with running() as up:
        found = scrape(up.http)
    assert found["strata_engine_up", ""] == 1
    assert found["strata_num_requests_waiting", ""] == 2
    assert (found["strata_slots", ""], found["strata_slots_requested", ""]) == (4, 8)
    hits, queries = found["strata_prefix_cache_hits_total", ""], found["strata_prefix_cache_queries_total", ""]
    assert (hits, queries) == (13, 100)
    assert queries - hits == found["strata_prompt_tokens_total", ""]
    assert found["strata_step_rows_count", ""] == found["strata_steps_total", ""] == 7
    assert found["strata_step_rows_sum", ""] == 3 + 4 + 80
    assert found["strata_step_rows_bucket", "le=2.0"] == 5
    assert found["strata_step_rows_bucket", "le=64.0"] == 7


def test_tokens_are_timed_and_ends_are_counted() -> None:
    ask = {"prompt": "x", "max_tokens": 4}
    with running(answers=[[65, 66, 67]], token_s=0.03) as up:
        assert up.http.post("/v1/completions", json=ask).status_code == 200
        assert up.http.post("/v1/completions", json={**ask, "stream": True}).status_code == 200
        found = scrape(up.http)
    assert found["strata_time_to_first_token_seconds_count", ""] == 2
    assert found["strata_inter_token_latency_seconds_count", ""] == 4
    assert found["strata_inter_token_latency_seconds_sum", ""] >= 4 * 0.02
    assert sum(value for (name, _), value in found.items() if name == "strata_requests_total") == 2
    assert found["strata_requests_total", "finished_reason=stop"] == 2


def test_a_client_that_leaves_counts_as_cancelled() -> None:
    with running(answers=[[65] * 200], token_s=0.02) as up:
        ask = {"prompt": "x", "max_tokens": 200, "stream": True}
        with up.http.stream("POST", "/v1/completions", json=ask) as answer:
            next(answer.iter_lines())
        for _ in range(200):
            found = scrape(up.http)
            if ("strata_requests_total", "finished_reason=cancel") in found:
                break
            time.sleep(0.02)
    assert found["strata_requests_total", "finished_reason=cancel"] == 1


def test_without_an_engine_a_scrape_says_so() -> None:
    found = by_name(Metrics().render(None, 3).decode())
    assert found["strata_engine_up", ""] == 0
    assert found["strata_engine_restarts_total", ""] == 3
    assert ("strata_steps_total", "") not in found


def test_buckets_hold_every_step() -> None:
    family = histogram("h", "text", {str(n): n for n in (1, 3, 5000)})
    counts = {s.labels["le"]: s.value for s in family.samples if "le" in s.labels}
    assert counts[str(float(ROWS[-1]))] == 4
    assert counts["+Inf"] == 5004


def test_slots_are_listed() -> None:
    with running() as up:
        assert up.http.get("/slots").json() == [{"id": 0, "state": "idle", "held": 0}]
