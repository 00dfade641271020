"""Several node cores joined in memory: what a lane has to write is delivered to the other side's core.

Delivery is in turns, control and data of one link in order; time moves only when a test says so. Clients
are pairs whose broker grants and acknowledges everything.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from brokerweave.care.moves import MoveResult
from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.errors import LocalProtocolError
from brokerweave.links.abilities import BrokerAbilities
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.links.injector import Injector
from brokerweave.links.lane import Lane
from brokerweave.links.outbox import Outbox
from brokerweave.links.wire import BATCH_TOPIC, decode_ack, decode_batch, open_publish
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    PubRec,
    SubAck,
    Subscribe,
    Subscription,
)
from brokerweave.mqtt.scanner import split
from brokerweave.node.core import NodeCore, Settings
from brokerweave.plugin import Strategy
from brokerweave.session.pair import Pair


@dataclass
class Timer:
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Limits:
    max_packet: int = 1 << 20
    client_queue: int = 1 << 20


DEFAULTS = {
    "lanes": 1,
    "ordered": True,
    "window": 10_000,
    "forget_after": 1000.0,
    "session_expiry": 100.0,
    "cycles": False,
}


class Node:
    """One core and its host."""

    def __init__(self, network: Network, identifier: str, **settings: Any) -> None:
        self.network = network
        self.random = Random(1)
        self.written: dict[Pair, bytes] = {}
        self.warnings: list[str] = []
        self.hung_up: list[Pair] = []
        self.last_words: dict[Pair, bytes] = {}
        self.to_brokers: dict[Pair, bytes] = {}
        """What came after its turn."""
        self.cleared: list[Pair] = []
        self.moves: list[MoveResult] = []
        injector = Injector("i", BrokerAbilities(), Outbox(1), DeadLetters())
        strategy: type[Strategy] = settings.pop("strategy", SubscriptionFlooding)
        self.core = NodeCore(
            Settings(identifier, settings.pop("epoch", 1), **DEFAULTS | settings),
            Limits(),
            strategy,
            (),
            self,
            lambda neighbour, index: Lane(Outbox(hash((identifier, neighbour, index)) & 0xFFFF | 1)),
            [injector],
        )

    def now(self) -> float:
        return self.network.time

    steady = now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer()
        entry = (self.network.time + seconds, next(self.network.order), timer, callback)
        heapq.heappush(self.network.timers, entry)
        return timer

    def lane_ready(self, neighbour: str, lane: int) -> None:
        self.network.ready.append((self.core.node_id, neighbour, lane))

    def injector_ready(self, lane: int) -> None: ...

    def send_control(self, neighbour: str, packet: Packet) -> None:
        self.network.send(self.core.node_id, neighbour, 0, codec.encode(packet, 5))

    def open_broker(self, pair: Pair) -> None: ...

    def hang_up(self, pair: Pair, last_words: bytes) -> None:
        self.hung_up.append(pair)
        self.last_words[pair] = last_words

    def clear_session(self, pair: Pair) -> None:
        self.cleared.append(pair)

    def move_ended(self, result: MoveResult) -> None:
        self.moves.append(result)

    def write_client(self, pair: Pair, data: bytes) -> None:
        self.written[pair] = self.written.get(pair, b"") + data

    def write_broker(self, pair: Pair, data: bytes) -> None:
        """Its broker answers at once."""
        self.to_brokers[pair] = self.to_brokers.get(pair, b"") + data
        if data == codec.encode(PingReq(), 4):
            self.write_client(pair, pair.from_broker(codec.encode(PingResp(), 4)))

    def forget_lanes(self, neighbour: str) -> None: ...

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def injected(self) -> list[str]:
        """Topics that wait for the broker here."""
        return [publish.topic for publish in self.injected_publishes()]

    def injected_publishes(self) -> list[Publish]:
        _, runs = self.core.injectors[0].outbox.take(1 << 20)
        frames = [codec.decode(frame, run.version) for run in runs for frame in split(run.blob)]
        return [frame for frame in frames if isinstance(frame, Publish)]


@dataclass
class Network:
    time: float = 0.0
    nodes: dict[str, Node] = field(default_factory=dict)
    timers: list[tuple[float, int, Timer, Callable[[], None]]] = field(default_factory=list)
    order: itertools.count[int] = field(default_factory=itertools.count)
    ready: deque[tuple[str, str, int]] = field(default_factory=deque)
    wires: dict[tuple[str, str], deque[tuple[int, bytes]]] = field(default_factory=dict)
    stuck: set[tuple[str, str]] = field(default_factory=set)
    """Directions on which nothing is delivered for now."""

    def add(self, *identifiers: str, **settings: Any) -> None:
        for identifier in identifiers:
            self.nodes[identifier] = Node(self, identifier, **settings)

    def link(self, a: str, b: str) -> None:
        cores = self.nodes[a].core, self.nodes[b].core
        cores[0].add_neighbour(b)
        cores[1].add_neighbour(a)
        self.wires[a, b], self.wires[b, a] = deque(), deque()
        lanes = cores[0].neighbour_table[b].lanes, cores[1].neighbour_table[a].lanes
        for index, pair in enumerate(zip(*lanes, strict=True)):
            resumes = pair[0].resume(), pair[1].resume()
            cores[0].neighbour_table.connected(b, index, resumes[1])
            cores[1].neighbour_table.connected(a, index, resumes[0])
            self.ready += [(a, b, index), (b, a, index)]

    def cut(self, a: str, b: str) -> None:
        del self.wires[a, b], self.wires[b, a]
        for source, target in ((a, b), (b, a)):
            table = self.nodes[source].core.neighbour_table
            for index in range(len(table[target].lanes)):
                table.lost(target, index)

    def send(self, source: str, target: str, lane: int, data: bytes) -> None:
        if data and (source, target) in self.wires:
            self.wires[source, target].append((lane, data))

    def settle(self, limit: int = 10_000) -> None:
        """Deliver until nothing moves, at the present time."""
        for _ in range(limit):
            self._fire_due()
            self._collect()
            moving = [key for key, wire in self.wires.items() if wire and key not in self.stuck]
            if not moving:
                return
            for key in moving:
                if wire := self.wires.get(key):
                    self._deliver(*key, *wire.popleft())
        raise LocalProtocolError("the network does not come to rest")

    def advance(self, seconds: float) -> None:
        self.time += seconds
        self.settle()

    def _fire_due(self) -> None:
        while self.timers and self.timers[0][0] <= self.time:
            _, _, timer, callback = heapq.heappop(self.timers)
            if not timer.cancelled:
                callback()

    def _collect(self) -> None:
        for node in self.nodes.values():
            node.core.publisher.settle()
        while self.ready:
            source, target, index = self.ready.popleft()
            if (source, target) in self.wires:
                lane = self.nodes[source].core.neighbour_table[target].lanes[index]
                self.send(source, target, index, lane.poll(self.time))

    def _deliver(self, source: str, target: str, lane: int, data: bytes) -> None:
        core = self.nodes[target].core
        for frame in split(data):
            opened = open_publish(frame) if frame[0] >> 4 == 3 else None
            if opened is None:
                core.control_arrived(source, codec.decode(frame, 5))
            elif opened[0] == BATCH_TOPIC:
                core.arrivals.batch_arrived(source, lane, *decode_batch(opened[1], self.time))
            else:
                core.neighbour_table[source].lanes[lane].received_ack(decode_ack(opened[1]))


class Client:
    """A client at a node, with a broker that answers at once."""

    def __init__(self, network: Network, node: str, name: str, **connect: object) -> None:
        self.node = network.nodes[node]
        self.pair = self.node.core.new_pair()
        self._send(Connect(name, 4, **connect))  # type: ignore[arg-type]
        self.broker(ConnAck())
        self._ids = itertools.count(1)

    def _send(self, packet: Packet) -> None:
        self.pair.from_client(codec.encode(packet, 4))

    def broker(self, packet: Packet) -> None:
        """What the broker sends; what comes through is written down like the rest."""
        self.node.write_client(self.pair, self.pair.from_broker(codec.encode(packet, 4)))

    def subscribe(self, topic_filter: str, qos: int = 0) -> None:
        packet_id = next(self._ids)
        self._send(Subscribe(packet_id, (Subscription(topic_filter, qos),)))
        self.broker(SubAck(packet_id, (qos,)))

    def publish(self, topic: str, qos: int = 0, payload: bytes = b"", retain: bool = False) -> None:
        packet_id = next(self._ids) if qos else 0
        self._send(Publish(topic, payload, qos, retain, packet_id=packet_id))
        if qos:
            self.broker(PubAck(packet_id) if qos == 1 else PubRec(packet_id))

    def end(self) -> None:
        self.pair.ended()

    def got(self) -> list[str]:
        """The names of the packets that reached the client, CONNACK aside."""
        frames = split(self.node.written.get(self.pair, b""))
        return [type(codec.decode(frame, 4)).__name__ for frame in frames][1:]
