"""What clients ask about the server itself: models, health, status, measurements. Nothing here changes anything."""

import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from strata import __version__
from strata.server import metrics
from strata.server.catalog import Model
from strata.server.engine_metrics import slots_of
from strata.server.engine_process import State
from strata.server.errors import ApiError
from strata.server.memory import memory_of
from strata.server.metrics import Metrics
from strata.server.model_metrics import ModelCounters
from strata.server.models import UNLOADED, Models
from strata.server.openapi import document
from strata.server.replies import EngineAwayError
from strata.server.tokens import props


class Inspection:
    """The routes that read."""

    def __init__(self, models: Models, measured: Metrics) -> None:
        self._models = models
        self._metrics = measured

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        return JSONResponse({"object": "list", "data": [self._model(each) for each in self._models.catalog.models]})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/NAME."""
        return JSONResponse(self._model(self._models.find(request.path_params["name"])))

    def _model(self, model: Model) -> dict[str, Any]:
        """OpenAI's fields, vLLM's, and llama.cpp's `status`."""
        context = model.context
        return {
            "id": model.name,
            "object": "model",
            "created": model.served.created,
            "owned_by": "strata",
            "context_length": context,
            "max_model_len": context,
            "status": {"value": self._models.state_of(model), **self._details(model)},
        }

    def _state(self, model: Model) -> dict[str, Any]:
        return {"name": model.name, "state": self._models.state_of(model), **self._details(model)}

    def _details(self, model: Model) -> dict[str, Any]:
        """What more there is to say of its state."""
        state = self._models.state_of(model)
        if state == "failed":
            return {"reason": model.failure}
        return (self._loading() or {}) if state == "loading" else {}

    def _loading(self) -> dict[str, Any] | None:
        """How far the model that loads is; None while nothing is known of that."""
        engine = self._models.engine
        return None if engine is None or engine.loading is None else engine.loading.values()

    async def _engine_status(self) -> Mapping[str, Any] | None:
        """What the engine says of itself; None when there is none, or when it ends while it is asked."""
        engine = self._models.engine
        if engine is None or engine.state is not State.READY:
            return None
        try:
            return await engine.status()
        except EngineAwayError:
            return None

    async def health(self, request: Request) -> Response:
        """GET /health: 200 when requests are taken (and load a model, if none is), else 503 with the state."""
        state = self._models.state
        if state in (State.READY, UNLOADED):
            return JSONResponse({"status": "ok" if state == State.READY else state})
        body = {"status": state, "reason": self._models.reason, **(self._loading() or {})}
        return JSONResponse(body, 503, {"Retry-After": "2"})

    async def status(self, request: Request) -> Response:
        """GET /v1/status: what runs, and how, and why so."""
        models, model, engine = self._models, self._models.usual, self._models.engine
        own: dict[str, Any] = {
            "state": models.state,
            "reason": models.reason,
            "loading": self._loading(),
            "model": model.name,
            "models": [self._state(each) for each in models.catalog.models],
            "waiting_for_model": models.waiting,
            "idle_unload_s": models.terms.idle_s or None,
            "version": __version__,
            "context": model.context,
            "requests": 0 if engine is None else engine.running,
            "restarts": models.tally.restarts,
            "info": {} if engine is None else engine.info,
            "sampling": model.served.sampling(),
        }
        found = await self._engine_status()
        if found is not None:
            counts = {name: found[name] for name in ("running", "reading", "waiting", "queue_limit")}
            own["concurrency"] = {**found["slots"], **counts}
            own["memory"] = memory_of(found)
            own["engine"] = dict(found)
        return JSONResponse(own)

    async def experts(self, request: Request) -> Response:
        """GET /v1/experts: where every expert is, and how much each is used."""
        return JSONResponse(dict(await self._models.require_engine().experts()))

    async def timeline(self, request: Request) -> Response:
        """GET /v1/timeline?since=SECOND: tokens, first tokens and gaps of the last minutes, second by second."""
        asked = request.query_params.get("since", "0")
        if not (asked.isascii() and asked.isdecimal() and len(asked) < 16):
            raise ApiError(400, f"since must be a Unix time in whole seconds, found {asked[:40]!r}", "since")
        now_s = time.time()
        return JSONResponse({"now": now_s, "seconds": self._metrics.timeline.since(int(asked), now_s)})

    async def metrics(self, request: Request) -> Response:
        """GET /metrics, for Prometheus."""
        models, status = self._models, await self._engine_status()
        states = {model.name: models.state_of(model) for model in models.catalog.models}
        counters = ModelCounters(states, models.waiting, models.tally)
        return Response(self._metrics.render(status, models.tally.restarts, counters), media_type=metrics.TYPE)

    async def slots(self, request: Request) -> Response:
        """GET /slots: what every slot does."""
        return JSONResponse(slots_of(await self._models.require_engine().status()))

    async def props(self, request: Request) -> Response:
        """GET /props: the server's own settings, as llama.cpp's clients ask for them."""
        engine, model = self._models.engine, self._models.usual
        slots = None if engine is None else engine.info.get("batch_slots")
        return JSONResponse(props(model.served, model.context, None if slots is None else int(slots)))

    async def openapi(self, request: Request) -> Response:
        """GET /openapi.json."""
        return JSONResponse(document(prefix=request.scope.get("root_path", "")))

    async def version(self, request: Request) -> Response:
        """GET /version."""
        return JSONResponse({"version": __version__})
