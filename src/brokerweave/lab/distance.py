"""A distance between two places on loopback: whatever passes comes out some milliseconds later.

Owns the ports through which the other place is reached, and a thread with a loop. Invariants: a connection's
bytes stay as they are, in their order, and arrive before its end; who sends more than a bounded amount is not
read until some of it has arrived; a connection's first bytes take the way of its handshake first, as over a
network. Must not know: what the bytes mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar, cast

from brokerweave.lab.broker import HOST

MOST_BYTES = 1 << 20
"""On their way in one direction of a connection."""
MOST_DATAGRAMS = 10_000
"""On their way through one port; others are lost, as on a network."""
_DATAGRAM = 65_536
_SECONDS = 30.0
_T = TypeVar("_T")


class Distance:
    """`seconds` from one place to the other; a round trip takes twice as long. Also a context manager."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.lost_datagrams = 0
        self.loop = asyncio.new_event_loop()
        self.closing: set[Callable[[], None]] = set()
        """Of everything that is open."""
        self._thread = threading.Thread(target=self.loop.run_forever, name="distance", daemon=True)
        self._thread.start()

    def tcp(self, port: int) -> int:
        """A port from which connections lead to that one."""
        return self._do(self._tcp(port))

    def udp(self, port: int) -> int:
        """The same for datagrams. Answers come back the same way."""
        return self._do(self._udp(port))

    def close(self) -> None:
        if not self.loop.is_closed():
            self._do(self._close())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_SECONDS)
            self.loop.close()

    async def _tcp(self, port: int) -> int:
        server = await self.loop.create_server(lambda: _DelayedNearEnd(self, port), HOST, 0)
        self.closing.add(server.close)
        return int(server.sockets[0].getsockname()[1])

    async def _udp(self, port: int) -> int:
        transport, _ = await self.loop.create_datagram_endpoint(
            lambda: _DatagramPort(self, port), local_addr=(HOST, 0)
        )
        self.closing.add(transport.close)
        return int(transport.get_extra_info("sockname")[1])

    async def _close(self) -> None:
        for close in list(self.closing):
            close()
        tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close their sockets in the next turn

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _DelayedEnd(asyncio.Protocol):
    """One end of a connection: what it reads comes out at the other end."""

    def __init__(self, distance: Distance) -> None:
        self.other: _DelayedEnd | None = None
        self.transport: asyncio.Transport
        self.writable = True
        self._distance = distance
        self._begin = distance.loop.time()
        self._way: deque[bytes] = deque()
        """What was read and has not come out; an empty one is the end."""
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._distance.closing.add(self.transport.abort)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        self._send(data)
        self.look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._distance.closing.discard(self.transport.abort)
        self._send(b"")

    def pause_writing(self) -> None:
        self.writable = False
        if self.other is not None:
            self.other.look()

    def resume_writing(self) -> None:
        self.writable = True
        if self.other is not None:
            self.other.look()

    def look(self) -> None:
        """Is more to be read?"""
        if not self.transport.is_closing():
            if self._bytes > MOST_BYTES or self.other is None or not self.other.writable:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _send(self, data: bytes) -> None:
        seconds, loop = self._distance.seconds, self._distance.loop
        self._way.append(data)
        loop.call_at(max(loop.time(), self._begin + 2 * seconds) + seconds, self._arrive)

    def _arrive(self) -> None:
        """What was read longest ago comes out."""
        data = self._way.popleft()
        self._bytes -= len(data)
        if self.other is not None and not self.other.transport.is_closing():
            if data:
                self.other.transport.write(data)
            else:
                self.other.transport.close()
        self.look()


class _DelayedNearEnd(_DelayedEnd):
    """Where somebody connected. It is read when the other end is there."""

    def __init__(self, distance: Distance, port: int) -> None:
        super().__init__(distance)
        self._port = port
        self._dialing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.look()
        self._dialing = self._distance.loop.create_task(self._dial())

    async def _dial(self) -> None:
        far = _DelayedEnd(self._distance)
        far.other = self
        try:
            await self._distance.loop.create_connection(lambda: far, HOST, self._port)
        except OSError:
            self.transport.abort()
            return
        self.other = far
        if self.transport.is_closing():
            far.transport.close()
        self.look()


class _DatagramPort(asyncio.DatagramProtocol):
    """Where datagrams come in. Each sender has a socket of its own at the other place."""

    def __init__(self, distance: Distance, port: int) -> None:
        self._distance = distance
        self._port = port
        self._transport: asyncio.DatagramTransport
        self._far: dict[tuple[str, int], socket.socket] = {}
        self._under_way = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for far in self._far.values():
            self._distance.loop.remove_reader(far)
            far.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._later(lambda: self._pass(data, addr))

    def _pass(self, data: bytes, source: tuple[str, int]) -> None:
        far = self._far.get(source)
        if far is None:
            far = self._far[source] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            far.setblocking(False)
            far.connect((HOST, self._port))
            self._distance.loop.add_reader(far, self._answered, far, source)
        with contextlib.suppress(OSError):  # nobody is there: nothing is said of it
            far.send(data)

    def _answered(self, far: socket.socket, source: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):
            data = far.recv(_DATAGRAM)
            self._later(lambda: self._transport.sendto(data, source))

    def _later(self, do: Callable[[], None]) -> None:
        if self._under_way >= MOST_DATAGRAMS:
            self._distance.lost_datagrams += 1
            return
        self._under_way += 1
        self._distance.loop.call_later(self._distance.seconds, self._arrive, do)

    def _arrive(self, do: Callable[[], None]) -> None:
        self._under_way -= 1
        if not self._transport.is_closing():
            do()
