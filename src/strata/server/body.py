"""Request bodies: size, JSON, and every field by its name."""

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from strata.server.errors import ApiError

S = TypeVar("S", bound=msgspec.Struct)

IGNORED = frozenset(
    (
        "user", "metadata", "store", "safety_identifier", "prompt_cache_key", "prompt_cache_options",
        "prompt_cache_retention", "client_metadata",
    )
)  # fmt: skip
"""Fields that are accepted and do nothing: they describe the client to a hosted service, or ask for the cache that is
always there."""

_PATH = re.compile(r"`\$\.?([^`]*)`")


async def read_object(request: Request, limit: int) -> dict[str, Any]:
    """The JSON object in the body; 413, 415 or 400 otherwise."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, f"Content-Type must be application/json, found {kind[:60]!r}", code="wrong_content_type")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise _too_large(limit)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return value


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the body is larger than {limit} bytes", code="body_too_large")


def read_fields(
    value: Mapping[str, Any],
    form: type[S],
    unbuilt: Mapping[str, tuple[Any, ...]],
    ignored: Collection[str] = IGNORED,
) -> S:
    """`value` as `form`. Unknown fields, and those of `unbuilt` with a value that asks for something, are refused."""
    known = _names(form)
    kept: dict[str, Any] = {}
    for name, item in value.items():
        if name in known:
            if item is not None:
                kept[name] = item
        elif name in unbuilt:
            if item is not None and item not in unbuilt[name]:
                raise ApiError(400, f"{name!r} is not built yet", name, "unsupported_parameter")
        elif name not in ignored:
            raise ApiError(400, f"unknown field {name[:60]!r}", name[:60], "unknown_parameter")
    try:
        return msgspec.convert(kept, form)
    except msgspec.ValidationError as error:
        text = str(error)
        path = _PATH.search(text)
        param = path.group(1) if path and path.group(1) else _missing(text)
        said = _PATH.sub("", text).removesuffix(" - at ").strip()
        raise ApiError(400, f"{param}: {said}" if param else said, param, "invalid_value") from error


@cache
def _names(form: type[msgspec.Struct]) -> frozenset[str]:
    """The fields of `form`, as they are written."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(form))


def _missing(text: str) -> str | None:
    found = re.search(r"required field `(\w+)`", text)
    return found.group(1) if found else None
