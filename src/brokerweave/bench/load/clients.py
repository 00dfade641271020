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
from brokerweave.bench.load.plan import PlannedClient, WorkerPlan
from brokerweave.errors import RemoteProtocolError, Unavailable
from brokerweave.mqtt.publish import publish_head
from brokerweave.mqtt.scanner import Frame, Scanner

_MAX_PACKET = 1 << 20
_CHUNK = 1 << 17
_AT_ONCE = 100
"""Clients that are opened together: more would overflow a broker's queue of connections."""
_PATIENCE = 60.0
"""Seconds that a broker may take for CONNACK or SUBACK: one held to a few per cent of a core is slow."""
_PATIENCE_BACK = 5.0
"""The same for one of several addresses at which a client may come back."""


class LoadConnection:
    """One client's socket, and the bytes that it would not take yet."""

    def __init__(self, client: PlannedClient, sock: socket.socket, wanted: int) -> None:
        self.client = client
        self._wanted = wanted
        self.away = True
        """Has no connection, and will come back."""
        self.backlog = bytearray()
        self.connected(sock)

    def connected(self, sock: socket.socket) -> None:
        """From now on this is its connection."""
        self.sock, self.away = sock, False
        self._scanner = Scanner(self._wanted, _MAX_PACKET)
        self.backlog.clear()

    def leave(self) -> None:
        """Its connection is gone."""
        self.away = True
        self.sock.close()
        self.backlog.clear()

    def send(self, data: bytes) -> None:
        if self.away:
            return
        if self.backlog:
            self.backlog += data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except ConnectionError:
            return  # whoever reads from it hears of its end
        if sent < len(data):
            self.backlog += data[sent:]

    def flush(self) -> bool:
        """Whether all has gone."""
        try:
            del self.backlog[: self.sock.send(self.backlog)]
        except BlockingIOError:
            return False
        except ConnectionError:
            self.backlog.clear()
        return not self.backlog

    def take(self) -> tuple[bytes, Sequence[object]]:
        """What has come whole, and the frames in it that were wanted one by one."""
        try:
            chunk = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return b"", ()
        except ConnectionError:
            chunk = b""
        if not chunk:
            raise Unavailable(f"{self._where} closed the connection of client {self.client.number}")
        found = self._scanner.feed(chunk)
        if self._scanner.error is not None:
            raise RemoteProtocolError(f"{self._where} sent what is not MQTT: {self._scanner.error}")
        return found

    @property
    def _where(self) -> str:
        return f"{self.client.host}:{self.client.port}"


class LoadPublisher(LoadConnection):
    """Sends, and at QoS 1 and 2 hears of it: `acknowledged(turn)` when a message has been taken over."""

    def __init__(
        self,
        client: PlannedClient,
        sock: socket.socket,
        plan: WorkerPlan,
        acknowledged: Callable[[int], None],
    ) -> None:
        self._again: dict[bytes, bytes] | None = {} if plan.addresses else None
        """What is to be sent again after a connection was lost: PUBLISH, or PUBREL after PUBREC."""
        super().__init__(client, sock, 1 << wire.PUBACK | 1 << wire.PUBREC | 1 << wire.PUBCOMP)
        self._qos = plan.qos
        self._head = wire.publish_head(plan.topics[client.topic], plan.qos, plan.payload)
        self._padding = wire.padding(plan.payload)
        self._acknowledged = acknowledged
        self._under_way: dict[bytes, int] = {}

    def leave(self) -> None:
        super().leave()
        if self._again is not None:
            self._again = {packet_id: _again(packet) for packet_id, packet in self._again.items()}

    def connected(self, sock: socket.socket) -> None:
        super().connected(sock)
        for packet in (self._again or {}).values():  # in the order of sending [MQTT-4.6.0-1]
            self.send(packet)

    def publish(self, message: int, turn: int, now: int) -> None:
        """`turn` is what the log calls this message."""
        header = HEADER.pack(self.client.number, message, now)
        if self._qos:
            packet_id = (message % 65_535 + 1).to_bytes(2, "big")
            self._under_way[packet_id] = turn
            header = packet_id + header
        packet = self._head + header + self._padding
        if self._again is not None:
            self._again[packet_id] = packet
        self.send(packet)

    def receive(self) -> bytes:
        """Take in acknowledgements; there are no deliveries."""
        for frame in self.take()[1]:
            assert isinstance(frame, Frame)
            packet_id = frame.data[2:4]
            if frame.type == wire.PUBREC:
                release = wire.acknowledgement(wire.PUBREL, packet_id)
                if self._again is not None and packet_id in self._again:
                    self._again[packet_id] = release  # [MQTT-4.3.3-1]
                self.send(release)
            elif packet_id in self._under_way:
                if self._again is not None:
                    self._again.pop(packet_id, None)
                self._acknowledged(self._under_way.pop(packet_id))
        return b""


def _again(packet: bytes) -> bytes:
    """As it goes out another time [MQTT-3.3.1-1]."""
    return bytes((packet[0] | wire.DUP,)) + packet[1:] if packet[0] >> 4 == wire.PUBLISH else packet


class LoadSubscriber(LoadConnection):
    """Takes in deliveries, and answers those of QoS 1 and 2. `place` is its place among the worker's
    subscribers."""

    def __init__(self, client: PlannedClient, sock: socket.socket, plan: WorkerPlan, place: int) -> None:
        self.place = place
        qos = min(plan.qos, plan.subscriber_qos)
        super().__init__(client, sock, 1 << wire.PUBLISH | 1 << wire.PUBREL if qos else 0)
        self._qos = qos
        self._open: set[int] = set()
        head = len(wire.publish_head(plan.topics[client.topic], 0, plan.payload))
        self.length = (HEADER.size, 0) if qos else (head + plan.payload, head)
        """Of what `receive` gives for each delivery, and where in it the payload begins."""

    def leave(self) -> None:
        super().leave()
        self._open.clear()  # another broker numbers its deliveries anew

    def receive(self) -> bytes:
        """PUBLISH frames that came whole; at QoS 1 and 2 only the beginnings of their payloads."""
        whole, found = self.take()
        return self._answered(found) if self._qos else whole

    def _answered(self, found: Sequence[object]) -> bytes:
        headers = []
        for frame in found:
            assert isinstance(frame, Frame)
            if frame.type == wire.PUBREL:
                self._open.discard(int.from_bytes(frame.data[2:4], "big"))
                self.send(wire.acknowledgement(wire.PUBCOMP, frame.data[2:4]))
                continue
            head = publish_head(frame.data, 4)
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


def opened(plan: WorkerPlan, clients: Sequence[PlannedClient]) -> list[socket.socket]:
    """Connected (and subscribed) sockets in the order of the clients, not blocking any more."""
    done: list[socket.socket] = []
    try:
        for at in range(0, len(clients), _AT_ONCE):
            _open_some(plan, clients[at : at + _AT_ONCE], done)
    except (OSError, Unavailable) as error:
        for sock in done:
            sock.close()
        client = clients[min(len(done), len(clients) - 1)]
        raise Unavailable(f"{client.host}:{client.port} does not take clients: {error}") from None
    return done


def _open_some(plan: WorkerPlan, clients: Sequence[PlannedClient], done: list[socket.socket]) -> None:
    """Ask for all first, then read the answers: a slow broker serves them in one go."""
    begun = len(done)
    for client in clients:
        sock = socket.create_connection((client.host, client.port), timeout=_PATIENCE)
        done.append(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(wire.connect(f"{plan.label}-{client.number}", clean=not plan.addresses))
    for sock in done[begun:]:
        _expect(sock, wire.CONNACK)
    for client, sock in zip(clients, done[begun:], strict=True):
        if not client.publishes:
            sock.sendall(wire.subscribe(plan.topics[client.topic], plan.subscriber_qos))
    for client, sock in zip(clients, done[begun:], strict=True):
        if not client.publishes:
            _expect(sock, wire.SUBACK)
        sock.setblocking(False)


def open_one(
    address: tuple[str, int], client_id: str, topic: str | None = None, qos: int = 0
) -> socket.socket:
    """One connected (and subscribed) socket, for whoever has a schedule of its own; it blocks."""
    sock = socket.create_connection(address, timeout=_PATIENCE)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(wire.connect(client_id))
        _expect(sock, wire.CONNACK)
        if topic is not None:
            sock.sendall(wire.subscribe(topic, qos))
            _expect(sock, wire.SUBACK)
    except BaseException:
        sock.close()
        raise
    return sock


def come_back(plan: WorkerPlan, client: PlannedClient, address: tuple[str, int]) -> socket.socket:
    """A new connection of a client that lost its own; `OSError` or `Unavailable` if this address refuses.

    SUBACK is not waited for: what the client missed may come before it.
    """
    sock = socket.create_connection(address, timeout=_PATIENCE_BACK)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(wire.connect(f"{plan.label}-{client.number}", clean=False))
        _expect(sock, wire.CONNACK)
        if not client.publishes:
            sock.sendall(wire.subscribe(plan.topics[client.topic], plan.subscriber_qos))
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _expect(sock: socket.socket, kind: int) -> None:
    """CONNACK, or SUBACK of one filter, that says yes."""
    answer = _exactly(sock, 4 if kind == wire.CONNACK else 5)
    if answer[0] >> 4 != kind or answer[1] != len(answer) - 2:
        raise Unavailable(f"it answered {answer!r}, which is not MQTT 3.1.1's {wire.NAMES[kind]}")
    if answer[-1] > (0 if kind == wire.CONNACK else 2):
        raise Unavailable(f"it refused one, with code {answer[-1]} in {wire.NAMES[kind]}")


def _exactly(sock: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = sock.recv(count - len(got))
        if not more:
            raise Unavailable("it closed a connection during the handshake")
        got += more
    return got
