"""`strata serve` as a process, around the fake engine child."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from chat.tiny_tokenizer import metadata_of, tokenizer_json
from strata.checkpoint.typed import ValueType, array, flag, string, u32
from strata.checkpoint.writer import write_gguf
from strata.cli import serve as command
from strata.core.log import Log
from strata.plan.wishes import Wishes

ROOT = Path(__file__).parents[2]
LAUNCH = """
import json, os, sys
from strata.cli import main, serve
serve.engine_command = lambda path, wishes: [sys.executable, sys.argv[1], sys.argv[2]]
sys.exit(main.run(["serve", *sys.argv[3:]], os.environ))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF with a tokenizer and no tensors worth mentioning."""
    path = tmp_path_factory.mktemp("model") / "tiny-model.gguf"
    values = metadata_of(json.loads(tokenizer_json("qwen2")), "qwen2").values
    typed: dict[str, Any] = {"general.architecture": string("test")}
    for key, value in values.items():
        if isinstance(value, bool):
            typed[key] = flag(value)
        elif isinstance(value, int):
            typed[key] = u32(value)
        elif isinstance(value, str):
            typed[key] = string(value)
        elif isinstance(value, list):
            kind = ValueType.STRING if isinstance(value[0], str) else ValueType.INT32
            typed[key] = array(kind, value)
    write_gguf(path, typed, [])
    return path


def launch(script: dict[str, Any], *words: str) -> subprocess.Popen[str]:
    fake = str(ROOT / "tests" / "server" / "fake_engine.py")
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCH, fake, json.dumps(script), "--port", "0", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "STRATA_PROT": "1"},
        process_group=0,
    )


def until_ready(process: subprocess.Popen[str]) -> tuple[str, str]:
    """(url, what was said on the way)."""
    said = ""
    assert process.stderr is not None
    for line in process.stderr:
        said += line
        found = re.search(r" ready .*url=(\S+)", line)
        if found:
            return found.group(1), said
    raise AssertionError(said)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_serves_until_a_signal(model: Path, number: signal.Signals, code: int) -> None:
    process = launch({"answers": [[65] * 2000], "token_s": 0.02}, str(model), "--alias", "mine", "--drain-seconds", "0")
    url, said = until_ready(process)
    assert "STRATA_PROT" in said
    with httpx.Client(base_url=url, timeout=20) as http:
        assert http.get("/v1/models").json()["data"][0]["id"] == "mine"
        body = {"model": "tiny-model", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        with http.stream("POST", "/v1/chat/completions", json=body) as reply:
            lines = reply.iter_lines()
            next(lines)
            os.killpg(process.pid, number)
            assert any("shutting down" in line for line in lines)
    assert process.wait(20) == code
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


@pytest.mark.parametrize(
    ("script", "words", "code", "said"),
    [
        ({"fail_load": True}, [], 1, "error: the engine failed: model.gguf: tensor x is cut short"),
        ({}, ["--alias", "a,b"], 2, "--alias: expected 1 names, found 'a,b'"),
        ({}, ["--host", "0.0.0.0"], 2, "hint: add --api-key"),
        ({}, ["--port", "99999"], 2, "--port: expected a whole number from 0 to 65535"),
    ],
)
def test_refusals(model: Path, script: dict[str, Any], words: list[str], code: int, said: str) -> None:
    process = launch(script, str(model), *words)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert said in err
    assert "Traceback" not in err


def test_the_childs_command_line() -> None:
    words = command.engine_command(Path("-odd.gguf"), Wishes(ctx_size=64))
    assert words[1:4] == ["-m", "strata", "engine"]
    assert words[words.index("--ctx-size") + 1] == "64"
    assert words[-2:] == ["--", "-odd.gguf"]


def test_names(model: Path) -> None:
    served = command.describe(str(model), model, Wishes(temp=0.5, max_tokens=7), None, Log())
    assert (served.name, served.defaults.temperature, served.max_tokens) == ("tiny-model", 0.5, 7)
    served.check_name("default")
    served.check_name(None)
    renamed = command.describe("org/name:Q4_K_M", model, Wishes(), "mine", Log())
    assert renamed.name == "mine" and renamed.aliases >= {"org/name:Q4_K_M", "tiny-model"}


MOMENTS = [
    (signal.SIGINT, {"load_s": 30.0}, "loading"),
    (signal.SIGTERM, {"prompt_s": 30.0, "answers": [[65] * 2000]}, "reading"),
]


@pytest.mark.parametrize(("number", "script", "moment"), MOMENTS)
def test_a_signal_ends_everything_whenever_it_comes(
    model: Path, tmp_path: Path, number: signal.Signals, script: dict[str, Any], moment: str
) -> None:
    """O-036: an end while the model loads leaves a traceback, or a process."""
    pid = tmp_path / "pid"
    words = ("--keep-alive-s", "0.05", "--drain-seconds", "0")
    process = launch(script | {"pid": str(pid)}, str(model), *words)
    assert process.stderr is not None
    url = ""
    for line in process.stderr:
        found = re.search(r" (loading|ready) .*url=(\S+)", line)
        if found and (found.group(1) == "ready" or moment == "loading"):
            url = found.group(2)
            break
    while not (pid.exists() and pid.read_text()):
        time.sleep(0.01)
    child = int(pid.read_text())
    if moment == "loading":
        os.killpg(process.pid, number)
    else:
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=20) as reply:
            lines = reply.iter_lines()
            next(lines)
            os.killpg(process.pid, number)
            assert any("shutting down" in line for line in lines), "the open stream is told"
    assert process.wait(20) == (130 if number == signal.SIGINT else 0)
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def lines_of(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """The rest of a log of JSON."""
    assert process.stderr is not None
    found = [json.loads(line) for line in process.stderr]
    process.stderr.close()
    return found


def ready_url(process: subprocess.Popen[str]) -> str:
    """Where a server with a log of JSON is, once it is ready."""
    assert process.stderr is not None
    return next(str(said["url"]) for line in process.stderr if (said := json.loads(line))["event"] == "ready")


SLOW = {"answers": [[65] * 50], "token_s": 0.03}
HI = {"model": "a", "messages": [{"role": "user", "content": "a secret"}], "stream": True}


def test_sigterm_lets_answers_end_and_sends_new_ones_away(model: Path, tmp_path: Path) -> None:
    heard = tmp_path / "lines"
    words = (str(model), "--log-format", "json", "--alias", "a", "--state-disk-gib", "1")
    process = launch(SLOW | {"log": str(heard)}, *words)
    url = ready_url(process)
    with (
        httpx.Client(base_url=url, timeout=20) as http,
        httpx.Client(base_url=url, timeout=20) as other,
        http.stream("POST", "/v1/chat/completions", json=HI, headers={"X-Request-Id": "my-7"}) as reply,
    ):
        assert reply.headers["x-request-id"] == "my-7"
        lines = reply.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        while (health := other.get("/health")).json()["status"] == "ok":
            time.sleep(0.01)
        assert (health.status_code, health.json()["status"]) == (503, "draining")
        refused = other.post("/v1/chat/completions", json=HI)
        assert refused.status_code == 503 and refused.headers["retry-after"]
        assert "shutting down" in refused.json()["error"]["message"]
        rest = list(lines)
    assert rest[-2:] == ["data: [DONE]", ""] and not any("error" in line for line in rest)
    assert sum('"content":"' in line for line in rest) >= 48, "the whole answer"
    assert process.wait(20) == 0
    assert heard.read_text().splitlines()[-2:] == ["SAVE", "QUIT"]
    said = lines_of(process)
    assert [line["requests"] for line in said if line["event"] == "draining"] == [1]
    whole, refusal = (next(s for s in said if s["event"] == "request" and s["status"] == code) for code in (200, 503))
    assert whole["id"] == "my-7" and whole["model"] == "a" and whole["path"] == "/v1/chat/completions"
    assert (whole["outcome"], whole["generated"], whole["stream"]) == ("stop", 50, True)
    assert whole["first_ms"] <= whole["total_ms"] and whole["decode_ms"] > 0
    assert refusal["outcome"] == "engine_unavailable" and refusal["id"] == refused.headers["x-request-id"]
    assert "secret" not in json.dumps(said)


def test_a_second_signal_ends_at_once(model: Path) -> None:
    process = launch(SLOW | {"answers": [[65] * 2000]}, str(model), "--log-format", "json")
    body = {**HI, "model": "default"}
    with httpx.stream("POST", f"{ready_url(process)}/v1/chat/completions", json=body, timeout=20) as reply:
        lines = reply.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert any(json.loads(line)["event"] == "draining" for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert any("shutting down" in line for line in lines)
    assert process.wait(20) == 0
    assert [line["outcome"] for line in lines_of(process) if line["event"] == "request"] == ["error"]


def test_several_models_of_one_command_line(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(model.read_bytes())
    process = launch({}, str(model), str(other), "--log-format", "json", "--idle-unload", "2")
    with httpx.Client(base_url=ready_url(process), timeout=20) as http:
        assert [each["id"] for each in http.get("/v1/models").json()["data"]] == ["tiny-model", "other"]
        body = {"prompt": "x", "max_tokens": 2}
        assert http.post("/v1/completions", json=body).json()["model"] == "tiny-model"
        assert http.post("/v1/completions", json={**body, "model": "other"}).json()["model"] == "other"
        while http.get("/health").json()["status"] != "unloaded":
            time.sleep(0.02)
    process.terminate()
    assert process.wait(20) == 0
    said = [(line["event"], line["model"]) for line in lines_of(process) if line["event"] in ("loading", "ready")]
    assert said == [("loading", "other"), ("ready", "other")]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["{}", "{}"], "2 models are named 'tiny-model'"), (["{}", "{}", "--mtp", "x"], "--mtp: one file")],
)
def test_several_models_are_told_apart(model: Path, words: list[str], said: str) -> None:
    process = launch({}, *(word.format(model) for word in words))
    _, err = process.communicate(timeout=60)
    assert (process.returncode, said in err) == (2, True), err
