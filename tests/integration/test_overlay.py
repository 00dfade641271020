"""Real sites in the ring overlay: each message once and in order, over kills of whoever matters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from brokerweave.cooperation.overlay.keys import keys_of_topic
from brokerweave.cooperation.overlay.ring import Ring, key_position
from brokerweave.lab.broker import free_port
from tests.integration.conftest import Connect
from tests.support.clients import Message
from tests.support.sites import QUICK, AnyBroker, Network, Settings, merged, network

pytestmark = pytest.mark.real
SETTINGS: Settings = merged(QUICK, {"links": {"idle_close": 2.0}})
STRATEGIES: dict[str, Settings] = {
    "direct": {"direct": {"shadows": 1}},
    "guided": {"guided": {"shadows": 1, "fan_out": 2}},
    "scribe": {"scribe": {"shadows": 1}},
}


@contextmanager
def overlay(
    tmp_path: Path,
    strategy: str,
    names: str,
    brokers: Mapping[str, AnyBroker] | None = None,
) -> Iterator[Network]:
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
    with network([], strategy=strategy, settings=keys, special=special, alone=names, brokers=brokers) as net:
        for name in names:
            wait_for_members(net, name, len(names))
        yield net


def wait_for_members(net: Network, name: str, count: int) -> None:
    net.node(name).wait_for(lambda status: status["membership"]["alive"] == count, "the others")


def keepers(names: str, topic: str) -> tuple[str, ...]:
    """Coordinator and shadow of a topic."""
    return Ring(names).closest(key_position(keys_of_topic(topic, 2)[0]), 2)


@pytest.mark.parametrize("strategy", STRATEGIES)
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
        payloads = [b"%d" % number for number in range(300)]
        topics = ["plant/0/t", "plant/1/t", "plant/2/t"]  # each with a QoS of its own
        for payload in payloads[:100]:
            for qos, topic in enumerate(topics):
                publisher.publish(topic, payload, qos)
        net.node(coordinator).restart(kill=True)
        for payload in payloads[100:200]:
            for qos, topic in enumerate(topics):
                publisher.publish(topic, payload, qos)
        for name in names:
            wait_for_members(net, name, len(names))
        for qos, topic in enumerate(topics):
            publisher.publish_all(topic, payloads[200:], qos)
        for name, subscriber in subscribers.items():
            for qos, topic in enumerate(topics):
                subscriber.wait_for(lambda got, t=topic: got_last(got, t, payloads[-1]))  # type: ignore[misc]
                assert subscriber.payloads(topic) == payloads, (name, qos)
        dying = connect(net.port(home), "dying", will=("plant/1/t", b"gone", 1, False))
        dying.cut()
        for subscriber in subscribers.values():
            subscriber.wait_for_payload(b"gone")
        for name in names:
            status = net.node(name).status()
            assert status["drops"] == {}, (name, status["drops"])


def got_last(received: list[Message], topic: str, payload: bytes) -> bool:
    return any(message.topic == topic and message.payload == payload for message in received)
