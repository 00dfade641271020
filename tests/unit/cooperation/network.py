"""A network of strategies in memory: FIFO queues between nodes, delivered in a seeded random order.

Owns the fake Context. A link is up or down; going down loses what is in its queues, as a real one may.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random

from brokerweave.mqtt.packets import Packet
from brokerweave.plugin import Cut, OptionValue, Strategy, Timer, TrafficUsage


class FakeContext:
    """One node's view of the network."""

    def __init__(self, network: Network, node_id: str) -> None:
        self._network = network
        self.node_id = node_id
        self.random = network.random
        self.options: dict[str, OptionValue] = {}
        self.known: list[str] = []
        self.route_changes = 0

    def now(self) -> float:
        return 0.0

    steady = now

    def neighbours(self) -> tuple[str, ...]:
        return tuple(self.known)

    def members(self) -> frozenset[str]:
        return frozenset((self.node_id,))

    def searching(self) -> bool:
        return False

    def announce(self, data: bytes) -> None: ...

    def send(self, neighbour: str, packet: Packet, wait: bool = False) -> None:
        queue = self._network.queues.get((self.node_id, neighbour))
        if queue is not None:
            queue.append(packet)
            self._network.log.append((self.node_id, neighbour, packet))

    def keep(self, neighbour: str, changes: Mapping[str, int | None]) -> None: ...

    def cut(self, neighbour: str) -> Cut:
        return Cut(1, (0, 0))

    def send_retained(
        self, neighbour: str, topic_filter: str, done: Callable[[], None] | None = None
    ) -> None: ...

    def retained_topics(self) -> tuple[str, ...]:
        return ()

    def when_injected(self, callback: Callable[[], None]) -> None: ...

    def round_trips(self) -> dict[str, float]:
        return {}

    def usage(self, topic: str) -> TrafficUsage:
        return TrafficUsage()

    def routes_changed(self, topics: Iterable[str] | None = None) -> None:
        self.route_changes += 1

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        raise NotImplementedError("no strategy under test uses timers")


class Network:
    context: type[FakeContext] = FakeContext

    def __init__(self, kind: type[Strategy], names: Iterable[str], random: Random | None = None) -> None:
        self.random = random or Random(1)
        self.queues: dict[tuple[str, str], deque[Packet]] = {}
        self.log: list[tuple[str, str, Packet]] = []
        self.contexts = {name: self.context(self, name) for name in names}
        self.nodes = {name: kind(context) for name, context in self.contexts.items()}

    def add(self, a: str, b: str) -> None:
        """Make two nodes neighbours, their link up."""
        self.contexts[a].known.append(b)
        self.contexts[b].known.append(a)
        self.up(a, b)

    def up(self, a: str, b: str) -> None:
        self.queues[a, b], self.queues[b, a] = deque(), deque()
        self.nodes[a].neighbour_up(b)
        self.nodes[b].neighbour_up(a)

    def down(self, a: str, b: str) -> None:
        """The link fails; packets under way are lost."""
        del self.queues[a, b], self.queues[b, a]
        self.nodes[a].neighbour_down(b)
        self.nodes[b].neighbour_down(a)

    def remove(self, a: str, b: str) -> None:
        """Two nodes, linked or not, are no neighbours any longer."""
        for here, there in ((a, b), (b, a)):
            self.queues.pop((here, there), None)
            self.contexts[here].known.remove(there)
            self.nodes[here].neighbour_removed(there)

    def step(self) -> bool:
        """Deliver one packet of any queue. False if nothing is under way."""
        waiting = [ends for ends, queue in self.queues.items() if queue]
        if not waiting:
            return False
        sender, receiver = self.random.choice(waiting)
        self.nodes[receiver].packet_arrived(sender, self.queues[sender, receiver].popleft())
        return True

    def settle(self) -> list[tuple[str, str, Packet]]:
        """Deliver all; what was sent since the last call is returned."""
        for _ in range(100_000):
            if not self.step():
                sent, self.log = self.log, []
                return sent
        raise AssertionError("the strategies never come to rest")

    def publish(self, node: str, topic: str, qos: int = 2) -> tuple[list[tuple[str, str]], dict[str, int]]:
        """Follow the routes: the links crossed, and the nodes that hand it to their broker, with the QoS."""
        crossed: list[tuple[str, str]] = []
        reached: dict[str, int] = {}
        under_way: deque[tuple[str, str | None, int]] = deque([(node, None, qos)])
        while under_way:
            here, came_from, best = under_way.popleft()
            route = self.nodes[here].route(topic, came_from)
            if route.local:
                assert here not in reached, f"{here} gets {topic} twice"
                reached[here] = best
            for hop in route.hops:
                assert hop.neighbour != came_from, f"{here} sends {topic} back to {came_from}"
                crossed.append((here, hop.neighbour))
                assert len(crossed) < len(self.nodes), f"{topic} goes round in circles: {crossed}"
                under_way.append((hop.neighbour, here, min(best, hop.qos)))
        return crossed, reached


def five_nodes(kind: type[Strategy]) -> Network:
    """ILDM Figs. 6 and 7: I2 in the middle of I1, I3 and I4; I5 behind I3. All links up and synced."""
    network = Network(kind, "12345")
    for a, b in ("12", "23", "24", "35"):
        network.add(a, b)
    network.settle()
    return network
