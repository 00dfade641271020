"""Sites in memory for tests of retained messages: node cores in front of model brokers.

A model broker keeps the last retained message of each topic, and what its live subscribers (of everything)
would have seen. A node's own publications reach it when a test says so (`drain`), a client's at once, so that
the two can overtake each other as at a real broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.scanner import split
from brokerweave.node.core import NodeCore
from brokerweave.node.retained import RetainedSettings
from brokerweave.node.retained_check import Found
from tests.unit.node.network import Client, Network


class Broker:
    def __init__(self) -> None:
        self.retained: dict[str, bytes] = {}
        self.live: list[tuple[str, bytes]] = []

    def take(self, packet: Publish) -> None:
        self.live.append((packet.topic, packet.payload))
        if packet.retain and packet.payload:
            self.retained[packet.topic] = packet.payload
        elif packet.retain:
            self.retained.pop(packet.topic, None)


class Sites:
    def __init__(self, *names: str, settings: RetainedSettings | None = None, **others: Any) -> None:
        self.network = Network(time=1_000_000.0)
        self.brokers = {name: Broker() for name in names}
        self.clients: dict[str, Client] = {}
        for name in names:
            self.network.add(name, **({} if settings is None else {"retained": settings}), **others)
            self.clients[name] = Client(self.network, name, f"client at {name}")
            self.node(name).retained.check.reader = self._reader(name)

    def node(self, name: str) -> NodeCore:
        return self.network.nodes[name].core

    def publish(self, name: str, topic: str, payload: bytes, qos: int = 1, retain: bool = True) -> None:
        packet = Publish(topic, payload, qos, retain, packet_id=1 if qos else 0)
        self.clients[name].pair.from_client(codec.encode(packet, 4))
        self.brokers[name].take(packet)

    def drain(self, *names: str) -> None:
        """What waits for the brokers reaches them."""
        for name in names or self.brokers:
            box = self.node(name).injectors[0].outbox
            first, runs = box.take(1 << 30)
            for run in runs:
                for frame in split(run.blob):
                    packet = codec.decode(frame, run.version)
                    assert isinstance(packet, Publish)
                    self.brokers[name].take(packet)
            if runs:
                box.acknowledge(first + len(runs) - 1)

    def rest(self, seconds: float = 10.0) -> None:
        """Let everything arrive, and what is late be noticed."""
        step = 0.25
        for _ in range(int(seconds / step)):
            self.network.advance(step)
            self.drain()
        self.network.settle()

    def retained(self) -> list[dict[str, bytes]]:
        return [broker.retained for broker in self.brokers.values()]

    def _reader(self, name: str) -> Callable[[list[str], Callable[[Found], None]], None]:
        def read(topics: list[str], done: Callable[[Found], None]) -> None:
            kept = self.brokers[name].retained
            found = {topic: kept[topic] for topic in topics if topic in kept}
            self.network.nodes[name].call_later(0.1, lambda: done(found))

        return read
