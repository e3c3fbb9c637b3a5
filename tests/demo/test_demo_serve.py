"""`strata serve` whole: every flag about company reaches the engine and is honoured, over HTTP, with the demo model."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from reports.live import Stream, until
from server.test_metrics import by_name

pytestmark = pytest.mark.timeout(90)
FLAGS = {
    "parallel": 2, "queue-limit": 1, "ctx-size": 640, "max-wait-s": 7.5, "max-gap-ms": 111, "prompt-chunk": 64,
}  # fmt: skip


class Served:
    """What reports.live wants of a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=60)

    def status(self) -> Any:
        return self.http.get("/v1/status").json()


@pytest.fixture(scope="module")
def up() -> Iterator[Served]:
    words = [word for name, value in FLAGS.items() for word in (f"--{name}", str(value))]
    process = subprocess.Popen(
        [sys.executable, "-m", "strata", "serve", "--port", "0", "--keep-alive-s", "0.05", *words],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    url = next(found.group(1) for line in process.stderr if (found := re.search(r" ready .*url=(\S+)", line)))
    said: list[str] = []
    reader = threading.Thread(target=lambda stream: said.extend(stream), args=(process.stderr,), daemon=True)
    reader.start()
    served = Served(url)
    yield served
    served.http.close()
    process.terminate()
    assert process.wait(20) == 0
    reader.join(10)
    assert not reader.is_alive()
    process.stderr.close()
    assert sum(" admission " in line for line in said) >= 4, "a trace line for every prompt that was read"


def test_the_status_tells_what_was_asked_for(up: Served) -> None:
    found = up.status()
    counts = {"running": 0, "reading": 0, "waiting": 0, "queue_limit": 1}
    assert found["concurrency"] == {"requested": 2, "serving": 2, "reason": "as asked", **counts}
    engine = found["engine"]
    assert (engine["context"], engine["max_wait_s"], engine["max_gap_ms"]) == (640, 7.5, 111)
    assert engine["chunk_tokens"] == 64
    assert [seat["n_ctx"] for seat in up.http.get("/slots").json()] == [640, 640]


def test_two_are_served_together_one_waits_and_the_fourth_is_sent_away(up: Served) -> None:
    ask: dict[str, Any] = {"max_tokens": 600, "logit_bias": {"0": -100, "2": -100}}
    streams = [Stream(up, 40 + i, **ask) for i in range(2)]  # type: ignore[arg-type]
    until(lambda: all(stream.text for stream in streams))
    third = Stream(up, 42, max_tokens=3)  # type: ignore[arg-type]
    until(lambda: up.status()["concurrency"]["waiting"] == 1)
    refused = up.http.post("/v1/completions", json={"prompt": [5], "max_tokens": 3})
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60  # by the rate at which requests ended before
    cut = up.http.post("/v1/completions", json={"prompt": [5] * 641, "max_tokens": 3})
    assert cut.status_code == 400 and "640" in cut.json()["error"]["message"]
    for stream in streams:
        stream.leave()
    assert third.join().reason in ("length", "stop")
    until(lambda: up.status()["requests"] == 0)


def test_the_counters_agree_with_the_requests(up: Served) -> None:
    before = by_name(up.http.get("/metrics").text)
    usages = []
    for length, n in ((150, 1), (150, 2), (20, 1)):
        body = {"prompt": [50 + i % 90 for i in range(length)], "max_tokens": 6, "n": n, "seed": 5}
        body["logit_bias"] = {"0": -100, "2": -100}
        usages.append(up.http.post("/v1/completions", json=body).json()["usage"])
    found = {key: value - before.get(key, 0.0) for key, value in by_name(up.http.get("/metrics").text).items()}
    generated = found["strata_generation_tokens_total", ""]
    assert generated == sum(usage["completion_tokens"] for usage in usages) == 4 * 6
    assert found["strata_prompt_tokens_total", ""] + found["strata_prefix_cache_hits_total", ""] == 150 * 3 + 20
    assert usages[1]["prompt_tokens_details"]["cached_tokens"] > 0, "asked again, the prompt is held"
    wrong = found["strata_draft_offered_tokens_total", ""] - found["strata_draft_accepted_tokens_total", ""]
    assert found["strata_step_rows_sum", ""] == found["strata_prompt_tokens_total", ""] + generated - 4 + wrong
    hits = {labels: value for (name, labels), value in found.items() if name == "strata_conversation_hits_total"}
    assert sum(hits.values()) == found["strata_requests_submitted_total", ""] == 4
