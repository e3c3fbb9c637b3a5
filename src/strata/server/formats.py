"""The form that an answer is to have, as requests ask for it: a JSON schema, a regular expression or a grammar."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strata.chat.shapes import Shape, of_grammar, of_loose_schema, of_regex, of_schema, place_of
from strata.chat.tokenizer import Tokenizer
from strata.core.errors import RequestError
from strata.server.errors import ApiError


@dataclass(frozen=True, slots=True)
class Format:
    """What was asked for, and where."""

    shapes: Sequence[Shape]
    """The first that can be compiled is right."""
    field: str
    schema: Any = None
    """For naming the place of what cannot be honoured."""

    def refused(self, complaint: str) -> ApiError:
        """The answer when it cannot be compiled."""
        place = place_of(self.schema, complaint) if self.schema is not None else ""
        where = f"{self.field}.{place}" if place else self.field
        return ApiError(400, f"{where}: {' '.join(complaint.split())[:600]}", where, "invalid_schema")


def check_length(short: str | None, tokenizer: Tokenizer, most: int | None, field: str) -> None:
    """400, in the name of the `field` that says so, when a short answer has more than the `most` tokens it may have."""
    needed = 0 if short is None else len(tokenizer.encode(short)) + 1
    if most is not None and needed > most:
        why = f"{field}: the shortest answer of this form takes about {needed} tokens, {most} may come"
        raise ApiError(400, why, field, "invalid_value")


def of_schema_field(field: str, schema: Any, strict: bool) -> Format:
    """A schema that a request gives in `field`."""
    if not isinstance(schema, dict | bool):
        raise ApiError(400, f"{field} must be a JSON schema (an object)", field, "invalid_value")
    return Format((of_schema(schema, strict),) if strict else of_loose_schema(schema), field, schema)


def of_response_format(value: Mapping[str, Any] | None, field: str) -> Format | None:
    """OpenAI's `response_format` (chats) or `text.format` (responses); None for plain text."""
    if value is None:
        return None
    match value.get("type"):
        case "text":
            return None
        case "json_object":
            return Format((of_schema({"type": "object"}, strict=True),), field)
        case "json_schema":
            inner, where = value, field
            if isinstance(value.get("json_schema"), dict):
                inner, where = value["json_schema"], f"{field}.json_schema"
            strict = inner.get("strict")
            if strict not in (None, True, False):
                raise ApiError(400, f"{where}.strict must be true or false", f"{where}.strict", "invalid_value")
            return of_schema_field(f"{where}.schema", inner.get("schema"), strict is True)
    raise ApiError(
        400, f"{field}.type must be text, json_object or json_schema, found {value.get('type')!r:.40}", f"{field}.type"
    )


def of_text(field: str, value: str | None) -> Format | None:
    """A `grammar` (Lark or GBNF) or a `regex`; empty ones ask for nothing."""
    if not value:
        return None
    try:
        return Format((of_regex(value) if field == "regex" else of_grammar(value),), field)
    except RequestError as error:
        raise ApiError(400, f"{field}: {error.message}", field, "invalid_value") from error


def only_one(*formats: Format | None) -> Format | None:
    """The one that was asked for."""
    asked = [each for each in formats if each is not None]
    if len(asked) > 1:
        names = " and ".join(each.field.partition(".")[0] for each in asked[:2])
        raise ApiError(400, f"{names} cannot be combined", asked[1].field.partition(".")[0], "invalid_value")
    return asked[0] if asked else None
