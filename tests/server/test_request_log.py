"""The name of a request, and its line in the log."""

import asyncio
import io
import json
from typing import Any

import httpx
import pytest

from server.harness import fake_process, models_of
from strata.core.log import Level, Log
from strata.server.app import create_app
from strata.server.inspection import Inspection
from strata.server.settings import ServerSettings


def asked(path: str, headers: dict[str, str] | None = None, key: str | None = None) -> tuple[httpx.Response, Any]:
    """The answer to one GET, and the line of it."""
    stream = io.StringIO()

    async def run() -> httpx.Response:
        log = Log(Level.DEBUG, stream, "json")
        app = create_app(models_of(fake_process()), ServerSettings(api_key=key), log)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.get(path, headers=headers)

    reply = asyncio.run(run())
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["event"], line["path"], line["id"]) == ("request", path, reply.headers["x-request-id"])
    assert reply.headers.get_list("x-request-id") == [line["id"]]
    return reply, line


def test_every_answer_has_a_name_of_its_own() -> None:
    (first, line), (second, _) = asked("/version"), asked("/version")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert (line["status"], line["outcome"], line["level"]) == (200, "done", "debug")
    assert "request-id" not in first.headers


@pytest.mark.parametrize(
    ("given", "taken"), [("a-1._Z", True), ("x" * 65, False), ("a b", False), ("a\tlevel=x", False)]
)
def test_a_name_that_can_stand_in_a_log_is_kept(given: str, taken: bool) -> None:
    reply, _ = asked("/version", {"X-Request-Id": given})
    assert (reply.headers["x-request-id"] == given) is taken


@pytest.mark.parametrize(
    ("path", "key", "status", "outcome"),
    [
        ("/nowhere", None, 404, "not_found"),
        ("/v1/models/x", None, 404, "model_not_found"),
        ("/slots", None, 503, "engine_unavailable"),
        ("/slots", "secret", 401, "invalid_api_key"),
        ("/v1/messages", None, 405, "refused"),
    ],
)
def test_what_is_refused_is_told_with_its_code(path: str, key: str | None, status: int, outcome: str) -> None:
    reply, line = asked(path, key=key)
    assert (reply.status_code, line["status"], line["outcome"]) == (status, status, outcome)


def test_anthropics_clients_find_the_name_where_they_look() -> None:
    reply, line = asked("/v1/messages")
    assert reply.headers["request-id"] == line["id"] == reply.json()["request_id"]


def test_a_failure_of_our_own_has_its_name_and_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Inspection, request: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Inspection, "version", fail)
    reply, line = asked("/version")
    assert (reply.status_code, line["status"], line["outcome"]) == (500, 500, "internal")
