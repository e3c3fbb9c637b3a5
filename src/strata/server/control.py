"""What clients may change about the server: which model is loaded, and what experts take of VRAM."""

import time
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from strata.server.body import read_fields, read_object
from strata.server.models import Models
from strata.server.request_log import record_of

MOST_BYTES = 1 << 16
"""Of a body here."""


class LoadFields(msgspec.Struct, frozen=True):
    """Body of POST /v1/load."""

    model: str


class UnloadFields(msgspec.Struct, frozen=True):
    """Body of POST /v1/unload, which may be left out."""

    model: str | None = None
    """Unload this one only; None = whichever is loaded."""


class VramFields(msgspec.Struct, frozen=True):
    """Body of POST /v1/vram."""

    gib: Annotated[float, msgspec.Meta(ge=0.0, le=16384.0)]


class Control:
    """The routes that change something."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def load(self, request: Request) -> Response:
        """POST /v1/load {"model": NAME}: answers when the model is loaded, after what runs on another one."""
        model = self._models.find(read_fields(await self._body(request), LoadFields, {}).model)
        began_s = time.monotonic()
        await self._models.load(model)
        seconds = round(time.monotonic() - began_s, 3)
        return JSONResponse({"model": model.name, "context_length": model.context, "seconds": seconds})

    async def unload(self, request: Request) -> Response:
        """POST /v1/unload: answers, when what runs has ended, with what was freed; the next request loads again."""
        fields = read_fields(await self._body(request), UnloadFields, {})
        model = self._models.find(fields.model)
        if self._models.state_of(model) not in ("loaded", "loading"):
            return JSONResponse({"model": model.name, "freed": {"ram_bytes": 0, "vram_bytes": 0}})
        freed = await self._models.unload()
        found = {"ram_bytes": freed.ram_bytes, "vram_bytes": freed.vram_bytes}
        return JSONResponse({"model": model.name, "freed": found})

    async def vram(self, request: Request) -> Response:
        """POST /v1/vram {"gib": X}: let experts take up to so much VRAM, and say what they take now."""
        engine = self._models.require_engine()
        fields = read_fields(await self._body(request), VramFields, {})
        found = await engine.resize(int(fields.gib * 1024))
        return JSONResponse({"gib": found["arena_mib"] / 1024})

    async def _body(self, request: Request) -> dict[str, Any]:
        record_of(request.scope).told = True
        empty = request.headers.get("content-length") in (None, "0") and "transfer-encoding" not in request.headers
        return {} if empty else await read_object(request, MOST_BYTES)
