"""The HTTP application."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from strata import __version__
from strata.core.errors import StrataError
from strata.server import anthropic_messages, metrics, openai_chat, openai_completions, openai_responses
from strata.server.answers import Answers
from strata.server.body import read_fields, read_object
from strata.server.dialect import Dialect
from strata.server.engine_metrics import slots_of
from strata.server.engine_process import EngineProcess, State
from strata.server.errors import ApiError, as_api_error
from strata.server.fields import VramFields
from strata.server.guard import Guard
from strata.server.job import DEADLINE_HEADER, within
from strata.server.memory import memory_of
from strata.server.metrics import Metrics
from strata.server.openapi import document
from strata.server.pages import page_routes
from strata.server.served import ServedModel
from strata.server.settings import ServerSettings
from strata.server.stream import ClientGoneError, EventStream, unless_gone
from strata.server.tokens import DetokenizeFields, TokenizeFields, detokenize, props, tokenize

EARLY_ERROR_S = 0.5
"""A stream's answer is not begun for this long, so that a refusal still gets its own status code."""


DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": openai_chat.read,
    "/v1/completions": openai_completions.read,
    "/v1/responses": openai_responses.read,
    "/v1/messages": anthropic_messages.read,
}
"""Who asks where for an answer."""


class Api:
    """The routes, around one engine and one model."""

    def __init__(self, served: ServedModel, engine: EngineProcess, settings: ServerSettings) -> None:
        self._served = served
        self._engine = engine
        self._settings = settings
        self._metrics = Metrics()

    async def generate(self, dialect: Dialect, request: Request) -> Response:
        """An answer in one of DIALECTS, streamed or whole."""
        self._engine.require_ready()
        work = await dialect(await self.body(request), self._served, self._engine)
        jobs = within(work.jobs, request.headers.get(DEADLINE_HEADER))
        with ExitStack() as stack:
            answers = Answers(self._engine, jobs, self._served.conversation.tokenizer, self._metrics)
            stack.callback(answers.close)
            if not work.stream:
                return JSONResponse(work.writer.whole(await unless_gone(request.receive, answers.collect())))
            first = await unless_gone(request.receive, answers.next(EARLY_ERROR_S))
            stack.pop_all()  # from here on they are the stream's to close
            return EventStream(answers, first, work.writer, self._settings.keep_alive_s)

    async def count_tokens(self, request: Request) -> Response:
        """POST /v1/messages/count_tokens."""
        return JSONResponse(await anthropic_messages.count(await self.body(request), self._served))

    async def body(self, request: Request) -> dict[str, Any]:
        """The JSON object that was sent."""
        return await read_object(request, self._settings.body_mib << 20)

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/NAME."""
        self._served.check_name(request.path_params["name"])
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        return {
            "id": self._served.name,
            "object": "model",
            "created": self._served.created,
            "owned_by": "strata",
            "context_length": self._context,
            "max_model_len": self._context,
        }

    async def health(self, request: Request) -> Response:
        """GET /health: 200 when requests are taken, else 503 with the state."""
        state = self._engine.state
        if state is State.READY:
            return JSONResponse({"status": "ok"})
        body = {"status": state.value, "reason": self._engine.reason}
        return JSONResponse(body, 503, {"Retry-After": "2"})

    async def status(self, request: Request) -> Response:
        """GET /v1/status: what runs, and how."""
        engine = self._engine
        ready = engine.ready
        own: dict[str, Any] = {
            "state": engine.state.value,
            "reason": engine.reason,
            "model": self._served.name,
            "version": __version__,
            "context": ready.context if ready is not None else None,
            "requests": engine.running,
            "restarts": engine.restarts,
            "info": engine.info,
            "sampling": self._served.sampling(),
        }
        if engine.state is State.READY:
            found = await engine.status()
            counts = {name: found[name] for name in ("running", "reading", "waiting", "queue_limit")}
            own["concurrency"] = {**found["slots"], **counts}
            own["memory"] = memory_of(found)
            own["engine"] = dict(found)
        return JSONResponse(own)

    async def experts(self, request: Request) -> Response:
        """GET /v1/experts: where every expert is, and how much each is used."""
        return JSONResponse(dict(await self._engine.experts()))

    async def timeline(self, request: Request) -> Response:
        """GET /v1/timeline?since=SECOND: tokens, first tokens and gaps of the last minutes, second by second."""
        asked = request.query_params.get("since", "0")
        if not (asked.isascii() and asked.isdecimal() and len(asked) < 16):
            raise ApiError(400, f"since must be a Unix time in whole seconds, found {asked[:40]!r}", "since")
        now_s = time.time()
        return JSONResponse({"now": now_s, "seconds": self._metrics.timeline.since(int(asked), now_s)})

    async def vram(self, request: Request) -> Response:
        """POST /v1/vram {"gib": X}: let experts take up to so much VRAM, and say what they take now."""
        self._engine.require_ready()
        fields = read_fields(await self.body(request), VramFields, {})
        found = await self._engine.resize(int(fields.gib * 1024))
        return JSONResponse({"gib": found["arena_mib"] / 1024})

    async def metrics(self, request: Request) -> Response:
        """GET /metrics, for Prometheus."""
        engine = self._engine
        status = await engine.status() if engine.state is State.READY else None
        return Response(self._metrics.render(status, engine.restarts), media_type=metrics.TYPE)

    async def slots(self, request: Request) -> Response:
        """GET /slots: what every slot does."""
        return JSONResponse(slots_of(await self._engine.status()))

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize."""
        fields = read_fields(await self.body(request), TokenizeFields, {})
        return JSONResponse(tokenize(fields, self._served, self._context))

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize."""
        return JSONResponse(detokenize(read_fields(await self.body(request), DetokenizeFields, {}), self._served))

    async def props(self, request: Request) -> Response:
        """GET /props: the server's own settings, as llama.cpp's clients ask for them."""
        slots = self._engine.info.get("batch_slots")
        return JSONResponse(props(self._served, self._context, None if slots is None else int(slots)))

    @property
    def _context(self) -> int | None:
        """Tokens of one conversation; None while the engine loads."""
        ready = self._engine.ready
        return ready.context if ready is not None else None

    async def openapi(self, request: Request) -> Response:
        """GET /openapi.json."""
        return JSONResponse(document(prefix=request.scope.get("root_path", "")))

    async def version(self, request: Request) -> Response:
        """GET /version."""
        return JSONResponse({"version": __version__})


Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def _guarded(endpoint: Endpoint) -> Endpoint:
    """`endpoint` with the project's errors as HTTP answers."""

    async def run(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ApiError as error:
            return error.response(request.url.path)
        except StrataError as error:
            return as_api_error(error).response(request.url.path)
        except ClientGoneError:
            return Response(status_code=499)

    return run


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    texts = {
        404: f"no such path: {request.url.path[:100]}",
        405: f"{request.method} is not allowed on {request.url.path[:100]}",
    }
    code = {404: "not_found", 500: "internal"}.get(status)
    answer = ApiError(status, texts.get(status, "internal error"), code=code).response(request.url.path)
    if isinstance(error, HTTPException) and error.headers:
        answer.headers.update(error.headers)  # Allow, of a method that is not allowed
    return answer


def create_app(
    served: ServedModel, engine: EngineProcess, settings: ServerSettings, start_engine: bool = True
) -> Starlette:
    """The application; it starts the engine with itself (unless told otherwise) and ends it in order."""
    api = Api(served, engine, settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if start_engine:
            engine.start()
        try:
            yield
        finally:
            await engine.stop()
            await served.grammars.close()

    post: dict[str, Endpoint] = {
        **{path: partial(api.generate, dialect) for path, dialect in DIALECTS.items()},
        "/v1/messages/count_tokens": api.count_tokens,
        "/v1/vram": api.vram,
        "/tokenize": api.tokenize,
        "/detokenize": api.detokenize,
    }
    get = {
        "/v1/models": api.models,
        "/v1/models/{name:path}": api.model,
        "/health": api.health,
        "/v1/status": api.status,
        "/v1/experts": api.experts,
        "/v1/timeline": api.timeline,
        "/slots": api.slots,
        "/metrics": api.metrics,
        "/version": api.version,
        "/props": api.props,
        "/openapi.json": api.openapi,
    }
    routes = [Route(path, _guarded(endpoint), methods=["POST"]) for path, endpoint in post.items()]
    routes += [Route(path, _guarded(endpoint), methods=["GET"]) for path, endpoint in get.items()]
    return Starlette(
        routes=[*routes, *page_routes()],
        middleware=[Middleware(Guard, settings=settings)],
        exception_handlers={HTTPException: _http_error, 500: _http_error},
        lifespan=lifespan,
    )
