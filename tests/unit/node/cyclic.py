"""Node cores wired in cycles, in virtual time: lanes with delays of their own, cuts that each end notices in
its own time, and brokers that note what they are given.

Owns the clock and the wires. Invariants: bytes of a connection arrive in order or, after a cut, not at all;
equal seeds give equal runs. Must not know: trees.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import cast

from brokerweave.care.moves import MoveResult
from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.links.injector import Injector
from brokerweave.links.journal import MemoryJournal
from brokerweave.links.lane import Lane
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.links.wire import BATCH_TOPIC, decode_ack, decode_batch, open_publish
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Packet, Publish
from brokerweave.mqtt.scanner import split
from brokerweave.node.core import NodeCore, Settings
from brokerweave.plugin import Strategy
from brokerweave.session.host import Publication
from brokerweave.session.pair import Pair
from brokerweave.session.record import SessionRecord
from tests.unit.node.network import Limits, Timer

LANES = 2


class NotingInjector:
    """Takes the place of an injector: what it is given is at the broker."""

    idle = True

    def __init__(self, taken: list[tuple[str, str]]) -> None:
        self._taken = taken

    def submit(self, run: Run, number: int = 0) -> bool:
        for frame in split(run.blob):
            packet = codec.decode(frame, run.version)
            assert isinstance(packet, Publish)
            self._taken.append((packet.topic, packet.payload.decode()))
        return True


class CyclicNode:
    def __init__(self, world: World, identifier: str, strategy: type[Strategy]) -> None:
        self.world = world
        self.random = world.random
        self.taken: list[tuple[str, str]] = []
        """(topic, payload), as the broker got it from other sites."""
        self.published: list[tuple[str, str]] = []
        self.ready: set[tuple[str, int]] = set()
        self.record = SessionRecord("client", math.inf)
        streams = itertools.count(1)
        self.core = NodeCore(
            Settings(identifier, 1, LANES, True, 10_000, 1e9, 100.0, cycles=True),
            Limits(),
            strategy,
            (),
            self,
            lambda neighbour, index: Lane(Outbox(next(streams), MemoryJournal())),
            [cast(Injector, NotingInjector(self.taken)) for _ in range(LANES)],
        )

    def now(self) -> float:
        return self.world.time

    steady = now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self.world.later(seconds, callback)

    def lane_ready(self, neighbour: str, lane: int) -> None:
        if (neighbour, lane) not in self.ready:
            self.ready.add((neighbour, lane))
            self.world.later(0.0, lambda: self._write(neighbour, lane))

    def _write(self, neighbour: str, lane: int) -> None:
        self.ready.discard((neighbour, lane))
        if neighbour in self.core.neighbour_table:
            self.core.publisher.settle()
            data = self.core.neighbour_table[neighbour].lanes[lane].poll(self.world.time)
            self.world.send(self.core.node_id, neighbour, lane, data)

    def send_control(self, neighbour: str, packet: Packet) -> None:
        self.world.send(self.core.node_id, neighbour, 0, codec.encode(packet, 5))

    def injector_ready(self, lane: int) -> None: ...

    def open_broker(self, pair: Pair) -> None: ...

    def write_client(self, pair: Pair, data: bytes) -> None: ...
    def write_broker(self, pair: Pair, data: bytes) -> None: ...

    def hang_up(self, pair: Pair, last_words: bytes) -> None: ...

    def clear_session(self, pair: Pair) -> None: ...

    def move_ended(self, result: MoveResult) -> None: ...

    def forget_lanes(self, neighbour: str) -> None: ...

    def warn(self, message: str) -> None:
        raise AssertionError(message)

    def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        self.core.interest.add(self.record, [(topic_filter, qos)])

    def unsubscribe(self, topic_filter: str) -> None:
        self.core.interest.discard(self.record, [topic_filter])

    def publish(self, topic: str, qos: int = 1) -> None:
        payload = f"{self.core.node_id}{len(self.published)}"
        self.published.append((topic, payload))
        group = self.core.router.cache(None).lookup(topic.encode(), False)
        if group is not None:
            packet = Publish(topic, payload.encode(), qos, packet_id=1 if qos else 0)
            self.core.publisher.forward(Publication(group, 1, codec.encode(packet, 4), qos, 4))


class World:
    def __init__(
        self, seed: int, strategy: type[Strategy] = SubscriptionFlooding, delay: float = 0.1
    ) -> None:
        self.random = Random(seed)
        self.time = 0.0
        self.nodes: dict[str, CyclicNode] = {}
        self.links: set[tuple[str, str]] = set()
        """Links that should be there; cut ones are not."""
        self.control_packets = 0
        self.messages: dict[tuple[str, str], int] = defaultdict(int)
        self._strategy = strategy
        self._delay = delay
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Timer, Callable[[], None]]] = []
        self._wires: dict[tuple[str, str, int], float] = {}
        """When the last bytes of a direction of a connection arrive."""
        self._connections: dict[tuple[str, str, int], int] = defaultdict(int)
        self._incarnation: dict[frozenset[str], int] = defaultdict(int)

    def wire(self, edges: Iterable[tuple[str, str]]) -> None:
        for a, b in edges:
            for name in (a, b):
                if name not in self.nodes:
                    self.nodes[name] = CyclicNode(self, name, self._strategy)
            self.link(a, b)

    def core(self, name: str) -> NodeCore:
        return self.nodes[name].core

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer()
        heapq.heappush(self._timers, (self.time + seconds, next(self._order), timer, callback))
        return timer

    def run(self, seconds: float) -> None:
        until = self.time + seconds
        while self._timers and self._timers[0][0] <= until:
            self.time, _, timer, callback = heapq.heappop(self._timers)
            if not timer.cancelled:
                callback()
        self.time = until

    # Links

    def link(self, a: str, b: str) -> None:
        """Both dial until it is done; each lane when it is."""
        self.links.add((a, b))
        self.core(a).add_neighbour(b)
        self.core(b).add_neighbour(a)
        key = frozenset((a, b))
        self._incarnation[key] += 1
        number = self._incarnation[key]
        for lane in range(LANES):
            self.later(self.random.random() * self._delay, partial(self._connect, a, b, lane, number))

    def _connect(self, a: str, b: str, lane: int, number: int) -> None:
        if self._incarnation[frozenset((a, b))] != number:
            return
        tables = self.core(a).neighbour_table, self.core(b).neighbour_table
        if b not in tables[0] or a not in tables[1]:
            return
        ends = tables[0][b], tables[1][a]
        if any(end.connected[lane] for end in ends):
            self.later(0.05, lambda: self._connect(a, b, lane, number))
            return
        resumes = [end.lanes[lane].resume() for end in ends]
        self._wires[a, b, lane] = self._wires[b, a, lane] = self.time
        self._connections[a, b, lane] += 1
        self._connections[b, a, lane] += 1
        tables[0].connected(b, lane, resumes[1])
        tables[1].connected(a, lane, resumes[0])
        self.nodes[a].lane_ready(b, lane)
        self.nodes[b].lane_ready(a, lane)

    def cut(self, a: str, b: str) -> None:
        """What is on the way is gone; each end notices later, lane by lane."""
        self.links.discard((a, b))
        self._incarnation[frozenset((a, b))] += 1
        for one, other in ((a, b), (b, a)):
            for lane in range(LANES):
                self._wires.pop((one, other, lane), None)
                wait, number = self.random.random() * 3 * self._delay, self._connections[one, other, lane]
                self.later(wait, partial(self._lose, one, other, lane, number))

    def _lose(self, name: str, other: str, lane: int, number: int) -> None:
        if self._connections[name, other, lane] == number:
            self.core(name).neighbour_table.lost(other, lane)

    def remove(self, a: str, b: str) -> None:
        """As an operator does it at a; b hears of it."""
        self.links.discard((a, b))
        self._incarnation[frozenset((a, b))] += 1
        for one, other in ((a, b), (b, a)):
            for lane in range(LANES):
                self._wires.pop((one, other, lane), None)
        self.core(a).remove_neighbour(b)
        self.later(self.random.random() * self._delay, lambda: self._left(b, a))

    def _left(self, name: str, other: str) -> None:
        if other in self.core(name).neighbour_table and not self._linked(name, other):
            self.core(name).remove_neighbour(other)

    def _linked(self, a: str, b: str) -> bool:
        return (a, b) in self.links or (b, a) in self.links

    # Bytes

    def send(self, source: str, target: str, lane: int, data: bytes) -> None:
        key, number = (source, target, lane), self._incarnation[frozenset((source, target))]
        if not data or key not in self._wires:
            return
        arrival = max(self._wires[key], self.time + self._delay * self.random.random())
        self._wires[key] = arrival

        def deliver() -> None:
            if number == self._incarnation[frozenset((source, target))] and key in self._wires:
                self._deliver(source, target, lane, data)

        self.later(arrival - self.time, deliver)

    def _deliver(self, source: str, target: str, lane: int, data: bytes) -> None:
        core = self.core(target)
        for frame in split(data):
            opened = open_publish(frame) if frame[0] >> 4 == 3 else None
            if opened is None:
                self.control_packets += 1
                core.control_arrived(source, codec.decode(frame, 5), lane)
            elif opened[0] == BATCH_TOPIC:
                first, runs = decode_batch(opened[1], self.time)
                self.messages[source, target] += sum(run.count for run in runs)
                core.arrivals.batch_arrived(source, lane, first, runs)
            else:
                core.neighbour_table[source].lanes[lane].received_ack(decode_ack(opened[1]))
                core.wiring.acknowledged()
                self.nodes[target].lane_ready(source, lane)
