"""Who may talk to the server: Host, Origin and key, before any route."""

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strata.server.errors import ApiError
from strata.server.pages import is_page
from strata.server.request_log import record_of
from strata.server.settings import ServerSettings

OPEN_PATHS = frozenset(("/health",))
"""Answered without a key; they show nothing but whether the server is up."""

_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, X-Api-Key, X-Strata-Deadline-S, X-Request-Id",
    "Access-Control-Max-Age": "600",
}


class Guard:
    """ASGI middleware.

    A server on loopback answers only to loopback names (a web page cannot point its own name there). A browser's
    Origin must be the server itself or one that --allow-origin lists, but for the app's own files, which hold nothing.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._names = {settings.host, *(_host_name(urlsplit(origin).netloc) for origin in settings.origins)} - {""}
        """Under which the server is known: a proxy before it may pass on the name that its own clients used."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        shared = self._shared_headers(request)
        refused = self._refuse(request, listed=bool(shared))
        if refused is not None:
            record_of(scope).code = refused.code or "refused"
            response: Response = refused.response(request.url.path, record_of(scope).id)
            response.headers.update(shared)
            await response(scope, receive, send)
            return
        if request.method == "OPTIONS" and shared:
            await Response(status_code=204, headers={**shared, **_PREFLIGHT})(scope, receive, send)
            return

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start" and shared:
                extra = [(name.lower().encode(), value.encode()) for name, value in shared.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        await self._app(scope, receive, send_with)

    def _shared_headers(self, request: Request) -> Mapping[str, str]:
        """What lets a listed web origin read the answer; empty for all others."""
        origin = request.headers.get("origin", "").rstrip("/").lower()
        if origin not in self._settings.origins:
            return {}
        shown = "X-Request-Id, Retry-After"
        origin = request.headers["origin"]
        return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": shown, "Vary": "Origin"}

    def _refuse(self, request: Request, listed: bool) -> ApiError | None:
        host = request.headers.get("host", "")
        name = _host_name(host)
        if self._settings.loopback and name not in _LOCAL_NAMES | self._names:
            return ApiError(403, f"Host {host[:80]!r} is not this server's name", code="host_refused")
        page = is_page(request.method, request.url.path)
        origin = request.headers.get("origin")
        if origin is not None and not (listed or page) and urlsplit(origin).netloc.lower() != host.lower():
            return ApiError(403, f"Origin {origin[:80]!r} is not allowed (--allow-origin lists those that are)")
        preflight = request.method == "OPTIONS" and listed
        if page or request.url.path in OPEN_PATHS or preflight or self._settings.api_key is None:
            return None
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        given = key.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        # Headers arrive as Latin-1 letters of the bytes sent.
        if hmac.compare_digest(given.encode("latin-1"), self._settings.api_key.encode()):
            return None
        return ApiError(401, "the API key is missing or wrong", code="invalid_api_key")


def _host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
