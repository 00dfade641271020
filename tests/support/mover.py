"""An MQTT client on asyncio that moves between sites as a gateway would: make before break, with a ticket.

Owns both connections of a move and what is on its way on them. Invariants: whatever arrives is answered on
the connection on which it came; what was published and not acknowledged goes again on the next connection,
in order, with DUP, and what had its PUBREC goes on with PUBREL. Must not know: sites beyond their ports, what
is promised.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import cast

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
)
from brokerweave.mqtt.properties import Property
from brokerweave.mqtt.scanner import Frame, Scanner
from brokerweave.session import proxy_header
from brokerweave.session.move_ticket import NUMBER_BYTES, PlannedMove, make
from tests.support.raw import HOST
from tests.support.waiting import LIMIT

WINDOW = 20
"""Publications of one client that wait for an acknowledgement."""
TICKET_SECONDS = 60.0
_EVERY_TYPE = 0xFFFE


@dataclass(frozen=True, slots=True)
class Delivery:
    topic: str
    payload: bytes
    at: float
    connection: int
    """The number of the client's connection that it came on."""


class Mover:
    def __init__(self, name: str, version: int = 4, persistent: bool = False, key: bytes = b"") -> None:
        self.received: list[Delivery] = []
        self.resumed = 0
        """How often a broker had a session of it after a move."""
        self._name = name
        self._version = version
        self._persistent = persistent
        self._key = key
        self._connection: _Side | None = None
        self._connections = 0
        self._moving = False
        self._filters: dict[str, int] = {}
        self._last_id = 0
        self._waiting: deque[Publish] = deque()
        self._out: dict[int, tuple[Publish, bool]] = {}
        """By packet id: what was sent, and whether its PUBREC came."""

    @property
    def pending(self) -> int:
        """Publications that are not acknowledged."""
        return len(self._waiting) + len(self._out)

    def payloads(self, topic: str) -> list[bytes]:
        return [each.payload for each in self.received if each.topic == topic]

    def gaps(self) -> list[float]:
        """For each move: seconds from the last delivery at the old site to the first one at the new."""
        turns = zip(self.received, self.received[1:], strict=False)
        return [after.at - before.at for before, after in turns if before.connection != after.connection]

    async def connect(self, port: int, filters: dict[str, int] | None = None) -> None:
        self._filters = filters or {}
        self._connection = await self._dial(port, b"")
        if self._filters:
            await self._connection.subscribe(self._filters)

    async def move(self, old: str, new: str, port: int) -> None:
        """Returns when the new site has granted what the client wants."""
        move = PlannedMove(self._name, old, new, secrets.token_bytes(NUMBER_BYTES))
        ticket = make(self._key, move, time.time() + TICKET_SECONDS)
        header = proxy_header.encode((HOST, 1), (HOST, port), (proxy_header.TICKET, ticket))
        before, self._moving = self._connection, True
        after = await self._dial(port, header)
        self.resumed += after.resumed
        granted = after.subscribe(self._filters)  # at once
        assert before is not None
        await asyncio.wait_for(before.closed.wait(), LIMIT)
        self._go_on(after)
        await granted

    @property
    def lost(self) -> bool:
        """Whether its connection ended."""
        return self._connection is not None and self._connection.closed.is_set()

    def in_flight(self) -> set[bytes]:
        """What it published and nobody acknowledged."""
        return {publish.payload for publish, _ in self._out.values()} | {
            each.payload for each in self._waiting
        }

    async def come_back(self, port: int) -> None:
        """Connect once more, after its connection ended, and subscribe again as clients do that do not trust
        their session. Raises `OSError` if nobody takes it."""
        before, self._moving = self._connection, True
        assert before is not None
        after = await self._dial(port, b"")
        if after.resumed:
            after.taken = before.taken
        self._go_on(after)
        if self._filters:
            await after.subscribe(self._filters)

    def _go_on(self, after: _Side) -> None:
        """What has no acknowledgement goes again."""
        self._connection, self._moving = after, False
        for packet_id, (publish, released) in self._out.items():
            after.send(PubRel(packet_id) if released else replace(publish, dup=True, packet_id=packet_id))
        self._flush()

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        self._waiting.append(Publish(topic, payload, qos))
        self._flush()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.send(Disconnect())
            self._connection.transport.close()

    async def _dial(self, port: int, header: bytes) -> _Side:
        self._connections += 1
        loop, number = asyncio.get_running_loop(), self._connections
        _, side = await loop.create_connection(lambda: _Side(self, self._version, number), HOST, port)
        expiry = ((Property.SESSION_EXPIRY_INTERVAL, 600),) if self._version == 5 and self._persistent else ()
        connect = Connect(self._name, self._version, not self._persistent, 60, properties=expiry)
        side.transport.write(header + codec.encode(connect, self._version))
        await asyncio.wait_for(side.accepted, LIMIT)
        return side

    def _flush(self) -> None:
        while self._waiting and len(self._out) < WINDOW and not self._moving and self._connection is not None:
            publish, packet_id = self._waiting.popleft(), self.next_id()
            self._out[packet_id] = publish, False
            self._connection.send(replace(publish, packet_id=packet_id))

    def next_id(self) -> int:
        self._last_id = self._last_id % 0xFFFF + 1
        return self._last_id

    # What its connections bring

    def delivered(self, publish: Publish, connection: int) -> None:
        if not publish.retain:
            self.received.append(Delivery(publish.topic, publish.payload, time.monotonic(), connection))

    def acknowledged(self, packet: PubAck | PubRec | PubComp) -> None:
        if isinstance(packet, PubRec):
            self._out[packet.packet_id] = self._out[packet.packet_id][0], True
        else:
            self._out.pop(packet.packet_id, None)
            self._flush()


class _Side(asyncio.Protocol):
    """One connection."""

    def __init__(self, owner: Mover, version: int, number: int) -> None:
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = asyncio.Event()
        self.resumed = False
        self.taken: set[int] = set()
        """QoS 2 deliveries that wait for their PUBREL."""
        self._owner = owner
        self._version = version
        self._number = number
        self._scanner = Scanner(_EVERY_TYPE, 1 << 20)
        self._granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        for each in (self.accepted, self._granted):
            if not each.done():
                each.set_exception(ConnectionError("the node ended the connection"))
                each.exception()  # whether somebody waits for it or not

    def data_received(self, data: bytes) -> None:
        _, items = self._scanner.feed(data)
        for item in items:
            assert isinstance(item, Frame)
            self._packet(codec.decode(item.data, self._version))

    def send(self, packet: Packet) -> None:
        self.transport.write(codec.encode(packet, self._version))

    def subscribe(self, filters: dict[str, int]) -> asyncio.Future[None]:
        subscriptions = tuple(Subscription(each, qos) for each, qos in filters.items())
        self.send(Subscribe(self._owner.next_id(), subscriptions))
        return self._granted

    def _packet(self, packet: Packet) -> None:
        match packet:
            case ConnAck():
                assert packet.reason_code == 0
                self.resumed = packet.session_present
                self.accepted.set_result(None)
            case SubAck():
                self._granted.set_result(None)
            case Publish():
                self._delivered(packet)
            case PubRel():
                self.taken.discard(packet.packet_id)
                self.send(PubComp(packet.packet_id))
            case PubAck() | PubComp():
                self._owner.acknowledged(packet)
            case PubRec():
                self._owner.acknowledged(packet)
                self.send(PubRel(packet.packet_id))

    def _delivered(self, packet: Publish) -> None:
        if packet.qos == 1:
            self.send(PubAck(packet.packet_id))
        elif packet.qos == 2:
            self.send(PubRec(packet.packet_id))
            if packet.packet_id in self.taken:
                return
            self.taken.add(packet.packet_id)
        self._owner.delivered(packet, self._number)
