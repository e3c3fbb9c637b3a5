"""A hub on this machine: the few answers that listing and downloading need, with ranges and a way to break off."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Repositories by name, each with the bytes of its files; `asked` keeps (method, path, range) of every request."""

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        self.repositories = repositories
        self.asked: list[tuple[str, str, str | None]] = []
        self.wrong: dict[str, bytes] = {}
        """Bytes sent in place of a file's own, whose hash is still announced."""
        self.gated: set[str] = set()

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body) of a path."""
        words = unquote(path).strip("/").split("/")
        if words[0] == "api":
            return self._tree("/".join(words[2:4]))
        repo, name = "/".join(words[:2]), "/".join(words[4:])
        if repo in self.gated:
            return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}, b""
        files = self.repositories.get(repo)
        if files is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if name not in files:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        etag = hashlib.sha256(files[name]).hexdigest()
        return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, self.wrong.get(name, files[name])

    def _tree(self, repo: str) -> tuple[int, dict[str, str], bytes]:
        files = self.repositories.get(repo)
        if files is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        tree = [{"type": "file", "path": path, "size": len(data), "oid": "0"} for path, data in files.items()]
        return 200, {"Content-Type": "application/json"}, json.dumps(tree).encode()


@contextmanager
def serving(hub: FakeHub) -> Iterator[str]:
    """The hub's address while it serves."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

        def do_HEAD(self) -> None:
            self._send(with_body=False)

        def do_GET(self) -> None:
            self._send(with_body=True)

        def _send(self, with_body: bool) -> None:
            path, wanted = urlsplit(self.path).path, self.headers.get("Range")
            hub.asked.append((self.command, path, wanted))
            status, headers, body = hub.answer(path)
            if wanted and status == 200:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                start, end = int(first), min(int(last or len(body) - 1), len(body) - 1)
                headers["Content-Range"] = f"bytes {start}-{end}/{len(body)}"
                status, body = 206, body[start : end + 1]
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
