"""The way to a broker: TCP, or a socket in the file system, which costs a broker on this machine far less.

Must not know: what is said there.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TypeVar

from brokerweave.config import BrokerAddress, UnixSocket

PAUSE_MIN, PAUSE_MAX = 0.001, 0.05
_Protocol = TypeVar("_Protocol", bound=asyncio.Protocol)


async def dial(address: BrokerAddress, protocol: Callable[[], _Protocol]) -> _Protocol:
    """Connect. Raises `OSError`; how long it may take is the caller's to say."""
    loop = asyncio.get_running_loop()
    if isinstance(address, UnixSocket):
        _, connected = await loop.create_unix_connection(protocol, sock=await _connected(address.path))
    else:
        _, connected = await loop.create_connection(protocol, *address)
    return connected


async def open_streams(address: BrokerAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The same, as a pair of streams."""
    if isinstance(address, UnixSocket):
        return await asyncio.open_unix_connection(sock=await _connected(address.path))
    return await asyncio.open_connection(*address)


async def _connected(path: str) -> socket.socket:
    """TCP asks again by itself where too many wait to be accepted (with Mosquitto more than ten); a Unix
    socket says at once that one would have to wait, and asyncio would take that for being connected."""
    pause = PAUSE_MIN
    while True:
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        try:
            sock.connect(path)
        except BlockingIOError:
            sock.close()
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)
        except OSError:
            sock.close()
            raise
        else:
            return sock
