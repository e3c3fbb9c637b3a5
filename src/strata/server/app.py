"""The HTTP application."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from strata import __version__
from strata.core.errors import StrataError
from strata.server import metrics, openai_chat, openai_completions
from strata.server.body import read_fields, read_object
from strata.server.engine_metrics import slots_of
from strata.server.engine_process import EngineProcess, State
from strata.server.errors import ApiError, as_api_error
from strata.server.fields import include_usage
from strata.server.generate import DEADLINE_HEADER, Job, Peeked, answers, collect, within
from strata.server.guard import Guard
from strata.server.metrics import Metrics
from strata.server.openai_chat import ChatFields, ChatWriter
from strata.server.openai_completions import CompletionFields, CompletionWriter
from strata.server.pages import page_routes
from strata.server.served import ServedModel
from strata.server.settings import ServerSettings
from strata.server.stream import ClientGoneError, EventStream, unless_gone

EARLY_ERROR_S = 0.5
"""A stream's answer is not begun for this long, so that a refusal still gets its own status code."""


class VramFields(msgspec.Struct, frozen=True):
    """Body of POST /v1/vram."""

    gib: Annotated[float, msgspec.Meta(ge=0.0, le=16384.0)]


class Api:
    """The routes, around one engine and one model."""

    def __init__(self, served: ServedModel, engine: EngineProcess, settings: ServerSettings) -> None:
        self._served = served
        self._engine = engine
        self._settings = settings
        self._metrics = Metrics()

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        fields = read_fields(await self._body(request), ChatFields, openai_chat.UNBUILT)
        self._served.check_name(fields.model)
        with_usage = include_usage(fields)
        conversation = self._served.conversation
        turns = openai_chat.turns_of(fields.messages)
        source = conversation.template.source if conversation.template is not None else ""
        options = openai_chat.template_options(fields, source)
        prompt = await asyncio.to_thread(conversation.prompt, turns, options)
        jobs = openai_chat.jobs_of(fields, prompt, self._served, self._engine)
        return await self._answer(request, jobs, ChatWriter(self._served, fields, int(time.time()), with_usage), fields)

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        fields = read_fields(await self._body(request), CompletionFields, openai_completions.UNBUILT)
        self._served.check_name(fields.model)
        with_usage = include_usage(fields)
        tokenizer = self._served.conversation.tokenizer
        prompts = await asyncio.to_thread(openai_completions.prompts_of, fields, tokenizer)
        jobs = openai_completions.jobs_of(fields, prompts, self._served, self._engine)
        writer = CompletionWriter(self._served, fields, int(time.time()), with_usage)
        return await self._answer(request, jobs, writer, fields)

    async def _body(self, request: Request) -> dict[str, Any]:
        self._engine.require_ready()
        return await read_object(request, self._settings.body_mib << 20)

    async def _answer(
        self,
        request: Request,
        jobs: list[Job],
        writer: ChatWriter | CompletionWriter,
        fields: ChatFields | CompletionFields,
    ) -> Response:
        jobs = within(jobs, request.headers.get(DEADLINE_HEADER))
        stream = answers(self._engine, jobs, self._served.conversation.tokenizer, self._metrics)
        if not fields.stream:
            found = await unless_gone(request.receive, collect(stream, len(jobs)))
            return JSONResponse(writer.whole(found))
        peeked = Peeked(stream)
        await unless_gone(request.receive, peeked.peek(EARLY_ERROR_S))
        chunks: AsyncGenerator[str, None] = writer.chunks(peeked.items(), len(jobs))
        return EventStream(chunks, self._settings.keep_alive_s, peeked.close)

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/NAME."""
        self._served.check_name(request.path_params["name"])
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        ready = self._engine.ready
        return {
            "id": self._served.name,
            "object": "model",
            "created": self._served.created,
            "owned_by": "strata",
            "context_length": ready.context if ready is not None else None,
            "max_model_len": ready.context if ready is not None else None,
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
        }
        if engine.state is State.READY:
            found = await engine.status()
            counts = {name: found[name] for name in ("running", "reading", "waiting", "queue_limit")}
            own["concurrency"] = {**found["slots"], **counts}
            own["engine"] = dict(found)
        return JSONResponse(own)

    async def vram(self, request: Request) -> Response:
        """POST /v1/vram {"gib": X}: let experts take up to so much VRAM, and say what they take now."""
        self._engine.require_ready()
        fields = read_fields(await read_object(request, self._settings.body_mib << 20), VramFields, {})
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

    async def version(self, request: Request) -> Response:
        """GET /version."""
        return JSONResponse({"version": __version__})


def _guarded(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """`endpoint` with the project's errors as HTTP answers."""

    async def run(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ApiError as error:
            return error.response()
        except StrataError as error:
            return as_api_error(error).response()
        except ClientGoneError:
            return Response(status_code=499)

    return run


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    texts = {
        404: f"no such path: {request.url.path[:100]}",
        405: f"{request.method} is not allowed on {request.url.path[:100]}",
    }
    return ApiError(
        status, texts.get(status, "internal error"), code={404: "not_found", 500: "internal"}.get(status)
    ).response()


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

    post = {
        "/v1/chat/completions": api.chat,
        "/v1/completions": api.completions,
        "/v1/vram": api.vram,
    }
    get = {
        "/v1/models": api.models,
        "/v1/models/{name:path}": api.model,
        "/health": api.health,
        "/v1/status": api.status,
        "/slots": api.slots,
        "/metrics": api.metrics,
        "/version": api.version,
    }
    routes = [Route(path, _guarded(endpoint), methods=["POST"]) for path, endpoint in post.items()]
    routes += [Route(path, _guarded(endpoint), methods=["GET"]) for path, endpoint in get.items()]
    return Starlette(
        routes=[*routes, *page_routes()],
        middleware=[Middleware(Guard, settings=settings)],
        exception_handlers={HTTPException: _http_error, 500: _http_error},
        lifespan=lifespan,
    )
