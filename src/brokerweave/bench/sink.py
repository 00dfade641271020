"""A stand-in for a broker whose limit is known: it serves a set number of publications a second, in order.

    python -m brokerweave.bench.sink PORT RATE       RATE 0: as many as it can

Takes MQTT 3.1.1, QoS 0, filters without wildcards. Invariants: while publications wait, it serves `rate` of
them a second whatever the machine does meanwhile, as if each took the same time; what waits beyond
`_MOST_WAITING` is dropped. Must not know: who measures it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time
from collections import deque

from brokerweave.lab.broker import HOST, Broker
from brokerweave.mqtt import frames

_CONNECT, _SUBSCRIBE, _PINGREQ, _DISCONNECT = 1, 8, 12, 14
_WANTED = 1 << _CONNECT | 1 << _SUBSCRIBE | 1 << _PINGREQ | 1 << _DISCONNECT
_CHUNK = 1 << 17
_MOST_WAITING = 1_000_000
_MOST_BACKLOG = 1 << 26
_ROUND = 0.001
"""Seconds between two looks at the sockets."""


class SinkBroker(Broker):
    """The sink as a child process."""

    name = "sink"

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.rate = rate

    @classmethod
    def missing(cls) -> str | None:
        return None

    @property
    def version(self) -> str:
        return "1"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "brokerweave.bench.sink", str(self.port), str(self.rate)]


class Pace:
    """How many may be served by now. Pure: told the time, in nanoseconds."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._busy_since: int | None = None
        self._served = 0

    def allows(self, now: int, waiting: int) -> int:
        """Of so many waiting; what it allows counts as served."""
        if not self._rate:
            return waiting
        if not waiting:
            self._busy_since = None
            return 0
        if self._busy_since is None:
            self._busy_since, self._served = now, 0
        allowed = min(waiting, int((now - self._busy_since) * self._rate / 1e9) - self._served)
        self._served += allowed
        return allowed


class _Topic:
    def __init__(self) -> None:
        self.subscribers: list[_Client] = []
        self.ready: list[bytes] = []


class _Client:
    def __init__(self, sock: socket.socket, routes: frames.RouteCache) -> None:
        self.sock = sock
        self.scanner = frames.Scanner(_WANTED, 1 << 20, routes)
        self.backlog = bytearray()

    def send(self, data: bytes) -> None:
        if len(self.backlog) < _MOST_BACKLOG:
            self.backlog += data
            with contextlib.suppress(OSError):
                del self.backlog[: self.sock.send(self.backlog)]


class _Server:
    def __init__(self, port: int, rate: float) -> None:
        self._listener = socket.create_server((HOST, port), backlog=1024)
        self._listener.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
        self._clients: dict[int, _Client] = {}
        self._topics: dict[bytes, _Topic] = {}
        self._routes = frames.RouteCache(lambda topic, _retain: self._topic(topic))
        self._waiting: deque[tuple[_Topic, int, bytes]] = deque()
        self._count = 0
        self._pace = Pace(rate)

    def _topic(self, name: bytes) -> _Topic:
        return self._topics.setdefault(name, _Topic())

    def serve(self) -> None:
        while True:
            time.sleep(_ROUND)
            for file, _ in self._poll.poll(0, 4096):
                if file == self._listener.fileno():
                    self._accept()
                else:
                    self._read(file)
            self._deliver(self._pace.allows(time.monotonic_ns(), self._count))
            for client in self._clients.values():
                if client.backlog:
                    client.send(b"")

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients[sock.fileno()] = _Client(sock, self._routes)
        self._poll.register(sock, select.EPOLLIN)

    def _read(self, file: int) -> None:
        client = self._clients[file]
        try:
            chunk = client.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        _, items = client.scanner.feed(chunk)
        if not chunk or client.scanner.error is not None:
            self._leave(client)
            return
        for item in items:
            if isinstance(item, frames.Frame):
                self._answer(client, item)
            elif self._count < _MOST_WAITING:
                topic = item.group
                assert isinstance(topic, _Topic)
                self._waiting.append((topic, item.count, item.blob))
                self._count += item.count

    def _answer(self, client: _Client, frame: frames.Frame) -> None:
        if frame.type == _CONNECT:
            client.send(b"\x20\x02\x00\x00")
        elif frame.type == _PINGREQ:
            client.send(b"\xd0\x00")
        elif frame.type == _SUBSCRIBE:
            start = 2 if frame.data[1] < 0x80 else 3
            size = int.from_bytes(frame.data[start + 2 : start + 4], "big")
            self._topic(frame.data[start + 4 : start + 4 + size]).subscribers.append(client)
            client.send(b"\x90\x03" + frame.data[start : start + 2] + b"\x00")

    def _leave(self, client: _Client) -> None:
        del self._clients[client.sock.fileno()]
        for topic in self._topics.values():
            if client in topic.subscribers:
                topic.subscribers.remove(client)
        client.sock.close()
        if not self._clients:
            # Nobody is left who could want it; the next measurement must not wait behind it.
            self._waiting.clear()
            self._count = 0

    def _deliver(self, allowed: int) -> None:
        touched: dict[int, _Topic] = {}
        while allowed > 0:
            topic, count, blob = self._waiting.popleft()
            if count > allowed:
                parts = frames.split(blob)
                self._waiting.appendleft((topic, count - allowed, b"".join(parts[allowed:])))
                count, blob = allowed, b"".join(parts[:allowed])
            allowed -= count
            self._count -= count
            topic.ready.append(blob)
            touched[id(topic)] = topic
        for topic in touched.values():
            joined = b"".join(topic.ready)
            topic.ready.clear()
            for subscriber in topic.subscribers:
                subscriber.send(joined)


if __name__ == "__main__":
    _Server(int(sys.argv[1]), float(sys.argv[2])).serve()
