"""What a scrape says: the engine's counters as they are, and the server's own histograms."""

import time

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from reports.live import Stream, ask, idle, live, status, until
from server.harness import running
from strata.server.engine_metrics import ROWS, histogram
from strata.server.metrics import Metrics


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
        expected = [{"id": 0, "state": "idle", "held": 0, "n_ctx": 512, "is_processing": False}]
        assert up.http.get("/slots").json() == expected
        found = up.http.get("/v1/status").json()["concurrency"]
        assert found == {
            "requested": 8, "serving": 4, "reason": "as much as fits",
            "running": 0, "reading": 0, "waiting": 2, "queue_limit": 256,
        }  # fmt: skip


def test_on_a_live_engine_the_counters_prove_each_other() -> None:
    with live(slots=2, step_s=0.001, poisoned=[20]) as up:
        asks = [(11, 20, 5, 1), (11, 30, 4, 1), (12, 21, 6, 2), (13, 22, 7, 1), (14, 23, 8, 2)]
        replies = [ask(up, name, length, new, n=n).json()["usage"] for name, length, new, n in asks]
        assert ask(up, 20).status_code == 500
        until(lambda: idle(up))
        found = scrape(up.http)
        leaving = Stream(up, 30, max_tokens=400)
        leaving.leave(after=5)
        until(lambda: idle(up))
        later = scrape(up.http)
    answers = sum(n for *_, n in asks)
    generated = found["strata_generation_tokens_total", ""]
    assert generated == sum(usage["completion_tokens"] for usage in replies)
    queries, hits = (found[f"strata_prefix_cache_{name}_total", ""] for name in ("queries", "hits"))
    assert hits > 0
    assert queries - hits == found["strata_prompt_tokens_total", ""]
    assert [usage["prompt_tokens"] for usage in replies] == [length for _, length, _, _ in asks]
    assert replies[1]["prompt_tokens_details"]["cached_tokens"] == 20
    assert queries == sum(length * n for _, length, _, n in asks)
    assert found["strata_step_streams_sum", ""] == generated - answers
    failed = 8  # rows of the prompt whose window failed
    assert found["strata_step_rows_sum", ""] == found["strata_prompt_tokens_total", ""] + generated - answers + failed
    ends = {labels: value for (name, labels), value in found.items() if name == "strata_requests_total"}
    assert ends == {"finished_reason=length": answers, "finished_reason=error": 1}
    assert found["strata_requests_submitted_total", ""] == answers + 1
    assert found["strata_time_to_first_token_seconds_count", ""] == answers
    assert found["strata_inter_token_latency_seconds_count", ""] == generated - answers
    for name in ("request_queue_time", "request_prefill_time", "request_decode_time", "e2e_request_latency"):
        assert found[f"strata_{name}_seconds_count", ""] == answers
    parts = sum(found[f"strata_request_{part}_time_seconds_sum", ""] for part in ("queue", "prefill", "decode"))
    assert abs(found["strata_e2e_request_latency_seconds_sum", ""] - parts) < 1e-6
    assert later["strata_requests_total", "finished_reason=cancel"] == 1
    assert later["strata_requests_submitted_total", ""] == answers + 2


def test_the_status_tells_the_settings_that_hold() -> None:
    settings = {"queue_limit": 7, "max_gap_s": 0.111, "max_wait_s": 9.5, "chunk_tokens": 32}
    with live(slots=3, scheduler=settings) as up:
        engine = status(up)["engine"]
    assert (engine["queue_limit"], engine["max_gap_ms"], engine["max_wait_s"]) == (7, 111, 9.5)
    assert (engine["chunk_tokens"], engine["slots"]["serving"], engine["queue"]) == (32, 3, [])
