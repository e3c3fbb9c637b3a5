"""The description of the API is the API: the same paths, the same fields, the same refusals."""

import msgspec
import pytest
from starlette.routing import Route

from server.harness import fake_process, models_of, running
from strata.core.log import Log
from strata.server.app import create_app
from strata.server.openapi import PATHS, Path, document
from strata.server.settings import ServerSettings


def test_every_route_is_described() -> None:
    app = create_app(models_of(fake_process()), ServerSettings(), Log())
    routes = {
        (route.path.replace(":path}", "}"), method.lower())
        for route in app.routes
        if isinstance(route, Route) and route.methods and not getattr(route.endpoint, "page", False)
        for method in route.methods - {"HEAD"}
    }
    described = {(path.path, path.method) for path in PATHS}
    assert described <= routes
    assert {pair for pair in routes - described if pair[0].startswith("/v1") or pair[1] == "post"} == set()


def test_bodies_are_the_types_that_read_them() -> None:
    found = document()
    for path in PATHS:
        if path.body is None:
            continue
        schema = found["paths"][path.path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        named = found["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        assert set(named["properties"]) == {f.encode_name for f in msgspec.structs.fields(path.body)}


def test_it_is_served_and_says_where() -> None:
    with running() as up:
        found = up.http.get("/openapi.json").json()
    assert found["openapi"] == "3.1.0"
    assert set(found["paths"]) == {path.path for path in PATHS}


def test_a_path_that_is_missing_is_missed() -> None:
    short = document((Path("/health", "get", "x"),))
    assert set(short["paths"]) == {"/health"}
    with pytest.raises(KeyError):
        short["paths"]["/slots"]


def test_a_method_that_is_not_allowed_names_those_that_are() -> None:
    with running() as up:
        answer = up.http.request("TRACE", "/slots")
        assert answer.status_code == 405
        assert "GET" in answer.headers["Allow"]


def test_null_is_a_field_that_was_not_given() -> None:
    schemas = document()["components"]["schemas"]
    fields = schemas["ChatFields"]["properties"]
    assert {"type": "null"} in fields["parallel_tool_calls"]["anyOf"]
    assert "anyOf" not in fields["messages"]  # a chat needs them
    with running() as up:
        asked = {"messages": [{"role": "user", "content": "x"}], "parallel_tool_calls": None, "n": None}
        assert up.http.post("/v1/chat/completions", json=asked).status_code == 200
