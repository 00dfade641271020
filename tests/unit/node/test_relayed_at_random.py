"""Relays at random: plans change, links stick and fail, relays die. Who lives gets all, once, in order."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import pytest

from tests.unit.node.demand import Cluster, member
from tests.unit.node.network import Client
from tests.unit.node.routing_strategies import Relays

NODES = "abcdef"
STEPS = 60
LONG = 1e6


class World:
    """Clients publish at a; all others want everything."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(NODES, strategy=Relays, drain_timeout=LONG, idle_close=LONG, forget_after=1e9)
        self.live = sorted(set(NODES) - {"a"})
        self.sent: dict[str, list[bytes]] = {"t": [], "u": []}
        self.got: dict[tuple[str, str], list[bytes]] = {(n, t): [] for n in self.live for t in self.sent}
        self.client = Client(self.cluster, "a", "publisher")
        self.change("t", "u")

    def change(self, *topics: str) -> None:
        strategy = self.cluster.nodes["a"].core.strategy
        assert isinstance(strategy, Relays)
        for topic in topics:
            strategy.give(topic, self._ways(self.live))

    def _ways(self, nodes: Collection[str]) -> str:
        """To all: each directly, all behind one of them, or half of them behind each of two."""
        order = self.random.sample(sorted(nodes), len(nodes))
        size = self.random.choice((1, len(order), (len(order) + 1) // 2))
        parts = [order[at : at + size] for at in range(0, len(order), size)]
        return ";".join("/".join((part[0], ",".join(part[1:]))).rstrip("/") for part in parts)

    def publish(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            topic = self.random.choice(sorted(self.sent))
            payload = b"%d" % sum(map(len, self.sent.values()))
            self.client.publish(topic, self.random.choice((1, 2)), payload)
            self.sent[topic].append(payload)

    def disturb(self) -> None:
        match self.random.randrange(6):
            case 0:
                self.change(self.random.choice(sorted(self.sent)))
            case 1:
                first, second = self.random.sample(NODES, 2)
                self.cluster.stuck.add((first, second))
            case 2:
                self.cluster.stuck.clear()
            case 3 if self.cluster.wires:
                self.cluster.cut(*self.random.choice(sorted(self.cluster.wires)))
            case 4 if len(self.live) > 2 and self.random.random() < 0.5:
                self._die(self.random.choice(self.live))
            case _:
                self.cluster.advance(0.1)

    def _die(self, name: str) -> None:
        self.live.remove(name)
        self.cluster.away.add(name)
        for ends in [ends for ends in self.cluster.wires if ends[0] == name]:
            self.cluster.cut(*ends)
        if self.random.random() < 0.7:
            self.cluster.settle()
        for other, members in self.cluster.members.items():
            if other != name:
                members.member_died(member(name))
        self.change("t", "u")

    def look(self) -> None:
        for name in set(NODES) - {"a"}:
            for publish in self.cluster.nodes[name].injected_publishes():
                self.got[name, publish.topic].append(publish.payload)


@pytest.mark.parametrize("seed", range(20))
def test_who_lives_gets_everything_once_and_in_order(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.publish() if world.random.random() < 0.4 else world.disturb()
        if world.random.random() < 0.7:
            world.cluster.settle()
        world.look()
    world.cluster.stuck.clear()
    for _ in range(20):
        world.cluster.advance(0.5)
    world.look()
    for name in world.live:
        for topic, payloads in world.sent.items():
            assert world.got[name, topic] == payloads, f"{topic} at {name}"
    for name in ["a", *world.live]:
        core = world.cluster.nodes[name].core
        core.check()
        assert (len(core.relayed), core.waiting.runs, core.counters["drain_timeouts"]) == (0, 0, 0)
