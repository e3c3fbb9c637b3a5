"""A reverse proxy that serves another server below a prefix, as small as it can be."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from strata.server.listen import take_socket, url_of
from strata.server.settings import ServerSettings

HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass
class Proxy:
    """Where it listens, and what it stands before."""

    origin: str
    prefix: str
    upstream: str = ""

    @property
    def page(self) -> str:
        """The address of what upstream has at `/`."""
        return f"{self.origin}{self.prefix}/"


@contextlib.contextmanager
def proxied(prefix: str) -> Iterator[Proxy]:
    """A proxy that passes on, without `prefix`, what lies below it; set its `upstream` before the first request."""
    taken = take_socket(ServerSettings(port=0))
    proxy = Proxy(url_of(taken), prefix)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with httpx.AsyncClient(timeout=30) as client:
            app.state.client = client
            yield

    async def forward(request: Request) -> Response:
        client: httpx.AsyncClient = request.app.state.client
        headers = [(name, value) for name, value in request.headers.items() if name not in HOP]
        asked = client.build_request(
            request.method,
            f"{proxy.upstream}/{request.path_params['rest']}",
            headers=headers,
            content=await request.body(),
        )
        answer = await client.send(asked, stream=True)
        kept = {name: value for name, value in answer.headers.items() if name not in HOP}
        body = StreamingResponse(answer.aiter_raw(), answer.status_code, background=BackgroundTask(answer.aclose))
        body.headers.update(kept)
        return body

    app = Starlette(routes=[Route(f"{prefix}/{{rest:path}}", forward, methods=["GET", "POST"])], lifespan=lifespan)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([taken])), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.005)
    try:
        yield proxy
    finally:
        server.should_exit = True
        thread.join(15)
