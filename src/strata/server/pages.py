"""The web app at `/`: files that a browser may have without a key, because they show nothing of what runs here.

All addresses in them are relative, so the app works below any prefix that a proxy strips. Scripts and styles lie under
a path with a hash of all of them: browsers keep them for good, and a new version has other addresses.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

WEB = Path(__file__).with_name("web")
INDEX = "index.html"
_HASH_MARK = "@"
"""In index.html, where the hash goes."""

TYPES: Mapping[str, str] = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""What is served of the folder, by suffix."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""An answer of a model can name any address; the policy keeps the page from asking one."""


def is_page(method: str, path: str) -> bool:
    """Whether this is asked of the app's own files."""
    return method in {"GET", "HEAD"} and (path == "/" or path.startswith("/web/"))


def folder_hash(folder: Path) -> str:
    """Of the names and bytes of all files."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            digest.update(b"\0%s\0" % str(file.relative_to(folder)).encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def page_routes(folder: Path = WEB) -> list[BaseRoute]:
    """`/`, and everything that it loads; read once, so that what lies under a hash has that hash."""
    version = folder_hash(folder)
    files = {
        file.relative_to(folder).as_posix(): (file.read_bytes(), TYPES[file.suffix])
        for file in folder.rglob("*")
        if file.suffix in TYPES
    }
    page = (folder / INDEX).read_text(encoding="utf-8").replace(f"web/{_HASH_MARK}/", f"web/{version}/")
    tag = f'"{version}"'
    fresh = {**HEADERS, "Cache-Control": "no-cache", "ETag": tag}
    kept = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}

    async def index(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=fresh)
        return Response(page, media_type="text/html", headers=fresh)

    async def asset(request: Request) -> Response:
        found = files.get(request.path_params["path"])
        if found is None:
            raise HTTPException(404)
        return Response(found[0], media_type=found[1], headers=kept)

    return [
        Route("/", index, methods=["GET"]),
        Route(f"/web/{version}/{{path:path}}", asset, methods=["GET"]),
    ]
