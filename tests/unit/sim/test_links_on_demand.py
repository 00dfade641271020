"""Links on demand in virtual time, with connections, handshakes and disks as in a real node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from examples.strategy_rendezvous import Rendezvous

from brokerweave.mqtt.packets import Publish
from brokerweave.sim.broker import ModelBroker
from brokerweave.sim.client import ModelClient
from brokerweave.sim.node import NodeOptions, SimNode
from brokerweave.sim.pipes import StreamNetwork
from brokerweave.sim.world import VirtualHost, World

NAMES = ("a", "b", "c", "d", "e")
IDLE = 1.0
TOPICS = [f"t{number}" for number in range(10)]


class Observer:
    """Notes what was acknowledged and delivered, and protocol errors, of all that can be seen."""

    def __init__(self) -> None:
        self.acknowledged_payloads: set[bytes] = set()
        self.got: dict[str, Counter[bytes]] = {}
        self.errors: list[str] = []
        self.grants = 0

    def acknowledged(self, payload: bytes) -> None:
        self.acknowledged_payloads.add(payload)

    def delivered(self, client: ModelClient, message: Publish) -> None:
        self.got.setdefault(client.name, Counter())[message.payload] += 1

    def asking(self, client: ModelClient, filters: Iterable[str]) -> None: ...

    def granted(self, client: ModelClient, topic_filter: str, qos: int) -> None:
        self.grants += 1

    def protocol_error(self, node: SimNode, error: str) -> None:
        self.errors.append(error)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: None


class Sites:
    def __init__(self, seed: int, max_links: int) -> None:
        self.world = World(f"on demand {seed}")
        self.random = self.world.random("test")
        self.network = StreamNetwork(self.world, lambda one, other: 0.01)
        self.seen = Observer()
        self.most_links = 0
        options = NodeOptions(
            Rendezvous, members=NAMES, idle_close=IDLE, max_links=max_links, barrier_timeout=5.0
        )
        self.nodes = {name: self._site(name, options) for name in NAMES}
        self.clients = {name: self._client(name) for name in NAMES}
        for node in self.nodes.values():
            node.start()
        for name, client in self.clients.items():
            client.subscribe(TOPICS[NAMES.index(name)], 1)
            client.subscribe(TOPICS[NAMES.index(name) + 5], 1)
            client.arrive()
        self._count_links()
        while self.seen.grants < len(TOPICS):
            assert self.world.elapsed < 60.0, "subscriptions are not granted"
            self.run(0.5)

    def _site(self, name: str, options: NodeOptions) -> SimNode:
        host = VirtualHost(self.world, f"{name}/broker")
        host.start()
        nothing = self.seen.nothing
        broker = ModelBroker(host, nothing, nothing, nothing)
        self.network.listen(f"{name}/broker", host, broker.accept)
        node = SimNode(self.world, self.network, self.seen, name, options)
        node.read_broker = broker.retained_payloads
        return node

    def _client(self, name: str) -> ModelClient:
        return ModelClient(self.world, self.network, self.seen, f"client-{name}", name, 4, True, None)

    def run(self, seconds: float) -> None:
        self.world.run(self.world.elapsed + seconds)

    def up(self) -> set[tuple[str, str]]:
        pairs = {(n, other.id) for n, node in self.nodes.items() for other in node.core.neighbour_table.all()}
        return {(n, other) for n, other in pairs if self.nodes[n].core.is_up(other)}

    def _count_links(self) -> None:
        links = Counter(name for name, _ in self.up())
        self.most_links = max(self.most_links, *links.values(), 0) if links else self.most_links
        self.world.later(0.02, self._count_links)

    def publish_for(self, seconds: float) -> None:
        """Clients publish now and then, so that links open, are used, and close."""
        until = self.world.elapsed + seconds
        while self.world.elapsed < until:
            client = self.clients[self.random.choice(NAMES)]
            for _ in range(self.random.randrange(1, 6)):
                client.publish(self.random.choice(TOPICS), 1, False)
            self.run(self.random.random() * 2 * IDLE)

    def missed(self) -> list[bytes]:
        got = sum(self.seen.got.values(), Counter[bytes]())
        return sorted(self.seen.acknowledged_payloads - got.keys())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("max_links", [2, 256])
def test_every_message_arrives_once_and_all_links_close_at_the_end(seed: int, max_links: int) -> None:
    sites = Sites(seed, max_links)
    sites.publish_for(15.0)
    sites.run(15.0)
    assert len(sites.seen.acknowledged_payloads) > 20
    assert sites.missed() == []
    assert all(count == 1 for got in sites.seen.got.values() for count in got.values())
    assert sites.up() == set()
    assert sites.most_links <= max_links
    assert sites.seen.errors == []
    assert all(node.core.counters.drops() == {} for node in sites.nodes.values())


@pytest.mark.parametrize("seed", range(3))
def test_no_message_is_lost_where_nodes_are_killed_and_wires_fail(seed: int) -> None:
    sites = Sites(seed, 256)
    for _ in range(4):
        victim = sites.nodes[sites.random.choice(NAMES)]
        victim.kill()
        sites.publish_for(1.0)
        victim.start()
        sites.publish_for(3.0)
        for socket in list(victim.links.sockets):
            socket.end.abort()
        sites.publish_for(1.0)
    sites.run(20.0)
    assert sites.missed() == []
    assert sites.up() == set()
    assert sites.seen.errors == []
