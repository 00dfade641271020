"""A mesh of cores in memory, a site of which may be killed, and clients that tell what they got.

Brokers answer clients as a test says; what goes to a broker from elsewhere is read off its injector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brokerweave.care.client_care import ClientCare
from brokerweave.cooperation.mesh import Mesh
from brokerweave.links.journal import MemoryJournal
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Packet,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
)
from brokerweave.mqtt.scanner import split
from brokerweave.session.move_ticket import PlannedMove
from tests.unit.node.network import Network, Node

OPTIONS = {"copies": 2, "window": 60.0, "client_bytes": 1 << 20, "max_bytes": 1 << 24}
SETTINGS: dict[str, Any] = {"cluster_timeout": 5.0, "barrier_timeout": 1.0, "strategy": Mesh}
DEAD_SECONDS = 2.5
"""After which a node whose links failed is not live."""


def mesh_of(names: str, copies: int = 2, linked: bool = True) -> Network:
    network = Network(time=1000.0)
    network.add(*names, options={**OPTIONS, "copies": copies}, **SETTINGS)
    if linked:
        for number, a in enumerate(names):
            for b in names[:number]:
                network.link(a, b)
        network.settle()
    return network


def strategy(network: Network, name: str) -> Mesh:
    mesh = network.nodes[name].core.strategy
    assert isinstance(mesh, Mesh)
    return mesh


class Membership:
    """What a core asks of the membership of its node."""

    def __init__(self, finds: Callable[[], bool] = lambda: False) -> None:
        self.searching = lambda: not finds()

    def announce(self, data: bytes) -> None: ...

    def round_trips(self) -> dict[str, float]:
        return {}


def care(network: Network, name: str) -> ClientCare:
    found = network.nodes[name].core.care
    assert isinstance(found, ClientCare)
    return found


def kill(network: Network, name: str) -> Node:
    """A site is gone, with its broker and its disk."""
    for other in list(network.nodes):
        if (name, other) in network.wires:
            network.cut(name, other)
    return network.nodes.pop(name)


def restart(network: Network, name: str, journal: MemoryJournal) -> None:
    """A site that was killed begins another life, with what its disk has of records, and no link yet."""
    network.advance(1.0)
    network.add(name, epoch=2, options=OPTIONS, **SETTINGS)
    care(network, name).keep_in(lambda: journal)


def injected(network: Network, name: str) -> list[bytes]:
    """The payloads that wait for the broker of a site."""
    _, runs = network.nodes[name].core.injectors[0].outbox.take(1 << 20)
    packets = [codec.decode(frame, run.version) for run in runs for frame in split(run.blob)]
    assert all(isinstance(packet, Publish) and not packet.dup for packet in packets)
    return [packet.payload for packet in packets if isinstance(packet, Publish)]


class Guest:
    """A client of a mesh, with a broker that accepts and grants."""

    def __init__(
        self,
        network: Network,
        node: str,
        name: str,
        version: int = 4,
        session_present: bool = False,
        move: PlannedMove | None = None,
        **connect: Any,
    ) -> None:
        self.node = network.nodes[node]
        self.version = version
        self.pair = self.node.core.new_pair()
        self.to_broker = b""
        self._packet_id = 100
        if move is not None:
            self.pair.announce(move)
        self.send(Connect(name, version, **connect))
        self.broker(ConnAck(session_present=session_present))

    def send(self, packet: Packet) -> None:
        self.to_broker = self.pair.from_client(codec.encode(packet, self.version))

    def broker(self, packet: Packet) -> None:
        data = self.pair.from_broker(codec.encode(packet, self.version))
        self.node.write_client(self.pair, data)

    def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        self._packet_id += 1
        self.send(Subscribe(self._packet_id, (Subscription(topic_filter, qos),)))
        self.broker(SubAck(self._packet_id, (qos,)))

    def publish(self, topic: str, payload: bytes, packet_id: int = 0, dup: bool = False) -> None:
        """At QoS 1, acknowledged by the broker if it gets it."""
        self._packet_id += 1
        packet_id = packet_id or self._packet_id
        self.send(Publish(topic, payload, 1, False, dup, packet_id))
        if self.to_broker:
            self.broker(PubAck(packet_id))

    def delivered(self, payload: bytes, packet_id: int, topic: str = "t") -> None:
        """The broker delivers, and the client has it."""
        self.broker(Publish(topic, payload, 1, packet_id=packet_id))
        self.send(PubAck(packet_id))

    def packets(self) -> list[Packet]:
        data = self.node.written.get(self.pair, b"")
        return [codec.decode(frame, self.version) for frame in split(data)]

    def answer_all(self) -> None:
        for packet in self.packets():
            if isinstance(packet, Publish) and packet.qos:
                self.send(PubAck(packet.packet_id))

    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.packets() if isinstance(packet, Publish)]

    def acknowledged(self) -> list[int]:
        return [packet.packet_id for packet in self.packets() if isinstance(packet, PubAck)]
