"""The clients of one worker: opening them all, sending one publisher's messages, taking in what a subscriber
gets.

Invariants: a full socket never holds the schedule up: what it does not take waits here. A message's time of
sending is when its publisher handed it over, so a slow broker cannot hide behind a full socket. Must not
know: the schedule, logs.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from brokerweave.bench.folder import HEADER
from brokerweave.bench.load import wire
from brokerweave.bench.load.plan import Client, WorkerPlan
from brokerweave.errors import Unavailable
from brokerweave.mqtt import frames

_MAX_PACKET = 1 << 20
_CHUNK = 1 << 17
_AT_ONCE = 100
"""Clients that are opened together: more would overflow a broker's queue of connections."""
_PATIENCE = 60.0
"""Seconds that a broker may take for CONNACK or SUBACK: one held to a few per cent of a core is slow."""


class Connection:
    """One client's socket, and the bytes that it would not take yet."""

    def __init__(self, client: Client, sock: socket.socket, wanted: int) -> None:
        self.client = client
        self.sock = sock
        self._scanner = frames.Scanner(wanted, _MAX_PACKET)
        self.backlog = bytearray()

    def send(self, data: bytes) -> None:
        if self.backlog:
            self.backlog += data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.backlog += data[sent:]

    def flush(self) -> bool:
        """Whether all has gone."""
        try:
            del self.backlog[: self.sock.send(self.backlog)]
        except BlockingIOError:
            return False
        return not self.backlog

    def take(self) -> tuple[bytes, Sequence[object]]:
        """What has come whole, and the frames in it that were wanted one by one."""
        try:
            chunk = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return b"", ()
        if not chunk:
            raise Unavailable(f"client {self.client.number}: the other side closed the connection")
        found = self._scanner.feed(chunk)
        if self._scanner.error is not None:
            raise self._scanner.error
        return found


class Publisher(Connection):
    """Sends, and at QoS 1 and 2 hears of it: `acknowledged(turn)` when a message has been taken over."""

    def __init__(
        self, client: Client, sock: socket.socket, plan: WorkerPlan, acknowledged: Callable[[int], None]
    ) -> None:
        super().__init__(client, sock, 1 << wire.PUBACK | 1 << wire.PUBREC | 1 << wire.PUBCOMP)
        self._qos = plan.qos
        self._head = wire.publish_head(plan.topics[client.topic], plan.qos, plan.payload)
        self._padding = wire.padding(plan.payload)
        self._acknowledged = acknowledged
        self._under_way: dict[bytes, int] = {}

    def publish(self, message: int, turn: int, now: int) -> None:
        """`turn` is what the log calls this message."""
        header = HEADER.pack(self.client.number, message, now)
        if self._qos:
            packet_id = (message % 65_535 + 1).to_bytes(2, "big")
            self._under_way[packet_id] = turn
            header = packet_id + header
        self.send(self._head + header + self._padding)

    def receive(self) -> None:
        for frame in self.take()[1]:
            assert isinstance(frame, frames.Frame)
            packet_id = frame.data[2:4]
            if frame.type == wire.PUBREC:
                self.send(wire.acknowledgement(wire.PUBREL, packet_id))
            elif packet_id in self._under_way:
                self._acknowledged(self._under_way.pop(packet_id))


class Subscriber(Connection):
    """Takes in deliveries, and answers those of QoS 1 and 2. `place` is its place among the worker's
    subscribers."""

    def __init__(self, client: Client, sock: socket.socket, plan: WorkerPlan, place: int) -> None:
        self.place = place
        qos = min(plan.qos, plan.subscriber_qos)
        super().__init__(client, sock, 1 << wire.PUBLISH | 1 << wire.PUBREL if qos else 0)
        self._qos = qos
        self._open: set[int] = set()
        head = len(wire.publish_head(plan.topics[client.topic], 0, plan.payload))
        self.length = (HEADER.size, 0) if qos else (head + plan.payload, head)
        """Of what `receive` gives for each delivery, and where in it the payload begins."""

    def receive(self) -> bytes:
        """PUBLISH frames that came whole; at QoS 1 and 2 only the beginnings of their payloads."""
        whole, found = self.take()
        return self._answered(found) if self._qos else whole

    def _answered(self, found: Sequence[object]) -> bytes:
        headers = []
        for frame in found:
            assert isinstance(frame, frames.Frame)
            if frame.type == wire.PUBREL:
                self._open.discard(int.from_bytes(frame.data[2:4], "big"))
                self.send(wire.acknowledgement(wire.PUBCOMP, frame.data[2:4]))
                continue
            head = frames.publish_head(frame.data, 4)
            packet_id = head.packet_id.to_bytes(2, "big")
            if head.qos == 1:
                self.send(wire.acknowledgement(wire.PUBACK, packet_id))
            elif head.qos == 2:
                self.send(wire.acknowledgement(wire.PUBREC, packet_id))
                if head.packet_id in self._open:
                    continue  # the same one again, not yet released [MQTT-4.3.3-2]
                self._open.add(head.packet_id)
            headers.append(frame.data[head.payload_start : head.payload_start + HEADER.size])
        return b"".join(headers)


def opened(plan: WorkerPlan, clients: Sequence[Client]) -> list[socket.socket]:
    """Connected (and subscribed) sockets in the order of the clients, not blocking any more."""
    done: list[socket.socket] = []
    try:
        for at in range(0, len(clients), _AT_ONCE):
            _open_some(plan, clients[at : at + _AT_ONCE], done)
    except OSError as error:
        for sock in done:
            sock.close()
        client = clients[min(len(done), len(clients) - 1)]
        raise Unavailable(f"{client.host}:{client.port} does not take clients: {error}") from None
    return done


def _open_some(plan: WorkerPlan, clients: Sequence[Client], done: list[socket.socket]) -> None:
    """Ask for all first, then read the answers: a slow broker serves them in one go."""
    begun = len(done)
    for client in clients:
        sock = socket.create_connection((client.host, client.port), timeout=_PATIENCE)
        done.append(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(wire.connect(f"{plan.label}-{client.number}"))
    for sock in done[begun:]:
        if (answer := _exactly(sock, 4))[3]:
            raise Unavailable(f"the broker refused a client with code {answer[3]}")
    for client, sock in zip(clients, done[begun:], strict=True):
        if not client.publishes:
            sock.sendall(wire.subscribe(plan.topics[client.topic], plan.subscriber_qos))
    for client, sock in zip(clients, done[begun:], strict=True):
        if not client.publishes and (answer := _exactly(sock, 5))[4] > 2:
            raise Unavailable(f"the broker refused the filter {plan.topics[client.topic]}")
        sock.setblocking(False)


def _exactly(sock: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = sock.recv(count - len(got))
        if not more:
            raise Unavailable("the broker closed a connection during the handshake")
        got += more
    return got
