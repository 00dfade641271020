"""All makers' brokers that are here in one row: they differ in what they can, and still act as one.

mosquitto ── rabbitmq ── nats ── activemq ── amqtt
`make setup` installs all of them but ActiveMQ, which joins where it is (`scripts/install-brokers activemq`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from brokerweave import lab
from tests.integration.conftest import Connect
from tests.support.clients import MqttClient
from tests.support.sites import Network, network, start_all, start_broker
from tests.support.verdicts import keeps, once_each
from tests.support.waiting import wait_until

MAKERS = ("mosquitto", "rabbitmq", "nats", "activemq", "amqtt")
ROW = [name for name in MAKERS if lab.BROKERS[name].missing() is None]
COUNT = 20
UPGRADES = {"amqtt"}
"""Brokers that deliver at the subscription's QoS even what was published at a lower one."""


@pytest.fixture(scope="module")
def row() -> Iterator[Network]:
    assert len(ROW) > 1, "brokers of two makers make a row; make setup installs four"
    brokers = {name: lab.BROKERS[name]() for name in ROW}
    try:
        start_all(broker.start for broker in brokers.values())
        with network(list(itertools.pairwise(ROW)), brokers=brokers) as net:
            wait_until(lambda: brokers_were_read(net), "the first reading of what the brokers retain")
            yield net
    finally:
        start_all([broker.close for broker in brokers.values()])


def brokers_were_read(net: Network) -> bool:
    """To read its broker, a node may retain a message of its own there for a moment, which amqtt gives to
    every client that connects meanwhile, whatever it subscribes to."""
    states = [net.node(name).status()["retained"]["broker"] for name in ROW]
    return not any(state.startswith(("waiting", "being read", "could not")) for state in states)


@pytest.fixture
def quiet(row: Network) -> Network:
    row.wait_until_quiet()
    return row


def max_qos(net: Network, name: str) -> int:
    """What the probe found."""
    return int(net.node(name).status()["node"]["broker"]["abilities"]["max_qos"])


def downgraded(net: Network, name: str) -> int:
    return sum(int(row["downgraded_qos"]) for row in net.node(name).status()["injectors"])


def subscribers(net: Network, connect: Connect, topic_filter: str, qos: int) -> dict[str, MqttClient]:
    """One at each site, at the QoS asked for or the best its broker grants."""
    clients = {name: connect(net.port(name), f"sub-{name}") for name in ROW}
    for name, client in clients.items():
        client.subscribe(topic_filter, min(qos, max_qos(net, name)))
    net.settle()
    return clients


def difference(net: Network, site: str, client: MqttClient, expected: list[bytes]) -> str:
    """What is wrong at a site, and what its way there counted: a broker that doubles or moves messages cannot
    be told from a node that does, unless the nodes say what they repeated."""
    received = client.payloads()
    extra = Counter(received) - Counter(expected)
    lines = [
        f"at {site}: received {received}",
        f"missing {[payload for payload in expected if payload not in received]}",
        f"extra {[message for message in client.received if message.payload in extra]}",
    ]
    for name in ROW:
        status = net.node(name).status()
        rows = [*status["injectors"], *status["links"]]
        lines.append(f"{name}: {status['counters']} {rows}")
    return "\n".join(lines)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("publisher", ROW)
def test_each_message_arrives_once_and_in_order_at_every_site(
    quiet: Network, connect: Connect, publisher: str, qos: int
) -> None:
    published = min(qos, max_qos(quiet, publisher))  # what the publisher's own broker takes
    topic = f"row/{publisher}/{qos}"
    clients = subscribers(quiet, connect, topic, qos)
    before = {name: downgraded(quiet, name) for name in ROW}
    payloads = [b"%d" % number for number in range(COUNT)]
    connect(quiet.port(publisher)).publish_all(topic, payloads, published)
    for name, client in clients.items():
        client.wait_for(lambda received: len(received) >= COUNT)
        keeps(client.payloads() == payloads, difference(quiet, name, client, payloads))
        delivered = min(qos if name in UPGRADES else published, max_qos(quiet, name))
        assert {message.qos for message in client.received} == {delivered}, name
    for name in set(ROW) - {publisher}:
        lower = published > max_qos(quiet, name)
        assert downgraded(quiet, name) - before[name] == (COUNT if lower else 0), name


def test_a_will_is_heard_once_at_every_site(quiet: Network, connect: Connect) -> None:
    clients = subscribers(quiet, connect, "row/will", 1)
    for site in ROW:
        will = ("row/will", site.encode(), 1, False)
        connect(quiet.port(site), f"mortal-{site}", will=will).cut()
    for name, client in clients.items():
        client.wait_for(lambda received: len(received) >= len(ROW))
        once_each(client.payloads(), [site.encode() for site in ROW], name)


def test_wildcards_reach_across_makers(quiet: Network, connect: Connect) -> None:
    clients = subscribers(quiet, connect, "plant/+/temperature", 1)
    connect(quiet.port(ROW[0])).publish("plant/7/temperature", b"21.5", qos=1)
    connect(quiet.port(ROW[-1])).publish("plant/8/temperature", b"22.5", qos=1)
    for name, client in clients.items():
        client.wait_for(lambda received: len(received) >= 2)
        once_each(client.payloads(), [b"21.5", b"22.5"], name)


# Below here amqtt has a retained message, which it gives to every client that connects.


def test_a_retained_message_meets_a_late_subscriber_at_every_site(quiet: Network, connect: Connect) -> None:
    connect(quiet.port(ROW[-1])).publish("kept/state", b"on", qos=1, retain=True)
    wait_until(lambda: injected_everywhere(quiet), "the injection of what is retained")
    for name in ROW:
        late = connect(quiet.port(name))
        late.subscribe("kept/state", 1)
        late.wait_for_payload(b"on")
        assert [(message.payload, message.retain) for message in late.received] == [(b"on", True)], name


def injected_everywhere(net: Network) -> bool:
    return all(
        not row["backlog_messages"]
        for name in ROW
        for row in (*net.node(name).status()["injectors"], *net.node(name).status()["links"])
    )


def ends(status: dict[str, Any]) -> tuple[int, int]:
    """Dead letters, and what at QoS 0 may have been lost."""
    rows = status["injectors"]
    return sum(row["dead_letters"] for row in rows), sum(row["maybe_lost_qos0"] for row in rows)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_a_broker_cannot_take_ends_in_the_dead_letters_and_stops_nothing(
    connect: Connect, qos: int
) -> None:
    """NATS closes the connection on a topic with a space or a dot."""
    with start_broker("nats") as nats, network([("m", "n"), ("n", "o")], brokers={"n": nats}) as net:
        at_nats, beyond = connect(net.port("n")), connect(net.port("o"))
        at_nats.subscribe("site/#", 1)
        beyond.subscribe("site/#", 1)
        net.settle()
        publisher = connect(net.port("m"))
        sound = [f"site/before/{n}" for n in range(5)] + [f"site/after/{n}" for n in range(5)]
        for topic in sound[:5]:
            publisher.publish(topic, topic, qos=1)
        for _ in range(3):
            publisher.publish("site/poison/v1.2", b"a dot", qos=qos)
            publisher.publish("site/poison/a b", b"a space", qos=qos)
        for topic in sound[5:]:
            publisher.publish(topic, topic, qos=1)
        at_nats.wait_for(lambda received: len(received) >= len(sound))
        once_each(at_nats.payloads(), [topic.encode() for topic in sound])
        beyond.wait_for(lambda received: len(received) >= len(sound) + 6)
        assert len(beyond.received) == len(sound) + 6  # another maker's broker has no trouble with it
        node = net.node("n")
        wait_until(lambda: sum(ends(node.status())) >= 6, "an end of all poison")
        if not qos:
            # QoS 0 is never repeated: all of it may have been written, and lost, before NATS closed. Then the
            # topic is known, and more on it is sent alone.
            def dies() -> bool:
                publisher.publish("site/poison/v1.2", b"a dot", qos=0)
                return ends(node.status())[0] > 0

            wait_until(dies, "a dead letter")
        status = node.status()
        dead, _ = ends(status)
        assert dead == 6 if qos else dead >= 1
        assert status["counters"]["dead_letters"] == dead
