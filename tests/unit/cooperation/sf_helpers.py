"""What the tests of subscription flooding share: small networks, and packets as words."""

from __future__ import annotations

from brokerweave.cooperation.sf import LOCAL, SubscriptionFlooding
from brokerweave.mqtt.packets import Packet, Subscribe, Unsubscribe
from brokerweave.mqtt.properties import Properties, Property, user_properties
from tests.unit.cooperation.network import Network


def strategy(network: Network, name: str) -> SubscriptionFlooding:
    node = network.nodes[name]
    assert isinstance(node, SubscriptionFlooding)
    return node


def two_nodes() -> tuple[Network, SubscriptionFlooding, SubscriptionFlooding]:
    network = Network(SubscriptionFlooding, "ab")
    network.add("a", "b")
    network.settle()
    return network, strategy(network, "a"), strategy(network, "b")


def sync(part: str) -> Properties:
    return ((Property.USER_PROPERTY, ("sync", part)),)


def words(packet: Packet) -> str:
    """A packet as one line: `+a/#:1 +b:0`, `-a/#`, with `whole ` etc. before a sync."""
    assert isinstance(packet, Subscribe | Unsubscribe)
    part = user_properties(packet.properties).get("sync")
    if isinstance(packet, Subscribe):
        text = " ".join(f"+{s.topic_filter}:{s.qos}" for s in packet.subscriptions)
    else:
        text = " ".join(f"-{f}" for f in packet.topic_filters)
    return f"{part} {text}" if part else text


def sent(network: Network) -> list[tuple[str, str, str]]:
    return [(a, b, words(packet)) for a, b, packet in network.settle()]


def assert_nothing_is_left(network: Network) -> None:
    for name, context in network.contexts.items():
        node = strategy(network, name)
        for neighbour in context.neighbours():
            assert node.interest_of(neighbour) == [], f"{name} holds interest of {neighbour}"
            assert node.asked_of(neighbour) == [], f"{name} still asks {neighbour}"
        assert node.interest_of(LOCAL) == [], f"{name} holds interest of clients"
