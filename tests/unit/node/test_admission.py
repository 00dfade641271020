"""An access list between a client and the links of its node."""

from __future__ import annotations

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Publish, Will
from brokerweave.node.router import Router
from brokerweave.session.acl import parse
from tests.unit.node.network import Client, Network

LIST = "user ann\ntopic allowed/#\ntopic deny allowed/not/#\npattern own/%c\n"


@pytest.fixture(params=[None, 5.0], ids=["local", "cluster"])
def pair_of_sites(request: pytest.FixtureRequest) -> Network:
    """Site b wants everything that site a's access list lets go."""
    network = Network()
    network.add("a", "b", cluster_timeout=request.param)
    network.link("a", "b")
    network.nodes["a"].core.admission.replace(parse(LIST))
    Client(network, "b", "subscriber").subscribe("#", 2)
    network.settle()
    return network


def guarded_caches(network: Network) -> int:
    router: Router = network.nodes["a"].core.router
    return len(router._guarded)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_only_what_the_list_allows_reaches_other_sites(pair_of_sites: Network, qos: int) -> None:
    ann = Client(pair_of_sites, "a", "c1", username="ann")
    nameless = Client(pair_of_sites, "a", "c2")
    for client in (ann, nameless):
        for topic in ("allowed/1", "allowed/not/1", "own/c1", "own/c2", "elsewhere"):
            client.publish(topic, qos)
    pair_of_sites.settle()
    assert sorted(pair_of_sites.nodes["b"].injected()) == ["allowed/1", "own/c1", "own/c2"]
    assert pair_of_sites.nodes["a"].core.counters["denied_topics"] == 7


@pytest.mark.parametrize("topic", ["allowed/1", "allowed/not/1"])
def test_a_retained_publication_needs_leave_too(pair_of_sites: Network, topic: str) -> None:
    ann = Client(pair_of_sites, "a", "c", username="ann")
    ann.pair.from_client(codec.encode(Publish(topic, b"", retain=True), 4))
    pair_of_sites.settle()
    assert pair_of_sites.nodes["b"].injected() == ([topic] if topic == "allowed/1" else [])


@pytest.mark.parametrize("topic", ["allowed/1", "allowed/not/1"])
def test_a_will_needs_leave_too(pair_of_sites: Network, topic: str) -> None:
    Client(pair_of_sites, "a", "c", username="ann", will=Will(topic, b"gone", 1)).end()
    pair_of_sites.settle()
    assert pair_of_sites.nodes["b"].injected() == ([topic] if topic == "allowed/1" else [])


def test_what_comes_together_with_connect_is_judged_by_it(pair_of_sites: Network) -> None:
    pair = pair_of_sites.nodes["a"].core.new_pair()
    packets = (Connect("c", 4, username="ann"), Publish("elsewhere", b""), Publish("allowed/1", b""))
    pair.from_client(b"".join(codec.encode(packet, 4) for packet in packets))
    pair.from_broker(codec.encode(ConnAck(), 4))
    pair_of_sites.settle()
    assert pair_of_sites.nodes["b"].injected() == ["allowed/1"]


def test_another_list_counts_at_once_for_those_who_are_connected(pair_of_sites: Network) -> None:
    core = pair_of_sites.nodes["a"].core
    ann = Client(pair_of_sites, "a", "c", username="ann")
    for text in (LIST, "user ann\ntopic elsewhere", None):
        core.admission.replace(parse(text) if text else None)
        ann.publish("allowed/1")
        ann.publish("elsewhere")
    pair_of_sites.settle()
    wanted = ["allowed/1", "elsewhere", "allowed/1", "elsewhere"]
    assert pair_of_sites.nodes["b"].injected() == wanted
    assert guarded_caches(pair_of_sites) == 0


def test_new_routes_are_seen_through_a_principals_cache() -> None:
    network = Network()
    network.add("a", "b")
    network.link("a", "b")
    network.nodes["a"].core.admission.replace(parse("topic t"))
    publisher = Client(network, "a", "p")
    publisher.publish("t")
    Client(network, "b", "s").subscribe("t")
    network.settle()
    publisher.publish("t")
    network.settle()
    assert network.nodes["b"].injected() == ["t"]


def test_a_principals_cache_goes_with_its_last_client() -> None:
    network = Network()
    network.add("a")
    network.nodes["a"].core.admission.replace(parse("user ann\ntopic a\nuser bob\ntopic b"))
    clients = [Client(network, "a", f"c{number}", username="ann") for number in range(3)]
    clients.append(Client(network, "a", "b", username="bob"))
    assert guarded_caches(network) == 2
    for client in clients[:3]:
        client.end()
    assert guarded_caches(network) == 1
    clients[3].end()
    assert guarded_caches(network) == 0


def test_a_client_that_is_never_accepted_leaves_no_cache_behind() -> None:
    network = Network()
    network.add("a")
    network.nodes["a"].core.admission.replace(parse("topic a"))
    pair = network.nodes["a"].core.new_pair()
    pair.from_client(codec.encode(Connect("c", 4), 4))
    assert guarded_caches(network) == 1
    pair.ended()
    assert guarded_caches(network) == 0


def test_a_topic_that_a_client_may_not_read_is_not_asked_of_other_sites(pair_of_sites: Network) -> None:
    ann = Client(pair_of_sites, "a", "c", username="ann")
    for topic_filter in ("elsewhere", "$share/g/elsewhere", "allowed/not/1", "allowed/1", "else/#"):
        ann.subscribe(topic_filter)
    core = pair_of_sites.nodes["a"].core
    assert sorted(core.interest.filters()) == ["allowed/1", "else/#"]
    assert core.counters["denied_filters"] == 3
    assert ann.got() == ["SubAck"] * 5


def test_a_message_whose_client_nobody_knows_is_judged_by_the_nodes_own_user(pair_of_sites: Network) -> None:
    admission = pair_of_sites.nodes["a"].core.admission
    assert admission.may_write_as("ann", "allowed/1")
    assert not admission.may_write_as("ann", "allowed/not/1")
    assert not admission.may_write_as(None, "allowed/1")
    admission.replace(None)
    assert admission.may_write_as(None, "anything")
