"""`GET /openapi.json`: the paths, and the fields that each body may have, from the very types that read them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from strata import __version__
from strata.server.anthropic_messages import CountFields, MessageFields
from strata.server.control import LoadFields, UnloadFields, VramFields
from strata.server.openai_chat import ChatFields
from strata.server.openai_completions import CompletionFields
from strata.server.openai_responses import ResponseFields
from strata.server.tokens import DetokenizeFields, TokenizeFields

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Path:
    """A path with one method."""

    path: str
    method: str
    summary: str
    body: type[msgspec.Struct] | None = None
    kind: str = JSON
    """Of the answer."""
    form: str = "object"
    """What the answer is, as JSON schemas say it."""
    streams: bool = False
    """Whether `stream` gets server-sent events in its place."""


PATHS = (
    Path("/v1/chat/completions", "post", "Chat, in OpenAI's form.", ChatFields, streams=True),
    Path("/v1/completions", "post", "Text as it stands, in OpenAI's form.", CompletionFields, streams=True),
    Path("/v1/responses", "post", "OpenAI's responses, without memory.", ResponseFields, streams=True),
    Path("/v1/messages", "post", "Messages, in Anthropic's form.", MessageFields, streams=True),
    Path("/v1/messages/count_tokens", "post", "Tokens of a prompt, in Anthropic's form.", CountFields),
    Path("/v1/models", "get", "The models that are served, and which of them is loaded."),
    Path("/v1/models/{name}", "get", "One of them by its name."),
    Path("/v1/load", "post", "Load a model in place of the one that is loaded.", LoadFields),
    Path("/v1/unload", "post", "Unload the model; the next request loads it again.", UnloadFields),
    Path("/v1/status", "get", "What runs, how, and why so."),
    Path("/v1/experts", "get", "Where every expert is, and how much each is used."),
    Path("/v1/timeline", "get", "Tokens, first tokens and gaps of the last minutes."),
    Path("/v1/vram", "post", "Let experts take up to so much VRAM.", VramFields),
    Path("/health", "get", "Whether requests are taken."),
    Path("/slots", "get", "What every slot does.", form="array"),
    Path("/metrics", "get", "For Prometheus.", kind="text/plain", form="string"),
    Path("/props", "get", "The server's own settings."),
    Path("/version", "get", "The version."),
    Path("/tokenize", "post", "Text to token ids.", TokenizeFields),
    Path("/detokenize", "post", "Token ids to text.", DetokenizeFields),
    Path("/openapi.json", "get", "This document."),
)
"""Everything but the page."""


def document(paths: tuple[Path, ...] = PATHS, prefix: str = "") -> dict[str, Any]:
    """The OpenAPI 3.1 document; `prefix` is where a proxy put the server."""
    bodies = [path.body for path in paths if path.body is not None]
    shared, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(bodies, shared, strict=True))
    for schema in shared:
        allow_null(components[schema["$ref"].rpartition("/")[2]])
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        found.setdefault(path.path, {})[path.method] = _operation(path, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Strata", "version": __version__, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": prefix or "/"}],
        "paths": found,
        "components": {
            "schemas": {**components, "Error": ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def allow_null(schema: dict[str, Any]) -> None:
    """A body's field that is null was not given, whatever its type."""
    for name, field in schema["properties"].items():
        if name not in schema.get("required", ()):
            schema["properties"][name] = {"anyOf": [field, {"type": "null"}]}


ERROR: Mapping[str, Any] = {
    "type": "object",
    "description": "What cannot be done, and the field that asks for it. Anthropic's paths use their form.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def _operation(path: Path, schema_of: Mapping[type[msgspec.Struct], dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {path.kind: {"schema": {"type": path.form}}}
    if path.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    schema = {"schema": {"$ref": "#/components/schemas/Error"}}
    refused = {"description": "What is wrong, by field.", "content": {JSON: schema}}
    statuses = ["401", "500", "503", *(["400", "404", "413", "415", "429"] if path.body is not None else [])]
    operation: dict[str, Any] = {
        "summary": path.summary,
        "responses": {"200": {"description": "Done.", "content": content}, **dict.fromkeys(statuses, refused)},
    }
    names = [part[1:-1].partition(":")[0] for part in path.path.split("/") if part.startswith("{")]
    if names:
        operation["responses"]["404"] = refused
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if path.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema_of[path.body]}}}
    return operation
