"""The socket that is listened on."""

import asyncio
import socket

import pytest

from strata.server.listen import take_socket
from strata.server.settings import ServerSettings


def delays(taken: socket.socket) -> bool:
    """Whether asyncio leaves connections to `taken` in the mode that holds small writes back."""

    async def look() -> bool:
        met: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found = writer.get_extra_info("socket")
            met.set_result(not found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(meet, sock=taken):
            _, writer = await asyncio.open_connection(*taken.getsockname()[:2])
            found = await met
            writer.close()
            await writer.wait_closed()
            return bool(found)

    return asyncio.run(look())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_small_writes_are_sent_at_once(host: str) -> None:
    assert not delays(take_socket(ServerSettings(host=host, port=0)))


def test_a_socket_that_does_not_name_tcp_would_hold_them_back() -> None:
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    taken.bind(("127.0.0.1", 0))
    assert delays(taken)
