"""The example that links nodes on demand, in cores that are members of one cluster."""

from __future__ import annotations

import pytest
from examples.strategy_rendezvous import Rendezvous

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from tests.unit.node.demand import Cluster, member
from tests.unit.node.network import Client

NAMES = "abcdef"


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(NAMES, strategy=Rendezvous, idle_close=8.0, barrier_timeout=5.0)
    cluster.settle()
    return cluster


def strategy(cluster: Cluster, name: str) -> Rendezvous:
    found = cluster.nodes[name].core.strategy
    assert isinstance(found, Rendezvous)
    return found


def home(cluster: Cluster, topic: str) -> str:
    (only,) = strategy(cluster, "a").homes(topic)
    return only


def others(cluster: Cluster, topic: str) -> list[str]:
    return [name for name in NAMES if name != home(cluster, topic)]


def test_all_nodes_know_the_same_home_and_homes_are_spread(cluster: Cluster) -> None:
    topics = [f"t{number}" for number in range(100)]
    for topic in topics:
        assert len({strategy(cluster, name).homes(topic) for name in NAMES}) == 1
    assert {home(cluster, topic) for topic in topics} == set(NAMES)


def test_a_publication_takes_the_way_over_its_home_and_no_other_link_opens(cluster: Cluster) -> None:
    publisher, subscriber, *rest = others(cluster, "t/1")
    client = Client(cluster, subscriber, "s")
    client.subscribe("t/+", 1)
    cluster.settle()
    assert client.got() == ["SubAck"]
    Client(cluster, publisher, "p").publish("t/1", 1)
    cluster.settle()
    assert cluster.nodes[subscriber].injected() == ["t/1"]
    there = home(cluster, "t/1")
    assert cluster.links == {frozenset((publisher, there)), frozenset((subscriber, there))}
    assert all(cluster.nodes[name].injected() == [] for name in rest)


def test_a_filter_that_leaves_the_first_level_open_is_registered_everywhere(cluster: Cluster) -> None:
    Client(cluster, "a", "s").subscribe("#", 1)
    cluster.settle()
    publisher = Client(cluster, "b", "p")
    for number in range(10):
        publisher.publish(f"t{number}", 1)
    cluster.advance(0.1)
    cluster.settle()
    assert sorted(cluster.nodes["a"].injected()) == [f"t{number}" for number in range(10)]


def test_who_wants_nothing_any_more_gets_nothing(cluster: Cluster) -> None:
    publisher, subscriber, *_ = others(cluster, "t")
    client = Client(cluster, subscriber, "s")
    client.subscribe("t", 1)
    cluster.settle()
    client.end()
    cluster.settle()
    Client(cluster, publisher, "p").publish("t", 1)
    cluster.settle()
    assert cluster.nodes[subscriber].injected() == []


def test_links_close_when_they_are_idle_and_what_was_registered_stays(cluster: Cluster) -> None:
    publisher, subscriber, *_ = others(cluster, "t")
    Client(cluster, subscriber, "s").subscribe("t", 1)
    cluster.settle()
    for _ in range(20):
        cluster.advance(1.0)
    assert cluster.links == set()
    Client(cluster, publisher, "p").publish("t", 1)
    cluster.settle()
    assert cluster.nodes[subscriber].injected() == ["t"]


def test_another_home_is_told_when_one_is_gone(cluster: Cluster) -> None:
    publisher, subscriber, *_ = others(cluster, "t")
    gone = home(cluster, "t")
    Client(cluster, subscriber, "s").subscribe("t", 1)
    cluster.settle()
    cluster.away.add(gone)
    for name in NAMES:
        if name != gone:
            cluster.members[name].member_died(member(gone))
    cluster.settle()
    (there,) = strategy(cluster, publisher).homes("t")
    assert there not in (gone, publisher, subscriber)
    assert cluster.links == {frozenset((subscriber, there))}
    Client(cluster, publisher, "p").publish("t", 1)
    cluster.settle()
    assert cluster.nodes[subscriber].injected() == ["t"]


def test_who_registers_gets_the_retained_messages_of_its_filter(cluster: Cluster) -> None:
    publisher, subscriber, *_ = others(cluster, "t")
    client = Client(cluster, publisher, "p")
    for topic in ("t/1", "t/2", "t/3"):
        client.pair.from_client(codec.encode(Publish(topic, b"kept", 1, True, packet_id=1), 4))
    cluster.settle()
    assert cluster.nodes[subscriber].injected() == []
    Client(cluster, subscriber, "s").subscribe("t/+", 1)
    cluster.settle()
    assert sorted(cluster.nodes[subscriber].injected()) == ["t/1", "t/2", "t/3"]
