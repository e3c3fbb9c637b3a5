"""docs/reference/http.md: paths, and the fields of every body."""

import importlib
import inspect
from typing import Any

import msgspec

from references.tables import code, flowing, page, table
from strata.server.openapi import PATHS, Path

INTRODUCTION = """
`GET /openapi.json` is the same for programs. Fields that no table below has are refused by name
(`unknown_parameter`), so are those that are understood but not built, unless their value asks for nothing.
[Errors](errors.md) have one form per dialect. With `--api-key` every path but the page and `/health` wants
`Authorization: Bearer KEY` (or `x-api-key: KEY`).
"""


def http() -> str:
    """The page."""
    rows = [(each.method.upper(), code(each.path), each.summary) for each in PATHS]
    parts = [INTRODUCTION, "## Paths", table(("method", "path", "what"), rows)]
    bodies = [each for each in PATHS if each.body is not None]
    return page("HTTP", *parts, *(_body(each) for each in bodies))


def _body(path: Path) -> str:
    body = path.body
    assert body is not None
    about = [cls.__doc__ for cls in body.__mro__ if issubclass(cls, msgspec.Struct) and cls is not msgspec.Struct]
    lines = [f"## {path.method.upper()} {path.path}", *(flowing(inspect.cleandoc(text)) for text in about if text)]
    lines.append(
        table(("field", "type", "when it is left out"), [_field(each) for each in msgspec.structs.fields(body)])
    )
    unbuilt: dict[str, tuple[Any, ...]] = getattr(importlib.import_module(body.__module__), "UNBUILT", {})
    if unbuilt and path.streams:
        named = (
            code(name) + (f" ({' or '.join(map(_json, values))} is taken)" if values else "")
            for name, values in unbuilt.items()
        )
        lines.append(f"Understood, and refused because it is not built: {', '.join(named)}.")
    return "\n\n".join(lines)


def _field(field: msgspec.structs.FieldInfo) -> tuple[str, str, str]:
    if field.default is not msgspec.NODEFAULT:
        default = "" if field.default is None else _json(field.default)
    elif field.default_factory is not msgspec.NODEFAULT:
        default = _json(field.default_factory())
    else:
        default = "is refused"
    return code(field.encode_name), _type(field.type), default


def _json(value: object) -> str:
    return code(msgspec.json.encode(value).decode())


def _type(kind: object) -> str:
    """A type as JSON has it."""
    info = msgspec.inspect.type_info(kind)
    return " or ".join(dict.fromkeys(_names(info)))


_NAMES = {
    "AnyType": "anything",
    "NoneType": "",
    "BoolType": "true or false",
    "IntType": "whole number",
    "FloatType": "number",
    "StrType": "text",
    "DictType": "object",
    "StructType": "object",
}


def _names(info: msgspec.inspect.Type) -> list[str]:
    if isinstance(info, msgspec.inspect.UnionType):
        return [name for each in info.types for name in _names(each)]
    if isinstance(info, msgspec.inspect.Metadata):
        return _names(info.type)
    if isinstance(info, msgspec.inspect.LiteralType):
        return [_json(value) for value in info.values]
    if isinstance(info, msgspec.inspect.ListType):
        return [f"list of {' or '.join(dict.fromkeys(_names(info.item_type)))}"]
    name = _NAMES.get(type(info).__name__, type(info).__name__.removesuffix("Type").lower())
    return [name] if name else []
