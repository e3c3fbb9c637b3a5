"""HTTP as it comes over a connection, read by httptools: what may come before a request is understood has an end."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LONGEST_HEAD = 1 << 16
"""Bytes of a request's line and headers, as in uvicorn's other reader; httptools itself would collect them for ever."""


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._unread = 0
        """Bytes since the last one that brought a request on: heads, but trailers and the like, too."""

    def data_received(self, data: bytes) -> None:
        """More bytes; a head that is too long is refused, and the connection ends."""
        self._unread += len(data)
        super().data_received(data)
        if self._unread > LONGEST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"the head of the request is longer than {LONGEST_HEAD} bytes")

    def on_headers_complete(self) -> None:
        """The head came whole."""
        self._unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """More of the body, which the application bounds."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request came whole."""
        self._unread = 0
        super().on_message_complete()
