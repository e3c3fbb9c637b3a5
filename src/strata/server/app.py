"""The HTTP application: which path is answered by whom."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from strata.core.errors import StrataError
from strata.core.log import Log
from strata.server import anthropic_messages, openai_chat, openai_completions, openai_responses
from strata.server.aside import aside
from strata.server.body import read_fields, read_object
from strata.server.client_watch import ClientGoneError, ClientWatch
from strata.server.coming import coming
from strata.server.control import Control
from strata.server.dialect import Dialect, Work
from strata.server.errors import ApiError, as_api_error
from strata.server.guard import Guard
from strata.server.inspection import Inspection
from strata.server.job import DEADLINE_HEADER, within
from strata.server.metrics import Metrics
from strata.server.models import Models
from strata.server.pages import page_routes
from strata.server.request_log import HEADER, RequestLog, record_of
from strata.server.settings import ServerSettings
from strata.server.stream import EventStream
from strata.server.tokens import DetokenizeFields, TokenizeFields, detokenize, tokenize

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
    """The routes that a model answers."""

    def __init__(self, models: Models, settings: ServerSettings, metrics: Metrics) -> None:
        self._models = models
        self._settings = settings
        self._metrics = metrics

    async def generate(self, dialect: Dialect, request: Request) -> Response:
        """An answer in one of DIALECTS, streamed or whole; what cannot be honoured is refused before a model loads."""
        record = record_of(request.scope)
        record.told = True
        body = await self.body(request)
        model = self._models.find(body.get("model"))
        record.model = model.name

        async def read(context: int | None) -> Work:
            work = await dialect(body, model.served, context)
            jobs = within(work.jobs, request.headers.get(DEADLINE_HEADER))
            record.stream, record.ids = work.stream, [job.request.id for job in jobs]
            return replace(work, jobs=jobs)

        work = await read(model.context)
        again = read if model.context is None else None
        with ExitStack() as held:
            held.enter_context(ClientWatch(request.receive))
            answers = await coming(self._models, model, work, again, partial(self._metrics.timer, record))
            held.callback(answers.close)
            if not work.stream:
                return JSONResponse(work.writer.whole(await answers.collect()))
            first = await answers.next(EARLY_ERROR_S)
            # From here on both are the stream's, which the same task writes.
            return EventStream(answers, first, work.writer, self._settings.keep_alive_s, held.pop_all())

    async def count_tokens(self, request: Request) -> Response:
        """POST /v1/messages/count_tokens."""
        body = await self.body(request)
        return JSONResponse(await anthropic_messages.count(body, self._models.find(body.get("model")).served))

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize."""
        fields = read_fields(await self.body(request), TokenizeFields, {})
        model = self._models.find(fields.model)
        characters = len(fields.content or fields.prompt or "")
        return JSONResponse(await aside(characters, tokenize, fields, model.served, model.context))

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize."""
        fields = read_fields(await self.body(request), DetokenizeFields, {})
        served = self._models.find(fields.model).served
        return JSONResponse(await aside(len(fields.tokens), detokenize, fields, served))

    async def body(self, request: Request) -> dict[str, Any]:
        """The JSON object that was sent."""
        return await read_object(request, self._settings.body_mib << 20)


Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def _guarded(endpoint: Endpoint) -> Endpoint:
    """`endpoint` with the project's errors as HTTP answers."""

    async def run(request: Request) -> Response:
        record = record_of(request.scope)
        try:
            return await endpoint(request)
        except ApiError as error:
            refused = error
        except StrataError as error:
            refused = as_api_error(error)
        except ClientGoneError:
            record.code = "gone"
            return Response(status_code=499)
        record.code = refused.code or "refused"
        return refused.response(request.url.path, record.id)

    return run


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    texts = {
        404: f"no such path: {request.url.path[:100]}",
        405: f"{request.method} is not allowed on {request.url.path[:100]}",
    }
    code = {404: "not_found", 500: "internal"}.get(status)
    record = record_of(request.scope)
    record.code = code or "refused"
    refused = ApiError(status, texts.get(status, "internal error"), code=code)
    answer = refused.response(request.url.path, record.id)
    if not isinstance(error, HTTPException):
        answer.headers[HEADER] = record.id  # it is answered outside of what names the others
    elif error.headers:
        answer.headers.update(error.headers)  # Allow, of a method that is not allowed
    return answer


def create_app(models: Models, settings: ServerSettings, log: Log) -> Starlette:
    """The application; it starts the first model's engine with itself, and ends what is loaded in order."""
    metrics = Metrics()
    api, inspection, control = Api(models, settings, metrics), Inspection(models, metrics), Control(models)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        models.start()
        try:
            yield
        finally:
            await models.stop()

    post: dict[str, Endpoint] = {
        **{path: partial(api.generate, dialect) for path, dialect in DIALECTS.items()},
        "/v1/messages/count_tokens": api.count_tokens,
        "/tokenize": api.tokenize,
        "/detokenize": api.detokenize,
        "/v1/load": control.load,
        "/v1/unload": control.unload,
        "/v1/vram": control.vram,
    }
    get = {
        "/v1/models": inspection.models,
        "/v1/models/{name:path}": inspection.model,
        "/health": inspection.health,
        "/v1/status": inspection.status,
        "/v1/experts": inspection.experts,
        "/v1/timeline": inspection.timeline,
        "/slots": inspection.slots,
        "/metrics": inspection.metrics,
        "/version": inspection.version,
        "/props": inspection.props,
        "/openapi.json": inspection.openapi,
    }
    routes = [Route(path, _guarded(endpoint), methods=["POST"]) for path, endpoint in post.items()]
    routes += [Route(path, _guarded(endpoint), methods=["GET"]) for path, endpoint in get.items()]
    return Starlette(
        routes=[*routes, *page_routes()],
        middleware=[Middleware(RequestLog, log=log), Middleware(Guard, settings=settings)],
        exception_handlers={HTTPException: _http_error, 500: _http_error},
        lifespan=lifespan,
    )
