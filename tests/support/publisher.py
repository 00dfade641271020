"""A publisher that does over lost connections exactly what MQTT asks, which few client libraries do.

Owns one connection at a time and what is in flight. Invariants: a message keeps its packet id until its
handshake is over; after a reconnect what was not answered is repeated with DUP, what had PUBREC is released
again, in order [MQTT-4.4.0-1]; every wait is bounded. Must not know: nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Packet, PubAck, PubComp, Publish, PubRec, PubRel
from tests.support.raw import RawClient
from tests.support.waiting import wait_until

WINDOW = 10


class StrictPublisher:
    """Each message is its number, on one topic."""

    def __init__(self, port: int, client_id: str, topic: str, qos: int) -> None:
        self.reconnects = 0
        self.repeated = 0
        self._port = port
        self._client_id = client_id
        self._topic = topic
        self._qos = qos
        self._in_flight: dict[int, Publish | PubRel] = {}
        self._client: RawClient | None = None
        self._next_id = 0

    def publish(self, count: int, meanwhile: Callable[[int], None] = lambda number: None) -> list[bytes]:
        """Publish that many and wait until all are acknowledged; `meanwhile` follows the first sending."""
        return self.publish_until(lambda number: number >= count, meanwhile)

    def publish_until(
        self, enough: Callable[[int], bool], meanwhile: Callable[[int], None] = lambda number: None
    ) -> list[bytes]:
        """Publish until that many are enough, and wait until all are acknowledged."""
        payloads: list[bytes] = []
        while not enough(len(payloads)) or self._in_flight:
            try:
                client = self._client or self._connect()
                if len(self._in_flight) < WINDOW and not enough(number := len(payloads)):
                    payloads.append(b"%d" % number)
                    packet = Publish(self._topic, payloads[-1], self._qos, packet_id=self._free_id())
                    self._in_flight[packet.packet_id] = packet
                    client.send(packet)
                    meanwhile(number)
                else:
                    self._answered(codec.decode(client.read_packets(1), 4))
            except ConnectionError:
                if self._client is not None:
                    self._client.close()
                self._client = None
                self.reconnects += 1
        assert self._client is not None
        self._client.close()
        return payloads

    def _free_id(self) -> int:
        while True:
            self._next_id = self._next_id % 0xFFFF + 1
            if self._next_id not in self._in_flight:
                return self._next_id

    def _connect(self) -> RawClient:
        wait_until(self._accepted, "the node's return")
        client = self._client
        assert client is not None
        for packet in self._in_flight.values():
            self.repeated += isinstance(packet, Publish)
            client.send(replace(packet, dup=True) if isinstance(packet, Publish) else packet)
        return client

    def _accepted(self) -> bool:
        with contextlib.suppress(ConnectionError):
            client = RawClient(self._port)
            try:
                client.send(Connect(self._client_id, 4, clean_start=False))
                answer = codec.decode(client.read_packets(1), 4)
            except ConnectionError:
                client.close()
                raise
            if isinstance(answer, ConnAck) and answer.reason_code == 0:
                self._client = client
                return True
            client.close()
        return False

    def _answered(self, packet: Packet) -> None:
        match packet:
            case PubAck() | PubComp():
                self._in_flight.pop(packet.packet_id, None)
            case PubRec():
                assert self._client is not None
                release = self._in_flight[packet.packet_id] = PubRel(packet.packet_id)
                self._client.send(release)
