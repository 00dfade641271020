"""Nodes killed with kill -9 in the middle of traffic, in front of real brokers, with real clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from brokerweave import lab
from tests.support.clients import MqttClient
from tests.support.publisher import StrictPublisher
from tests.support.sites import QUICK, Network, merged, network
from tests.support.verdicts import keeps, once_each

IN_FLIGHT = 100
ENDLESS = ("max_queued_messages 0", f"max_inflight_messages {IN_FLIGHT}")


@contextmanager
def row(unknown_session: str = "warn") -> Iterator[Network]:
    """Sites a, b and c in a row, whose brokers queue without limit."""
    names = ("a", "b", "c")
    brokers: dict[str, lab.Broker] = {name: lab.debian.Mosquitto(config=ENDLESS) for name in names}
    settings = merged(QUICK, {"node": {"unknown_session": unknown_session}})
    try:
        for broker in brokers.values():
            broker.start()
        with network([("a", "b"), ("b", "c")], brokers=brokers, settings=settings) as net:
            yield net
    finally:
        for broker in brokers.values():
            broker.close()


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with row() as net:
        yield net


def killing(net: Network, when: dict[int, str]) -> Callable[[int], None]:
    def meanwhile(number: int) -> None:
        if number in when:
            net.node(when[number]).restart(kill=True)

    return meanwhile


KILLS = {50: "b", 150: "c", 250: "a", 350: "b", 450: "a", 550: "c"}


@pytest.mark.parametrize("qos", [2, 1])
def test_kill_9_of_every_node_in_turn_loses_nothing_and_doubles_no_qos_2(net: Network, qos: int) -> None:
    topic = f"kill/{qos}"
    # Subscribers at the brokers themselves, so that only what the nodes inject counts; the interest comes
    # from clients behind the nodes, whose sessions outlive the kills.
    direct = {name: MqttClient(net[name].broker.port, f"direct-{qos}") for name in "bc"}
    interest = {name: MqttClient(net.port(name), f"interest-{qos}", clean=False) for name in "bc"}
    for name in "bc":
        direct[name].subscribe(topic, qos)
        interest[name].subscribe(topic, qos)
    net.settle()
    publisher = StrictPublisher(net.port("a"), f"publisher-{qos}", topic, qos)
    sent = publisher.publish(700, killing(net, KILLS))
    assert publisher.reconnects >= 2
    net.wait_for_links()
    net.wait_until_nothing_is_pending()
    for name in "bc":
        direct[name].wait_for(lambda received: {message.payload for message in received} >= set(sent))
        got = Counter(direct[name].payloads())
        doubled = sum(got.values()) - len(got)
        # QoS 1: twice at most what publisher and injector had in flight at the kills of their nodes.
        most = 0 if qos == 2 else publisher.repeated + 2 * IN_FLIGHT
        keeps(doubled <= most, f"{doubled} doubled at {name}, at most {most} may be")
        direct[name].close()
        interest[name].close()
    for site in net.sites.values():
        status = site.node.status()
        assert status["counters"]["dead_letters"] == 0
        assert not any(status["drops"].values())


def test_a_session_that_does_not_subscribe_again_gets_everything_after_the_nodes_crash(net: Network) -> None:
    away = MqttClient(net.port("c"), "sleeper", clean=False)
    away.subscribe("sleep/#", 2)
    net.settle()
    away.close()
    net.node("c").restart(kill=True)
    net.wait_for_links()
    net.settle()
    publisher = MqttClient(net.port("a"), "teller")
    sent = [str(number).encode() for number in range(50)]
    publisher.publish_all("sleep/t", sent, 2)
    net.node("c").restart(kill=True)
    net.wait_for_links()
    net.wait_until_nothing_is_pending()
    back = MqttClient(net.port("c"), "sleeper", clean=False)
    assert back.session_present
    back.wait_for(lambda received: len(received) >= 50)
    once_each(back.payloads(), sent)
    assert net.node("c").status()["counters"].get("unknown_sessions", 0) == 0
    publisher.close()
    back.unsubscribe("sleep/#")
    back.close()


def test_a_node_put_in_front_of_a_broker_in_use_floods_until_the_client_subscribes() -> None:
    with row("flood") as net:
        # Straight to the broker: the node has never seen this session's filters.
        first = MqttClient(net["c"].broker.port, "old", clean=False)
        first.subscribe("old/#", 1)
        first.close()
        client = MqttClient(net.port("c"), "old", clean=False)
        assert client.session_present
        net.settle()
        assert net.node("c").status()["sessions"]["flooding"] == 1
        publisher = MqttClient(net.port("a"), "teller")
        publisher.publish("old/t", b"flooded", 1)
        client.wait_for_payload(b"flooded")
        client.subscribe("old/#", 1)
        net.settle()
        assert net.node("c").status()["sessions"]["flooding"] == 0
        before = net.crossed()
        publisher.publish("other/t", b"nobody wants it any more", 1)
        publisher.publish("old/t", b"wanted", 1)
        client.wait_for_payload(b"wanted")
        assert net.crossed()["b", "c"] - before["b", "c"] == 1
        publisher.close()
        client.close()
