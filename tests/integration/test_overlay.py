"""Real sites in the ring overlay: each message once and in order, over kills of whoever matters."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from brokerweave import lab
from brokerweave.cooperation.overlay.dispatch import tree_of
from brokerweave.cooperation.overlay.keys import keys_of_topic
from brokerweave.cooperation.overlay.ring import Ring, key_position
from brokerweave.lab.broker import free_port
from tests.integration.conftest import Connect
from tests.support.clients import Message, MqttClient
from tests.support.sites import QUICK, Network, Settings, merged, network, start_all
from tests.support.verdicts import keeps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real
SETTINGS: Settings = merged(QUICK, {"links": {"idle_close": 2.0}})
ENDLESS = ("max_queued_messages 0", "max_inflight_messages 0")
"""With a limit in flight, a Mosquitto lets new messages overtake those in its queue."""
STRATEGIES: dict[str, Settings] = {
    "direct": {"direct": {"shadows": 1}},
    "guided": {"guided": {"shadows": 1, "fan_out": 2}},
    "scribe": {"scribe": {"shadows": 1}},
}


@contextmanager
def overlay(
    tmp_path: Path, strategy: str, names: str, makers: Mapping[str, str] | None = None
) -> Iterator[Network]:
    """Sites with brokers of these `makers`, and Mosquittos elsewhere."""
    key = tmp_path / "key"
    key.write_text("a key that all nodes share")
    ports = {name: free_port() for name in names}
    special: dict[str, Settings] = {
        name: {
            "node": {"key_file": str(key)},
            "membership": {
                "bind": f"127.0.0.1:{port}",
                "join": [f"127.0.0.1:{ports[names[0]]}", f"127.0.0.1:{ports[names[-1]]}"],
                "preset": "local",
            },
        }
        for name, port in ports.items()
    }
    keys = merged(SETTINGS, STRATEGIES[strategy])
    brokers: dict[str, lab.Broker] = {
        name: lab.BROKERS[makers[name]]()
        if makers and name in makers
        else lab.debian.Mosquitto(config=ENDLESS)
        for name in names
    }
    try:
        start_all(broker.start for broker in brokers.values())
        with network(
            [], strategy=strategy, settings=keys, special=special, alone=names, brokers=brokers
        ) as net:
            wait_for_members(net, names, len(names))
            try:
                yield net
            except BaseException:
                for name in names:
                    print(f"node {name} counted {net.node(name).status()['counters']}")
                raise
    finally:
        start_all([broker.close for broker in brokers.values()])


def wait_for_members(net: Network, names: Iterable[str], alive: int) -> None:
    for name in names:
        net.node(name).wait_for(lambda status: status["membership"]["alive"] == alive, f"{alive} members")


def first_key(topic: str) -> int:
    return key_position(keys_of_topic(topic, 2)[0])


def keepers(names: str, topic: str) -> tuple[str, ...]:
    """Coordinator and shadow of a topic."""
    return Ring(names).closest(first_key(topic), 2)


@dataclass
class Traffic:
    """Topics, each with one QoS: a client delivers a message of QoS 2 only after its PUBREL, so later ones of
    another QoS may come first."""

    topics: dict[str, tuple[MqttClient, int]]
    sent: dict[str, list[bytes]] = field(default_factory=dict)

    def publish(self, number: int, *levels: int) -> None:
        """So many on each topic with one of these QoS, in turn, and wait until all are acknowledged."""
        self.acknowledged(self.begin(number, *levels))

    def begin(self, number: int, *levels: int) -> list[object]:
        """The same without waiting."""
        waiting: list[object] = []
        for _ in range(number):
            for topic, (publisher, qos) in self.topics.items():
                if qos in levels:
                    sent = self.sent.setdefault(topic, [])
                    sent.append(b"%d" % len(sent))
                    waiting.append(publisher.publish_unwatched(topic, sent[-1], qos))
        return waiting

    def acknowledged(self, waiting: list[object]) -> None:
        wait_until(lambda: all(done() for done in waiting), "acknowledgements")  # type: ignore[operator]

    def arrived(self, clients: Mapping[str, MqttClient], *levels: int) -> None:
        """Wait until the last message on each topic with one of these QoS has arrived at these clients."""
        for client in clients.values():
            for topic, (_, qos) in self.topics.items():
                if qos in levels:
                    last = self.sent[topic][-1]
                    client.wait_for(lambda got, t=topic, p=last: got_last(got, t, p))  # type: ignore[misc]

    def arrived_once_in_order(self, clients: Mapping[str, MqttClient], net: Network) -> None:
        """The order may change only where a node has counted that it waited for a relay in vain."""
        self.arrived(clients, 0, 1, 2)
        late = sum(net.counted("drain_timeouts").values()) > 0
        for name, client in clients.items():
            for topic, (_, qos) in self.topics.items():
                got = client.payloads(topic)
                keeps(
                    (sorted(got) == sorted(self.sent[topic]) if late else got == self.sent[topic]),
                    f"{topic} (QoS {qos}) at {name}: {differences(got, self.sent[topic])}",
                )


def got_last(received: list[Message], topic: str, payload: bytes) -> bool:
    return any(message.topic == topic and message.payload == payload for message in reversed(received))


def differences(got: list[bytes], sent: list[bytes]) -> str:
    missing = [payload for payload in sent if payload not in got]
    doubled = [payload for payload in sent if got.count(payload) > 1]
    first = next((at for at, (one, other) in enumerate(zip(got, sent, strict=False)) if one != other), None)
    around = [] if first is None else got[max(0, first - 5) : first + 20]
    return f"{len(got)} of {len(sent)}, missing {missing}, doubled {doubled}, differs at {first}: {around}"


@pytest.mark.parametrize("strategy", ["direct", "guided", pytest.param("scribe", marks=pytest.mark.slow)])
def test_each_message_once_in_order_over_kills(tmp_path: Path, connect: Connect, strategy: str) -> None:
    """Wildcards, retained messages and a will; the topic's coordinator is killed on the way."""
    names = "abcde"
    coordinator, _ = keepers(names, "plant/1/t")
    home, *others = [name for name in names if name != coordinator]
    with overlay(tmp_path, strategy, names) as net:
        publisher = connect(net.port(home), "publisher")
        publisher.publish("plant/1/state", b"on", 1, retain=True)
        filters = ["plant/+/t", "plant/#", "#"]
        subscribers = {}
        for number, name in enumerate(others):
            subscribers[name] = connect(net.port(name), f"s-{name}", clean=False)
            assert subscribers[name].subscribe(filters[number], 2) == 2
        watcher = connect(net.port(others[0]), "watcher")
        watcher.subscribe("plant/1/state", 1)
        watcher.wait_for(lambda got: [(m.payload, m.retain) for m in got] == [(b"on", True)])
        traffic = Traffic({f"plant/{qos}/t": (publisher, qos) for qos in (0, 1, 2)})
        begun = traffic.begin(100, 0, 1, 2)
        traffic.arrived(subscribers, 0)  # with scribe the coordinator may be on their way
        net.node(coordinator).restart(kill=True)
        begun += traffic.begin(100, 0, 1, 2)
        wait_for_members(net, names, len(names))
        traffic.acknowledged(begun)
        traffic.publish(100, 0, 1, 2)
        traffic.arrived_once_in_order(subscribers, net)
        dying = connect(net.port(home), "dying", will=("plant/1/t", b"gone", 1, False))
        dying.cut()
        for subscriber in subscribers.values():
            subscriber.wait_for_payload(b"gone")
        assert_nothing_was_dropped(net)


def assert_nothing_was_dropped(net: Network) -> None:
    for name in net.sites:
        drops = net.node(name).status()["drops"]
        assert drops == {}, (name, drops)


# Eight sites with brokers of three makers

NAMES = "abcdefgh"
HOMES = "abc"
"""Whose clients publish; the nodes of others are killed."""
FILTERS = ("plant/#", "#", "plant/+/+", "+/#")


class Roles(NamedTuple):
    topic: str
    coordinator: str
    shadow: str
    relay: str
    """Of what is published at the first home, with `guided`."""

    @property
    def survivors(self) -> str:
        return "".join(name for name in NAMES if name not in self[1:])


def cast() -> Roles:
    """A topic whose coordinator, shadow and a relay are three nodes, and no homes."""
    for number in count():
        topic = f"plant/{number}/q2"
        coordinator, shadow = keepers(NAMES, topic)
        subscribers = dict.fromkeys(NAMES, 2)
        relays = tree_of(Ring(NAMES), HOMES[0], subscribers, 2, first_key(topic)).sends.keys()
        others = sorted(relays - {*HOMES, coordinator, shadow})
        if others and not {coordinator, shadow} & {*HOMES}:
            return Roles(topic, coordinator, shadow, others[0])
    raise AssertionError("unreachable")


def best_qos(net: Network, name: str) -> int:
    return int(net.node(name).status()["node"]["broker"]["abilities"]["max_qos"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_eight_sites_of_three_makers_over_kills(tmp_path: Path, connect: Connect, strategy: str) -> None:
    """Coordinator, shadow and relay are killed in traffic and come back with their disks; then coordinator
    and shadow without."""
    roles = cast()
    makers = {HOMES[-1]: "rabbitmq", roles.survivors[-1]: "nats"}
    with overlay(tmp_path, strategy, NAMES, makers) as net:
        qos_of = {name: best_qos(net, name) for name in NAMES}
        publishers = {home: connect(net.port(home), f"publisher-{home}") for home in HOMES}
        prefix = roles.topic.rpartition("/")[0]
        traffic = Traffic(
            {
                f"{prefix}/{'q' if home == HOMES[0] else home}{qos}": (publisher, qos)
                for home, publisher in publishers.items()
                for qos in range(qos_of[home] + 1)
            }
        )
        assert roles.topic in traffic.topics
        clients = {
            name: connect(net.port(name), f"s-{name}", clean=name in roles.survivors) for name in NAMES
        }
        for number, (name, client) in enumerate(clients.items()):
            assert client.subscribe(FILTERS[number % len(FILTERS)], 2) == qos_of[name]
        exact = connect(net.port(roles.survivors[-2]), "exact")
        assert exact.subscribe(roles.topic, 2) == 2
        survivors = {name: clients[name] for name in roles.survivors}

        def kill(victim: str, *, noticed: bool, disk: bool = True) -> None:
            """In traffic; what is published with QoS 0 meanwhile may be lost with a relay."""
            traffic.publish(75, 0, 1, 2)
            traffic.arrived(survivors, 0)
            begun = traffic.begin(75, 1, 2)
            net.node(victim).stop(kill=True)
            begun += traffic.begin(75, 1, 2)
            others = [name for name in NAMES if name != victim]
            if noticed:
                wait_for_members(net, others, len(NAMES) - 1)
            publishers[HOMES[0]].publish("kept/state", victim.encode(), 1, retain=True)
            if not disk:
                shutil.rmtree(net.node(victim).directory / "data")
            net.node(victim).start()
            clients[victim].come_back()
            if not disk:
                clients[victim].subscribe(FILTERS[NAMES.index(victim) % len(FILTERS)], 2)
            begun += traffic.begin(75, 1, 2)
            wait_for_members(net, NAMES, len(NAMES))
            traffic.acknowledged(begun)
            traffic.arrived(survivors, 1, 2)
            expect_retained(net, connect, victim)

        kill(roles.coordinator, noticed=True)
        kill(roles.shadow, noticed=False)
        kill(roles.relay, noticed=True)
        traffic.publish(75, 0, 1, 2)
        traffic.arrived_once_in_order(survivors, net)
        for victim in roles[1:]:
            traffic.arrived({victim: clients[victim]}, 0, 1, 2)
            for topic, (_, qos) in traffic.topics.items():
                lost = set(traffic.sent[topic]) - set(clients[victim].payloads(topic))
                keeps(not lost or qos == 0, f"{topic} (QoS {qos}) at {victim}, which came back: {lost} lost")
        kill(roles.coordinator, noticed=True, disk=False)
        kill(roles.shadow, noticed=True, disk=False)
        traffic.publish(75, 0, 1, 2)
        traffic.arrived_once_in_order(survivors, net)
        traffic.arrived(clients, 0, 1, 2)
        keeps(
            exact.payloads() == traffic.sent[roles.topic],
            differences(exact.payloads(), traffic.sent[roles.topic]),
        )
        for home in HOMES:
            connect(net.port(home), f"dying-{home}", will=("plant/1/will", home.encode(), 1, False)).cut()
        for name, client in clients.items():
            client.wait_for(lambda got: sum(m.topic == "plant/1/will" for m in got) >= len(HOMES))
            keeps(sorted(client.payloads("plant/1/will")) == [b"a", b"b", b"c"], f"wills at {name}")
        assert_nothing_was_dropped(net)


def expect_retained(net: Network, connect: Connect, value: str) -> None:
    """New subscribers at every site get the newest retained message from their own brokers."""
    for name in NAMES:
        late = connect(net.port(name), f"late-{name}-{value}")
        late.subscribe("kept/state", 1)
        late.wait_for_payload(value.encode())
        got = [(m.payload, m.retain) for m in late.received]
        keeps(got == [(value.encode(), True)], f"retained at {name}: {got}, not {value} alone")
        late.close()
