"""Two names of the demo in one server: what the engine of one held of a conversation, the other one finds on disk."""

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

from strata.checkpoint.demo import model_path

pytestmark = pytest.mark.timeout(90)
PROMPT = [50 + i % 90 for i in range(200)]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[httpx.Client]:
    demo = str(model_path(None))
    settings = ("--state-disk-gib", "0.1", "--state-dir", str(tmp_path), "--parallel", "1", "--ctx-size", "512")
    process = subprocess.Popen(
        [sys.executable, "-m", "strata", "serve", demo, demo, "--alias", "one,two", "--port", "0", *settings],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    url = next(found.group(1) for line in process.stderr if (found := re.search(r" ready .*url=(\S+)", line)))
    reader = threading.Thread(target=process.stderr.read, daemon=True)
    reader.start()
    try:
        with httpx.Client(base_url=url, timeout=60) as http:
            yield http
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        reader.join(10)
        process.stderr.close()


def test_a_conversation_outlives_its_engine(up: httpx.Client) -> None:
    def ask(model: str) -> Any:
        body = {"model": model, "prompt": PROMPT, "max_tokens": 8, "logit_bias": {"0": -100, "2": -100}}
        return up.post("/v1/completions", json=body).raise_for_status().json()

    first = ask("one")
    assert first["model"] == "one" and first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    second = ask("two")
    assert second["model"] == "two", "of another process"
    assert second["choices"][0]["text"] == first["choices"][0]["text"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= 128, "read again from the disk"
    assert up.get("/v1/status").json()["engine"]["tokens"]["prompt"] < len(PROMPT)
    freed = up.post("/v1/unload").json()
    assert freed["model"] == "two" and freed["freed"]["ram_bytes"] > 10 << 20
