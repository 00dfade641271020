"""Control packets that wait for a link, and strategies that hear of every link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest
from examples.strategy_hub import Hub

from brokerweave.mqtt.packets import Packet, Publish
from brokerweave.node import waiting_controls
from brokerweave.plugin import Route, Strategy
from tests.unit.node.network import Client, Network


class Chatty(Strategy):
    """Says hello on each link, and tells `b` of every filter, whether there is a link or not."""

    name: ClassVar[str] = "chatty"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.heard: list[str] = []

    def route(self, topic: str, came_from: str | None) -> Route:
        return Route()

    def subscribed(self, filters: Mapping[str, int]) -> None:
        for topic_filter in filters:
            self.context.send("b", Publish(topic_filter), wait=True)

    def neighbour_up(self, neighbour: str) -> None:
        self.context.send(neighbour, Publish("hello"))

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        assert isinstance(packet, Publish)
        self.heard.append(packet.topic)


class Quiet(Chatty):
    marks: ClassVar[bool] = False


def heard(network: Network, name: str) -> list[str]:
    strategy = network.nodes[name].core.strategy
    assert isinstance(strategy, Chatty)
    return strategy.heard


def pair_of(strategy: type[Strategy], **settings: object) -> Network:
    network = Network()
    network.add("a", "b", strategy=strategy, **settings)
    network.link("a", "b")
    network.settle()
    return network


def elect(network: Network) -> None:
    for _ in range(5):
        network.advance(0.1)


@pytest.mark.parametrize("cycles", [False, True])
def test_packets_that_waited_follow_what_the_strategy_says_of_its_own_in_their_order(cycles: bool) -> None:
    network = pair_of(Chatty, cycles=cycles)
    elect(network)
    network.cut("a", "b")
    elect(network)
    client = Client(network, "a", "c")
    client.subscribe("one")
    client.subscribe("two")
    network.settle()
    assert heard(network, "b") == ["hello"]
    network.link("a", "b")
    elect(network)
    assert heard(network, "b") == ["hello", "hello", "one", "two"]


def test_one_that_need_not_wait_goes_at_once() -> None:
    network = pair_of(Chatty)
    Client(network, "a", "c").subscribe("one")
    network.settle()
    assert heard(network, "b") == ["hello", "one"]


def test_beyond_the_bound_packets_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_controls, "MOST_BYTES", 2 * waiting_controls.PACKET_BYTES + 50)
    network = pair_of(Chatty)
    network.cut("a", "b")
    client = Client(network, "a", "c")
    for name in ("one", "two", "three"):
        client.subscribe(name)
    network.link("a", "b")
    network.settle()
    assert heard(network, "b")[-2:] == ["one", "two"]
    assert network.nodes["a"].core.counters.drops() == {"controls": 1}


def test_what_waits_for_a_neighbour_that_is_removed_or_not_known_is_dropped_and_counted() -> None:
    network = pair_of(Chatty)
    network.cut("a", "b")
    client = Client(network, "a", "c")
    client.subscribe("one")
    network.nodes["a"].core.remove_neighbour("b")
    assert network.nodes["a"].core.counters.drops() == {"controls": 1}
    client.subscribe("two")
    assert network.nodes["a"].core.counters.drops() == {"controls": 2}


def test_a_suback_waits_for_what_was_told_to_neighbours_but_not_for_a_link_that_is_down() -> None:
    network = pair_of(Chatty, barrier_timeout=5.0)
    client = Client(network, "a", "c")
    client.subscribe("one")
    assert client.got() == []
    network.settle()
    assert client.got() == ["SubAck"]
    network.cut("a", "b")
    client.subscribe("two")
    assert client.got() == ["SubAck", "SubAck"]


def test_a_suback_waits_for_nobody_where_the_strategy_wants_no_marks() -> None:
    network = pair_of(Quiet, barrier_timeout=5.0)
    client = Client(network, "a", "c")
    client.subscribe("one")
    assert client.got() == ["SubAck"]


def test_a_strategy_without_a_tree_hears_of_links_that_close_a_cycle() -> None:
    """With a tree one of the leaves would have no link to the hub, and get nothing."""
    network = Network()
    names = ("hub", "x", "y")
    network.add(*names, strategy=Hub, cycles=True)
    for a, b in (("x", "y"), ("hub", "x"), ("hub", "y")):
        network.link(a, b)
    elect(network)
    Client(network, "x", "c").publish("t")
    network.settle()
    assert {name: network.nodes[name].injected() for name in names} == {"hub": ["t"], "x": [], "y": ["t"]}
