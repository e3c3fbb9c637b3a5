"""The measurement of the server's own cost: it counts whole answers, in every dialect. What they cost is no test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "server_cost.py"


def measured(*options: str) -> list[dict[str, object]]:
    """Its lines."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(SCRIPT), *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environ)
    assert ran.returncode == 0, ran.stderr[-800:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.timeout(120)
def test_every_dialect_is_measured_over_whole_answers() -> None:
    lines = measured(
        "--streams", "3", "--tokens", "8", "--rate", "0", "--repeat", "1", "--firsts", "1", "--prompt", "50"
    )
    assert [line["dialect"] for line in lines] == ["chat", "completions", "responses", "messages"]
    for line in lines:
        assert line["tokens"] == 3 * 8
        assert 50 <= int(str(line["prompt_tokens"])) < 80
        for name in ("ms_per_token", "ttft_added_ms", "tokens_per_second"):
            spread = line[name]
            assert isinstance(spread, dict) and 0 < spread["min"] <= spread["median"] <= spread["max"]
        assert {"commit", "machine", "streams", "rate", "company"} <= line.keys()


def test_an_answer_that_broke_off_is_not_counted() -> None:
    code = "import server_cost as s; s.checked(b'HTTP/1.1 200 OK\\r\\n\\r\\n5\\r\\ndata: ')"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(SCRIPT.parent)))}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ)
    assert ran.returncode == 1 and "not a whole answer" in ran.stderr
