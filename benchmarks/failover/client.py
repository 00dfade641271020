"""MQTT 3.1.1 clients that come back: publishers that send again what was not acknowledged, and subscribers.

Written by hand on purpose: the load must not share code with what it measures. Invariants: a client whose
connection ends connects again at once; publications keep their packet id, and carry DUP when they go out
again [MQTT-3.3.1-1]; a publication past PUBREC is not sent again, its PUBREL is [MQTT-4.3.3-1]. Must not
know: how many others there are, or what is counted.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import TypeAlias, cast

from benchmarks.failover.record import Life, Published, Received

PAYLOAD = struct.Struct("!II8x")  # topic, number; 16 bytes in all
ANSWER_SECONDS = 5.0
"""For CONNACK and SUBACK; then the client hangs up and tries again."""
RETRY_SECONDS = 0.02
"""After a connection that came to nothing; a connection that had stood is replaced at once."""
WINDOW = 20
"""Publications of one publisher that wait for an acknowledgement; more wait to be sent."""

_CONNACK, _PUBLISH, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP, _SUBACK = 2, 3, 4, 5, 6, 7, 9
now = time.monotonic

Address: TypeAlias = tuple[str, int]


def packet(first: int, body: bytes) -> bytes:
    if len(body) > 127:
        raise ValueError(f"a body of {len(body)} bytes needs a longer length than this load writes")
    return bytes((first, len(body))) + body


def text(value: str) -> bytes:
    return struct.pack("!H", len(value)) + value.encode()


class Client(asyncio.Protocol):
    """What both kinds share: being connected."""

    def __init__(self, address: Address, life: Life, persistent: bool) -> None:
        self.life = life
        self.ready = False
        """Connected, and subscribed if it subscribes."""
        self._address = address
        self._persistent = persistent
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._leaving = False
        self._limit: asyncio.TimerHandle | None = None
        self._dialing: asyncio.Task[None] | None = None

    def dial(self) -> None:
        self._dialing = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, *self._address)
        except OSError:
            self._again()

    def _again(self) -> None:
        self.life.failed += 1
        if not self._leaving:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.dial)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._rest = b""
        self._limit = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._transport.abort)
        flags = b"\x00" if self._persistent else b"\x02"
        self.write(packet(0x10, b"\x00\x04MQTT\x04" + flags + b"\x00\x00" + text(self.life.client)))

    def connection_lost(self, exc: Exception | None) -> None:
        was_ready, self.ready, self._transport = self.ready, False, None
        if self._limit is not None:
            self._limit.cancel()
        if self._leaving:
            return
        if was_ready:
            self.life.lost.append(now())
            self.dial()
        else:
            self._again()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        while end - at >= 2 and (stop := at + 2 + data[at + 1]) <= end:
            if data[at + 1] > 127:
                raise ValueError("a packet that is longer than any this load asked for")
            self.took(data[at], data[at + 2 : stop])
            at = stop
        self._rest = data[at:]
        self.answer()

    def took(self, first: int, body: bytes) -> None:
        if first >> 4 == _CONNACK:
            if body[1]:
                assert self._transport is not None
                self._transport.abort()  # the broker is away; another node may serve
                return
            self.life.connected.append(now())
            self.accepted()

    def accepted(self) -> None:
        raise NotImplementedError

    def answer(self) -> None:
        """Write what the packets of one read made necessary."""

    def stands(self) -> None:
        self.ready = True
        if self._limit is not None:
            self._limit.cancel()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def leave(self) -> None:
        self._leaving = True
        self.write(b"\xe0\x00")
        if self._transport is not None:
            self._transport.close()


class Publisher(Client):
    def __init__(self, address: Address, record: Published, qos: int, persistent: bool) -> None:
        super().__init__(address, record.life, persistent)
        self.record = record
        self._qos = qos
        self._topic = text(f"failover/{record.topic}")
        self._flying: dict[int, tuple[int, bytes | None]] = {}
        """By packet id: the number, and the frame, or None past PUBREC. In the order of sending."""
        self._next_id = 0

    def publish(self) -> None:
        """One more publication is due."""
        self.record.waiting += 1
        self._send()

    def _send(self) -> None:
        while self.ready and self.record.waiting and len(self._flying) < WINDOW:
            self.record.waiting -= 1
            number = len(self.record.created)
            self._next_id = self._next_id % 65_535 + 1
            body = self._topic + struct.pack("!H", self._next_id) + PAYLOAD.pack(self.record.topic, number)
            frame = packet(0x30 | self._qos << 1, body)
            self._flying[self._next_id] = number, frame
            self.record.created.append(now())
            self.record.taken.append(None)
            self.record.finished.append(None)
            self.write(frame)

    @property
    def idle(self) -> bool:
        return not self._flying and not self.record.waiting

    def accepted(self) -> None:
        self.stands()
        for packet_id, (_, frame) in self._flying.items():
            if frame is None:
                self.write(packet(0x62, struct.pack("!H", packet_id)))
            else:
                self.record.resent += 1
                self.write(bytes((frame[0] | 0x08,)) + frame[1:])
        self._send()

    def took(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind not in (_PUBACK, _PUBREC, _PUBCOMP):
            super().took(first, body)
            return
        packet_id = int.from_bytes(body[:2])
        number, _ = self._flying.get(packet_id, (None, None))
        if number is None:
            return
        if self.record.taken[number] is None:
            self.record.taken[number] = now()
        if kind == _PUBREC:
            self._flying[packet_id] = number, None
            self.write(packet(0x62, body[:2]))
        else:
            self.record.finished[number] = now()
            del self._flying[packet_id]

    def answer(self) -> None:
        self._send()


class Subscriber(Client):
    def __init__(self, address: Address, record: Received, qos: int, persistent: bool) -> None:
        super().__init__(address, record.life, persistent)
        self.record = record
        self._filter = text(f"failover/{record.topic}") + bytes((qos,))
        self._open: set[bytes] = set()
        """Packet ids of QoS 2 between PUBLISH and PUBREL, in this connection."""
        self._answers: list[bytes] = []

    def accepted(self) -> None:
        self._open.clear()
        self.write(packet(0x82, b"\x00\x01" + self._filter))

    def took(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == _PUBLISH:
            self._publish(first >> 1 & 3, body)
        elif kind == _PUBREL:
            self._open.discard(body[:2])
            self._answers.append(packet(_PUBCOMP << 4, body[:2]))
        elif kind == _SUBACK:
            if body[2] > 2:
                raise ValueError(f"the broker refused a filter of {self.life.client}")
            self.life.subscribed.append(now())
            self.stands()
        else:
            super().took(first, body)

    def _publish(self, qos: int, body: bytes) -> None:
        at = 2 + int.from_bytes(body[:2])
        packet_id = body[at : at + 2]
        if qos == 2:
            self._answers.append(packet(_PUBREC << 4, packet_id))
            if packet_id in self._open:
                return
            self._open.add(packet_id)
        elif qos == 1:
            self._answers.append(packet(_PUBACK << 4, packet_id))
        _, number = PAYLOAD.unpack(body[-PAYLOAD.size :])
        self.record.numbers.append(number)
        self.record.times.append(now())

    def answer(self) -> None:
        if self._answers:
            self.write(b"".join(self._answers))
            self._answers.clear()
