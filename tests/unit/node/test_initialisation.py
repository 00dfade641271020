"""The initialisation queue of a node: in order, bounded, refused in time, and its clients stay alive."""

from __future__ import annotations

from typing import ClassVar

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Disconnect, PingReq, Publish
from brokerweave.node.initialisation import LOOK_SECONDS
from brokerweave.plugin import Route, Strategy
from brokerweave.session.pair import Pair
from tests.unit.care.mesh_sites import Guest, mesh_of
from tests.unit.node.network import Client, Network

PATIENCE = 5.0


class Warming(Strategy):
    """Takes no publications before it is told to."""

    name: ClassVar[str] = "warming"
    warm = False

    def route(self, topic: str, came_from: str | None) -> Route:
        return Route()

    def takes_publications(self) -> bool:
        return self.warm


class Failing(Warming):
    def takes_publications(self) -> bool:
        raise ValueError("no")


class Site:
    def __init__(self, strategy: type[Strategy] = Warming, **settings: object) -> None:
        self.network = Network()
        self.network.add("a", strategy=strategy, **{"cluster_timeout": PATIENCE, **settings})
        self.node = self.network.nodes["a"]
        self.core = self.node.core
        self.to_broker: list[tuple[Pair, bytes]] = []
        self.node.write_broker = lambda pair, data: self.to_broker.append((pair, data))  # type: ignore[method-assign]

    def publish(self, client: Client, payload: bytes = b"", qos: int = 1) -> bytes:
        packet = Publish("t", payload, qos, packet_id=7 if qos else 0)
        out = client.pair.from_client(codec.encode(packet, 4))
        self.core.check()
        return out

    def warm(self) -> None:
        assert isinstance(self.core.strategy, Warming)
        self.core.strategy.warm = True
        self.network.advance(LOOK_SECONDS)


@pytest.mark.parametrize("qos", [1, 2])
def test_what_waits_goes_on_client_by_client_as_soon_as_the_strategy_takes_it(qos: int) -> None:
    site = Site()
    first, second = Client(site.network, "a", "first"), Client(site.network, "a", "second")
    assert site.publish(first, b"1", qos) + site.publish(second, b"2", qos) + site.publish(first, b"3") == b""
    assert len(site.core.initialisation) == site.core.counters["held_at_start"] == 2
    site.network.advance(LOOK_SECONDS)
    assert site.to_broker == []
    site.warm()
    assert [pair for pair, _ in site.to_broker] == [first.pair, second.pair]
    assert [data[-1:] for _, data in site.to_broker] == [b"3", b"2"]
    assert len(site.core.initialisation) == site.core.initialisation.bytes == 0
    assert site.publish(first, b"4") != b""
    site.core.check()


def test_qos_0_does_not_wait() -> None:
    site = Site()
    assert site.publish(Client(site.network, "a", "c"), b"", 0) != b""
    assert site.core.counters["held_at_start"] == 0


def test_what_comes_while_another_waits_waits_behind_it() -> None:
    site = Site()
    first, second = Client(site.network, "a", "first"), Client(site.network, "a", "second")
    site.publish(first)
    site.core.strategy.warm = True  # type: ignore[attr-defined]
    assert site.publish(second) == b""
    site.network.advance(LOOK_SECONDS)
    assert [pair for pair, _ in site.to_broker] == [first.pair, second.pair]


@pytest.mark.parametrize("version", [4, 5])
def test_who_waits_longer_than_the_patience_is_refused_and_not_acknowledged(version: int) -> None:
    site = Site()
    pair = site.core.new_pair()
    pair.from_client(codec.encode(Connect("c", version), version))
    pair.from_broker(codec.encode(ConnAck(), version))
    pair.from_client(codec.encode(Publish("t", b"", 1, packet_id=1), version))
    site.network.advance(PATIENCE - 0.1)
    assert site.node.hung_up == []
    site.network.advance(0.2)
    assert site.node.hung_up == [pair]
    assert site.core.counters["refused_at_start"] == 1
    refusal = codec.encode(Disconnect(0x89), 5) if version == 5 else b""
    assert site.node.written.get(pair, b"") == refusal
    assert site.to_broker == []
    site.core.check()


def test_beyond_the_bound_of_the_node_clients_are_refused_at_once() -> None:
    site = Site(waiting=1000)
    first, second = Client(site.network, "a", "first"), Client(site.network, "a", "second")
    site.publish(first, bytes(900))
    assert second.pair.from_client(codec.encode(Publish("t", bytes(200), 1, packet_id=1), 4)) == b""
    assert getattr(second.pair.error, "reason_code", 0) == 0x97
    assert site.core.counters["refused_at_start"] == 1
    second.end()
    site.core.check()
    site.warm()
    assert [pair for pair, _ in site.to_broker] == [first.pair]


def test_a_client_that_is_gone_leaves_nothing() -> None:
    site = Site()
    client = Client(site.network, "a", "c")
    site.publish(client, bytes(100))
    client.end()
    assert len(site.core.initialisation) == site.core.initialisation.bytes == 0
    site.warm()
    assert site.to_broker == []


def test_a_client_that_the_broker_has_yet_to_accept_is_not_refused_before() -> None:
    site = Site()
    pair = site.core.new_pair()
    pair.from_client(codec.encode(Connect("c"), 4) + codec.encode(Publish("t", b"", 1, packet_id=1), 4))
    site.network.advance(PATIENCE + 1)
    assert site.node.hung_up == []
    pair.from_broker(codec.encode(ConnAck(), 4))
    site.network.advance(LOOK_SECONDS)
    assert site.node.hung_up == [pair]


def test_the_broker_hears_of_a_client_with_a_keep_alive_while_it_waits() -> None:
    mesh = mesh_of("dp", linked=False)
    mesh.nodes["d"].core.add_neighbour("p")
    heard: list[bytes] = []
    mesh.nodes["d"].write_broker = lambda pair, data: heard.append(data)  # type: ignore[method-assign]
    client = Guest(mesh, "d", "c", keep_alive=2)
    client.publish("t", b"")
    assert client.to_broker == b""
    for _ in range(40):
        mesh.advance(LOOK_SECONDS)
    assert heard == [codec.encode(PingReq(), 4)] * 2


def test_a_strategy_that_fails_holds_nobody() -> None:
    site = Site(Failing)
    assert site.publish(Client(site.network, "a", "c")) != b""
    assert site.core.counters["strategy_failures"] == 1
