"""Server-sent events as bytes."""

from collections.abc import Mapping
from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
_ENCODER = msgspec.json.Encoder()


def data(value: Mapping[str, Any]) -> bytes:
    """One event."""
    return b"data: %b\n\n" % _ENCODER.encode(value)


def named(value: Mapping[str, Any]) -> bytes:
    """One event that is named by its type, as Anthropic's and those of OpenAI's responses are."""
    return b"event: %b\n%b" % (value["type"].encode(), data(value))
