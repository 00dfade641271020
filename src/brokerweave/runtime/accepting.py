"""Letting clients in, many at a time.

An event loop may accept one connection a turn (libuv does). After the death of a site hundreds of clients
come at once, to nodes that are busy: each would wait for as many turns as there are clients before it. Owns
the listening sockets. Invariants: whoever waits is let in within a turn, up to a bound that leaves time for
those who are in; a system that has no file or memory left is asked again a moment later. Must not know: who
comes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from brokerweave.config import Address

log = logging.getLogger("brokerweave.node")

BACKLOG = 4096
"""Connections that the system keeps for a node which is busy."""
AT_ONCE = 100
"""Connections that are accepted in one turn of the loop. With 16, each gets what it missed sooner, once it is
in, but after the death of a site those who publish are back later, and fewer messages flow meanwhile."""
PAUSE_SECONDS = 0.5
"""After the system refused a connection."""


class Accepting:
    def __init__(self, factory: Callable[[], asyncio.Protocol]) -> None:
        self._factory = factory
        self._sockets: list[socket.socket] = []
        self._entering: set[asyncio.Task[object]] = set()

    async def listen(self, host: str, port: int) -> None:
        """Raises OSError."""
        self._loop = asyncio.get_running_loop()
        bound = await self._loop.create_server(self._factory, host, port, start_serving=False)
        # The loop knows which addresses a name has, and binds them; it is not to serve them.
        self._sockets = [each.dup() for each in bound.sockets]
        bound.close()
        for each in self._sockets:
            each.setblocking(False)
            each.listen(BACKLOG)
            self._loop.add_reader(each, self._accept, each)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._sockets[0].getsockname()[:2]
        return host, port

    @property
    def nearby(self) -> Address:
        """For clients on this machine, though it may listen on all addresses, or on any port."""
        host, port = self.address
        return Address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    def close(self) -> None:
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                client, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                reason = error.strerror or error
                log.warning("cannot accept a client: %s; trying again in %s s", reason, PAUSE_SECONDS)
                self._loop.remove_reader(listening)
                self._loop.call_later(PAUSE_SECONDS, self._accept_again, listening)
                return
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._enter(client))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening)

    async def _enter(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, client)
        except OSError:
            client.close()  # it has gone again
