"""The way to a broker: TCP, or a socket in the file system, which costs a broker on this machine far less.

Must not know: what is said there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from brokerweave.config import BrokerAddress, UnixSocket

PAUSE_MIN, PAUSE_MAX = 0.001, 0.05
_Connected = TypeVar("_Connected")
_Protocol = TypeVar("_Protocol", bound=asyncio.Protocol)


async def dial(address: BrokerAddress, protocol: Callable[[], _Protocol]) -> _Protocol:
    """Connect. Raises `OSError`; how long it may take is the caller's to say."""
    loop = asyncio.get_running_loop()
    if isinstance(address, UnixSocket):
        _, connected = await _patiently(lambda: loop.create_unix_connection(protocol, address.path))
    else:
        _, connected = await loop.create_connection(protocol, *address)
    return connected


async def open_streams(address: BrokerAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The same, as a pair of streams."""
    if isinstance(address, UnixSocket):
        return await _patiently(lambda: asyncio.open_unix_connection(address.path))
    return await asyncio.open_connection(*address)


async def _patiently(connect: Callable[[], Awaitable[_Connected]]) -> _Connected:
    """TCP asks again by itself where too many wait to be accepted (with Mosquitto more than ten); a Unix
    socket says at once that one would have to wait."""
    pause = PAUSE_MIN
    while True:
        try:
            return await connect()
        except BlockingIOError:
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)
