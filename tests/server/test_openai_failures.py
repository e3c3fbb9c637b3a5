"""OpenAI streams that fail, are left by their client, or say nothing for long."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from server.harness import Running, ids, running, sse
from strata.server.engine_process import State
from strata.server.settings import ServerSettings

FAMILY = "A😀漢é🇨🇭 done"
HELLO = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(answers=[[*ids(FAMILY), 0]]) as up:
        yield up


def client(server: Running) -> openai.OpenAI:
    return server.client(openai.OpenAI, "/v1")


def chat(server: Running, **fields: Any) -> Any:
    return server.http.post("/v1/chat/completions", json={"messages": HELLO} | fields)


@pytest.mark.parametrize("ending", ["crash_after", "fatal_after", "error_after"])
def test_a_failure_in_a_stream_is_an_error_event(ending: str) -> None:
    with running(answers=[ids(FAMILY)], token_s=0.01, **{ending: 3}) as up:
        events = sse(chat(up, stream=True).text)
        assert events[-1] != "[DONE]"
        assert events[-1]["error"]["message"]
        up.until(State.READY)
        with pytest.raises(openai.APIError):
            for _ in client(up).chat.completions.create(model="tiny", messages=HELLO, stream=True):  # type: ignore[call-overload]
                pass
        up.until(State.READY)
        assert chat(up).status_code in {500, 503}


def test_after_a_crash_the_next_request_is_served(tmp_path: Path) -> None:
    with running(answers=[ids(FAMILY)], crash_after=2, crash_once=str(tmp_path / "crashed")) as up:
        assert chat(up).status_code == 503
        up.until(State.READY)
        assert chat(up).json()["choices"][0]["message"]["content"] == FAMILY
        assert up.http.get("/v1/status").json()["restarts"] == 1


def raw_request(server: Running, fields: dict[str, Any]) -> socket.socket:
    body = json.dumps({"messages": HELLO} | fields).encode()
    fields_of = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": len(body)}
    lines = ["POST /v1/chat/completions HTTP/1.1", *(f"{name}: {value}" for name, value in fields_of.items())]
    head = "\r\n".join([*lines, "", ""])
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("moment", ["at once", "while the prompt is read", "in the answer"])
def test_a_client_that_leaves_ends_its_request(stream: bool, moment: str, tmp_path: Path) -> None:
    log = tmp_path / "lines"
    prompt_s = 30.0 if moment == "while the prompt is read" else 0.0
    with running(answers=[[65] * 500], token_s=0.05, prompt_s=prompt_s, log=str(log)) as up:
        connection = raw_request(up, {"stream": stream})
        if moment != "at once":
            while not log.exists():
                time.sleep(0.01)
        if moment == "in the answer" and stream:
            assert b"200 OK" in connection.recv(65536)
        connection.close()
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            status = up.http.get("/v1/status").json()
            if log.exists() and "STOP" in log.read_text() and not status["engine"]["running"]:
                break
            if moment == "at once" and not log.exists() and not status["requests"] and time.monotonic() > deadline - 14:
                break
            time.sleep(0.02)
        assert up.http.get("/v1/status").json()["requests"] == 0
        assert up.http.get("/v1/status").json()["engine"]["running"] == 0


def test_silence_gets_keep_alive_comments() -> None:
    with running(ServerSettings(keep_alive_s=0.05), prompt_s=1.0) as up:
        text = chat(up, stream=True).text
        assert text.count(": keep-alive") >= 2
        assert sse(text)[-1] == "[DONE]"
