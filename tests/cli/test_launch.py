"""`strata launch`: what each agent is told, and what is in the way."""

import json
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from strata.cli.main import run


@contextmanager
def a_server(key: str = "") -> Iterator[str]:
    """Answers /v1/models as ours does; with a key, only to those who have it."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            allowed = not key or self.headers["Authorization"] == f"Bearer {key}"
            self.send_response(200 if allowed and self.path == "/v1/models" else 401)
            self.end_headers()
            models = {"another": "unloaded", "a-model": "loaded"}
            found = [{"id": name, "status": {"value": value}} for name, value in models.items()]
            self.wfile.write(json.dumps({"data": found}).encode())

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def shown(capsys: pytest.CaptureFixture[str], agent: str, url: str, *words: str) -> list[str]:
    assert run(["launch", agent, "--url", url, "--print", *words], {}) == 0
    return shlex.split(capsys.readouterr().out)


def test_what_would_be_started_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with a_server() as url:
        assert run(["launch", "claude", "--url", url, "--json", "--", "-p", "hi"], {}) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["command"] == ["claude", "-p", "hi"]
    assert found["environment"]["ANTHROPIC_BASE_URL"] == url


def test_what_agents_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with a_server() as url:
        words = shown(capsys, "claude", url, "--", "-p", "hi")
        assert f"ANTHROPIC_BASE_URL={url}" in words and "ANTHROPIC_MODEL=a-model" in words
        assert words[-3:] == ["claude", "-p", "hi"]
        words = shown(capsys, "codex", url + "/v1/")
        assert f'model_providers.strata.base_url="{url}/v1"' in words and 'model="a-model"' in words
        words = shown(capsys, "opencode", url)
        settings = json.loads(words[0].removeprefix("OPENCODE_CONFIG_CONTENT="))
        assert settings["model"] == "strata/a-model"
        assert settings["provider"]["strata"]["options"]["baseURL"] == f"{url}/v1"


def test_an_agent_is_started_with_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    started: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr("strata.cli.launch.os.execve", lambda *words: started.append(words))
    with a_server("secret") as url:
        words = ["launch", "claude", "--url", url, "--api-key", "secret", "--", "-c"]
        assert run(words, {"PATH": str(tmp_path), "HOME": "/home/x"}) == 0
    assert started[0][:2] == (str(program), ["claude", "-c"])
    assert started[0][2]["ANTHROPIC_AUTH_TOKEN"] == "secret" and started[0][2]["HOME"] == "/home/x"


def test_what_is_in_the_way(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["launch", "emacs"], {}) == 2
    assert run(["launch", "claude", "--url", "http://127.0.0.1:9"], {}) == 1
    assert "start one with strata serve" in capsys.readouterr().err
    with a_server("secret") as url:
        assert run(["launch", "claude", "--url", url], {}) == 1
        assert "give its key with --api-key" in capsys.readouterr().err
        assert run(["launch", "claude", "--url", url], {"STRATA_API_KEY": "secret", "PATH": str(tmp_path)}) == 2
        assert "claude is not installed here" in capsys.readouterr().err
