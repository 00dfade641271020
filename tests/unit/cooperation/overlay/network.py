"""Nodes of the overlay in memory: FIFO queues between any two, delivered in a seeded random order.

Owns the fake Context and what membership says. A node may die and return, with what it kept or without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from brokerweave.mqtt.packets import Packet
from brokerweave.plugin import Cut, OptionValue, Route, Strategy, TrafficUsage


class FakeTimer:
    def __init__(self, at: float, number: int, callback: Callable[[], None]) -> None:
        self.order = (at, number)
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class OverlayContext:
    def __init__(self, network: OverlayNetwork, node_id: str, options: Mapping[str, OptionValue]) -> None:
        self.network = network
        self.node_id = node_id
        self.random = Random(node_id)
        self.options = options
        self.dead = False
        self.kept: dict[str, dict[str, int]] = {}
        self.announced = b""
        self.asked_again: list[tuple[str, ...] | None] = []
        self.retained: list[tuple[str, str]] = []

    def now(self) -> float:
        return self.network.time

    steady = now

    def neighbours(self) -> tuple[str, ...]:
        return ()

    def members(self) -> frozenset[str]:
        return self.network.views.get(self.node_id, frozenset((self.node_id,)))

    def searching(self) -> bool:
        return False

    def announce(self, data: bytes) -> None:
        self.announced = data

    def send(self, neighbour: str, packet: Packet, wait: bool = False) -> None:
        self.network.queues.setdefault((self.node_id, neighbour), deque()).append(packet)
        self.network.sent += 1

    def keep(self, neighbour: str, changes: Mapping[str, int | None]) -> None:
        kept = self.kept.setdefault(neighbour, {})
        for name, value in changes.items():
            if value is None:
                kept.pop(name, None)
            else:
                kept[name] = value

    def cut(self, neighbour: str) -> Cut:
        return Cut(1, ())

    def send_retained(
        self, neighbour: str, topic_filter: str, done: Callable[[], None] | None = None
    ) -> None:
        self.retained.append((neighbour, topic_filter))
        if done is not None:
            self.call_later(0.0, done)

    def retained_topics(self) -> Iterable[str]:
        return ()

    def round_trips(self) -> dict[str, float]:
        return {}

    def usage(self, topic: str) -> TrafficUsage:
        return TrafficUsage()

    def when_injected(self, callback: Callable[[], None]) -> None:
        self.call_later(0.0, callback)

    def routes_changed(self, topics: Iterable[str] | None = None) -> None:
        self.asked_again.append(None if topics is None else tuple(topics))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> FakeTimer:
        return self.network.later(seconds, lambda: None if self.dead else callback())


class OverlayNetwork:
    def __init__(self, kind: type[Strategy], names: Iterable[str], seed: int = 1, **options: Any) -> None:
        self.kind = kind
        self.options = options
        self.random = Random(seed)
        self.time = 1000.0
        self.sent = 0
        self.queues: dict[tuple[str, str], deque[Packet]] = {}
        self.timers: list[FakeTimer] = []
        self.views: dict[str, frozenset[str]] = {}
        self.contexts: dict[str, OverlayContext] = {}
        self.nodes: dict[str, Any] = {}
        self._made = 0
        for name in names:
            self._start(name, {})
        self.see_all()

    def _start(self, name: str, kept: Mapping[str, dict[str, int]]) -> None:
        self.time += 0.001
        context = OverlayContext(self, name, self.options)
        self.contexts[name] = context
        self.nodes[name] = self.kind(context)
        for neighbour, filters in kept.items():
            self.nodes[name].neighbour_recalled(neighbour, dict(filters))

    def later(self, seconds: float, callback: Callable[[], None]) -> FakeTimer:
        self._made += 1
        timer = FakeTimer(self.time + seconds, self._made, callback)
        self.timers.append(timer)
        return timer

    # Membership

    def see_all(self) -> None:
        for name in list(self.nodes):
            self.see(name, self.nodes)

    def see(self, name: str, members: Iterable[str]) -> None:
        """What membership tells a node."""
        view = frozenset(members) | {name}
        self.views[name] = view
        self.nodes[name].members_changed(view)
        for other in sorted(view - {name}):
            if other in self.contexts:
                self.nodes[name].member_announced(other, self.contexts[other].announced)

    def kill(self, name: str) -> None:
        """Others do not know yet."""
        self.contexts[name].dead = True
        self.nodes.pop(name)
        for ends in [ends for ends in self.queues if name in ends]:
            del self.queues[ends]

    def restart(self, name: str, disk: bool = True) -> None:
        kept = self.contexts[name].kept if disk else {}
        self._start(name, kept)
        for other in self.nodes:
            if other != name:
                self.nodes[other].neighbour_down(name)  # and what waits goes over the next link

    # Time

    def step(self) -> bool:
        waiting = [ends for ends, queue in self.queues.items() if queue]
        due = [timer for timer in self.timers if timer.order[0] <= self.time]
        if not waiting and not due:
            return False
        choice = self.random.randrange(len(waiting) + len(due))
        if choice < len(waiting):
            sender, receiver = waiting[choice]
            packet = self.queues[sender, receiver].popleft()
            if receiver in self.nodes:
                self.nodes[receiver].packet_arrived(sender, packet)
        else:
            timer = min(due, key=lambda each: each.order)
            self.timers.remove(timer)
            if timer.callback is not None:
                timer.callback()
        return True

    def settle(self, seconds: float = 0.0) -> int:
        """Deliver all; the number of packets that were sent."""
        self.sent = 0
        end = self.time + seconds
        while True:
            for _ in range(1_000_000):
                if not self.step():
                    break
            else:
                raise AssertionError("the strategies never come to rest")
            coming = [timer.order[0] for timer in self.timers if timer.order[0] <= end]
            if not coming:
                self.time = end
                return self.sent
            self.time = max(self.time, min(coming))

    def publish(self, node: str, topic: str) -> dict[str, int] | None:
        """Follow the routes: how often each node gets it; None if the way is not known yet."""
        reached: dict[str, int] = {}
        route: Route = self.nodes[node].route(topic, None)
        if not route.known:
            return None
        under_way = [(node, hop) for hop in route.hops]
        while under_way:
            sender, hop = under_way.pop()
            here = hop.neighbour
            if here not in self.nodes:
                reached[here] = reached.get(here, 0) + 1
                continue
            strategy = self.nodes[here]
            way = strategy.follow(topic, sender, hop.plan) if hop.plan else strategy.route(topic, sender)
            if not way.known:
                return None
            reached[here] = reached.get(here, 0) + (way.local and here != node)
            under_way += [(here, each) for each in way.hops]
        return {name: count for name, count in reached.items() if count}

    def ask(self, node: str, topic: str) -> dict[str, int] | None:
        """As `publish`, asked again as the node does until the way is known."""
        for _ in range(4):
            found = self.publish(node, topic)
            if found is not None:
                break
            self.settle(3.0)
        return found
