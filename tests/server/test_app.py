"""Everything around the dialects: access, limits, state."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from server.harness import Running, running
from strata import __version__
from strata.core.errors import UsageError
from strata.server.engine_process import State
from strata.server.listen import take_socket
from strata.server.settings import ServerSettings

HELLO = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ServerSettings(body_mib=1, allow_origin="https://app.example, http://localhost:3000")) as up:
        yield up


@pytest.fixture(scope="module")
def locked() -> Iterator[Running]:
    with running(ServerSettings(api_key="sécret")) as up:
        yield up


def test_state_pages(server: Running) -> None:
    assert server.http.get("/health").json() == {"status": "ok"}
    assert server.http.get("/version").json() == {"version": __version__}
    models = server.http.get("/v1/models").json()["data"]
    assert [m["id"] for m in models] == ["tiny"]
    assert server.http.get("/v1/models/tiny").json()["context_length"] == 512
    status = server.http.get("/v1/status").json()
    assert status["state"] == "ready"
    assert status["info"]["batch_slots"] == "4"
    assert status["engine"] == {"served": 0, "running": 0} or status["engine"]["running"] == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/v1//completions", 404),
    ],
)
def test_wrong_paths_have_the_error_form(server: Running, method: str, path: str, status: int) -> None:
    reply = server.http.request(method, path)
    assert reply.status_code == status
    assert reply.json()["error"]["message"]


def test_bodies(server: Running) -> None:
    post = server.http.post
    assert post("/v1/chat/completions", content=b"x" * (1 << 20) + b"x", headers=JSON).status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * 65536

    assert post("/v1/chat/completions", content=pieces(), headers=JSON).status_code == 413
    for body in (b"{", b"[]", b"\xff", b'{"a": NaN}', b"[" * 100_000):
        reply = post("/v1/chat/completions", content=body, headers=JSON)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_json")
    assert post("/v1/chat/completions", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert post("/v1/chat/completions", json=HELLO).status_code == 200


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/v1/models/tiny",
        "/v1/status",
        "/version",
        "/v1/chat/completions",
        "/nowhere",
        "/V1/models",
        "//v1/models",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS"])
def test_nothing_without_the_key(locked: Running, path: str, method: str) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"X-Api-Key": "wrong"},
        {"Authorization": "sécret".encode()},
    ):
        assert locked.http.request(method, path, headers=headers).status_code == 401


def test_the_key_opens(locked: Running) -> None:
    assert locked.http.get("/health").status_code == 200
    for headers in ({"Authorization": "Bearer sécret".encode()}, {"x-api-key": "sécret".encode()}):
        assert locked.http.post("/v1/chat/completions", json=HELLO, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example", "http://localhost:3001"]
)
def test_foreign_origins_are_refused(server: Running, origin: str) -> None:
    for method in ("POST", "OPTIONS", "GET"):
        reply = server.http.request(method, "/v1/chat/completions", json=HELLO, headers={"Origin": origin})
        assert reply.status_code == 403
        assert "access-control-allow-origin" not in reply.headers


def test_listed_and_own_origins_are_served(server: Running) -> None:
    for origin in ("https://app.example", "http://localhost:3000"):
        reply = server.http.post("/v1/chat/completions", json=HELLO, headers={"Origin": origin})
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, origin)
        assert server.http.options("/v1/chat/completions", headers={"Origin": origin}).status_code == 204
    own = server.http.post("/v1/chat/completions", json=HELLO, headers={"Origin": server.url})
    assert own.status_code == 200
    assert "access-control-allow-origin" not in own.headers


@pytest.mark.parametrize(
    ("host", "status"), [("evil.example", 403), ("localhost", 200), ("[::1]:8080", 200), ("[", 403)]
)
def test_other_host_names_are_refused(server: Running, host: str, status: int) -> None:
    assert server.http.get("/health", headers={"Host": host}).status_code == status


def test_while_the_model_loads(tmp_path: Path) -> None:
    """O-105: endpoints hang or answer 200 before there is a model."""
    go = tmp_path / "go"
    with running(wait=False, load_until=str(go)) as up:
        while "percent" not in (reply := up.http.get("/health")).json():
            assert reply.status_code == 503
        assert (reply.status_code, reply.json()["status"]) == (503, "loading")
        reply = up.http.post("/v1/chat/completions", json=HELLO)
        assert reply.status_code == 503
        assert reply.headers["retry-after"]
        assert "the model is loading (reading the model's file: 43%)" in reply.json()["error"]["message"]
        assert up.http.get("/v1/models").status_code == 200
        go.touch()
        up.until(State.READY)
        assert up.http.get("/health").status_code == 200


def test_a_failed_load_says_why() -> None:
    """O-105: the load fails, and nobody can tell why."""
    with running(wait=False, fail_load=True) as up:
        up.until(State.FAILED)
        assert "tensor x is cut short" in up.http.get("/health").json()["reason"]


def test_shutdown_ends_open_streams() -> None:
    with running(answers=[[65] * 1000], token_s=0.02) as up, httpx.Client(base_url=up.url, timeout=20) as http:
        with http.stream("POST", "/v1/chat/completions", json=HELLO | {"stream": True}) as reply:
            lines = reply.iter_lines()
            assert next(lines).startswith("data: ")
            up.server.should_exit = True
            rest = list(lines)
        assert any('"error"' in line for line in rest)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_a_wide_bind_needs_a_key(host: str) -> None:
    with pytest.raises(UsageError, match="refused"):
        ServerSettings(host=host)
    assert ServerSettings(host=host, api_key="k").host == host
    assert ServerSettings(host=host, insecure=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_loopback_needs_none(host: str) -> None:
    assert ServerSettings(host=host).loopback


def test_a_taken_port_is_named() -> None:
    taken = take_socket(ServerSettings(port=0))
    taken.listen()
    port = taken.getsockname()[1]
    try:
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1 port {port}"):
            take_socket(ServerSettings(port=port))
    finally:
        taken.close()


def test_experts_and_timeline(server: Running) -> None:
    found = server.http.get("/v1/experts").json()
    assert (found["layers"], found["experts"], found["tiers"]) == ([0, 2], 3, "AAECAAL/")
    before = int(server.http.get("/v1/timeline").json()["now"])
    assert server.http.post("/v1/chat/completions", json=HELLO).status_code == 200
    seconds = server.http.get(f"/v1/timeline?since={before}").json()["seconds"]
    assert sum(one["tokens"] for one in seconds) >= 3 and any(one["first_ms"] is not None for one in seconds)
    assert server.http.get("/v1/timeline?since=9999999999").json()["seconds"] == []
    for wrong in ("-1", "x", "1" * 20, "²"):
        assert server.http.get("/v1/timeline", params={"since": wrong}).status_code == 400


def test_status_tells_memory_and_what_requests_get(server: Running) -> None:
    status = server.http.get("/v1/status").json()
    assert status["memory"]["ram"]["total"] > 1 << 20 and status["memory"]["vram"] is None
    assert status["sampling"]["temperature"] == 0.0 and status["sampling"]["max_tokens"] is None


def test_vram_is_given_back_and_taken_again(server: Running) -> None:
    assert server.http.post("/v1/vram", json={"gib": 1.25}).json() == {"gib": 1.0}
    assert server.http.post("/v1/vram", json={"gib": 0}).json() == {"gib": 0.0}
    refused = server.http.post("/v1/vram", json={"gib": 8})
    assert refused.status_code == 400 and "no budget of VRAM" in refused.json()["error"]["message"]
    for body, param in (({"gib": -1}, "gib"), ({}, "gib"), ({"gib": 1, "mib": 2}, "mib")):
        wrong = server.http.post("/v1/vram", json=body)
        assert wrong.status_code == 400 and wrong.json()["error"]["param"] == param
    assert server.http.get("/v1/vram").status_code == 405
