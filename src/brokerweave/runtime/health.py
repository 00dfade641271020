"""The health port: whether this node should be given clients, for a balancer that asks by HTTP.

Owns the answer (200 `ready`, or 503 and one reason) and the few lines of HTTP around it. Invariants: it is
worked out anew for each question, so it is never older than what the node knows; a caller that sends too
much, too slowly or no HTTP costs one small, short connection. Must not know: what the balancer does with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

MAX_REQUEST = 4096
IDLE_SECONDS = 5.0
MAX_CALLERS = 64
"""At once; one more is hung up on. Balancers ask a few times a second, and are answered at once."""

_METHODS = (b"GET ", b"HEAD ", b"OPTIONS ")


class NodeHealth:
    """`started` and `draining` are the node's to set, `ready` is its strategy's: whether the node knows what
    others want."""

    def __init__(self, broker_is_up: Callable[[], bool]) -> None:
        self._broker_is_up = broker_is_up
        self._callers: set[_Caller] = set()
        self.started = False
        self.draining = False
        self.ready: Callable[[], bool] = lambda: True

    @property
    def reason(self) -> str:
        """Why the node is not ready; empty if it is."""
        if self.draining:
            return "draining"
        if not self.started:
            return "starting"
        if not self._broker_is_up():
            return "broker down"
        return "" if self.ready() else "recovering"

    async def listen(self, host: str, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: _Caller(self, self._callers), host, port)

    def hang_up(self) -> None:
        for caller in list(self._callers):
            caller.close()


class _Caller(asyncio.Protocol):
    """One connection: one question, one answer."""

    def __init__(self, health: NodeHealth, callers: set[_Caller]) -> None:
        self._health = health
        self._callers = callers
        self._request = b""
        self._transport: asyncio.Transport | None = None
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, not the class
        self._limit = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.close)
        if len(self._callers) >= MAX_CALLERS:
            self.close()
            return
        self._callers.add(self)

    def data_received(self, data: bytes) -> None:
        self._request += data
        whole = b"\r\n\r\n" in self._request or b"\n\n" in self._request
        if not whole and len(self._request) <= MAX_REQUEST:
            return
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(answer(self._request, self._health.reason))
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._callers.discard(self)
        if self._limit is not None:
            self._limit.cancel()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def answer(request: bytes, reason: str) -> bytes:
    """The whole answer to a request of any path."""
    if not request.startswith(_METHODS) or b" HTTP/1." not in request.partition(b"\n")[0]:
        status, text = "400 Bad Request", "not a request"
    elif len(request) > MAX_REQUEST:
        status, text = "431 Request Header Fields Too Large", "too long a request"
    elif reason:
        status, text = "503 Service Unavailable", reason
    else:
        status, text = "200 OK", "ready"
    body = f"{text}\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    shown = "" if request.startswith(b"HEAD ") else body
    return f"{head}Cache-Control: no-store\r\nConnection: close\r\n\r\n{shown}".encode()
