"""What comes over a connection before a request is understood."""

import socket

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from server.harness import Running, running
from strata.server import listen
from strata.server.http_protocol import LONGEST_HEAD

HEAD = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def answer(server: Running, *sent: bytes, patience: float = 60) -> bytes:
    """The beginning of what comes back for `sent`; empty when nothing does for `patience` seconds."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(patience)
        try:
            for piece in sent:
                connection.sendall(piece)
            return connection.recv(1 << 16)
        except (TimeoutError, ConnectionError):
            return b""


ENDLESS = (HEAD + b"X-Long: ", *[b"x" * (LONGEST_HEAD // 4)] * 5)


def test_a_head_without_end_is_refused() -> None:
    with running() as server:
        assert answer(server, *ENDLESS).startswith(b"HTTP/1.1 400")
        assert answer(server, HEAD, b"X-Part: x\r\n" * (LONGEST_HEAD // 8)).startswith(b"HTTP/1.1 400")
        assert answer(server, HEAD + b"X-Long: " + b"x" * (LONGEST_HEAD // 2) + b"\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_uvicorns_own_reader_would_collect_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Negative control.
    monkeypatch.setattr(listen, "HttpProtocol", HttpToolsProtocol)
    with running() as server:
        assert answer(server, *ENDLESS, patience=0.3) == b""


def test_a_body_counts_for_no_head_and_what_is_no_http_is_refused() -> None:
    text = b'{"content": "' + b"a " * LONGEST_HEAD + b'"}'
    head = b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(text)
    with running() as server:
        assert answer(server, head, *[text[at : at + 4096] for at in range(0, len(text), 4096)]).startswith(
            b"HTTP/1.1 200"
        )
        assert answer(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").startswith(b"HTTP/1.1 400")
