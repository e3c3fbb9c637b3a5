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
from strata.server.settings import ServerSettings

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
        [sys.executable, "-c", LAUNCH, fake, json.dumps(script), *words],
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
    process = launch({"answers": [[65] * 2000], "token_s": 0.02}, str(model), "--port", "0", "--alias", "mine")
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
        ({"fail_load": True}, ["--port", "0"], 1, "error: the engine failed: model.gguf: tensor x is cut short"),
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
    served = command.describe(str(model), model, Wishes(temp=0.5, max_tokens=7), ServerSettings(), Log())
    assert (served.name, served.defaults.temperature, served.max_tokens) == ("tiny-model", 0.5, 7)
    served.check_name("default")
    served.check_name(None)


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
    process = launch(script | {"pid": str(pid)}, str(model), "--port", "0", "--keep-alive-s", "0.05")
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
