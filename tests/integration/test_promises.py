"""When a client may believe an acknowledgement: SUBACK behind the barrier, PUBACK in cluster delivery."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.conftest import Connect
from tests.support.proxy import Proxy
from tests.support.sites import Network, Settings, network
from tests.support.waiting import wait_until

PATIENT: Settings = {"links": {"ping_interval": 5}}
"""Links that do not give a stalled neighbour up within a test."""


@pytest.fixture
def cluster() -> Iterator[tuple[Network, Proxy]]:
    """a ──proxy── b, with cluster delivery."""
    settings: Settings = {**PATIENT, "node": {"delivery": "cluster", "cluster_timeout": 15}}
    with network([], alone=["a", "b"], settings=settings) as net, Proxy(net.node("b").link_port) as proxy:
        net.link("a", "b", proxy.port)
        yield net, proxy


def test_nothing_that_is_published_anywhere_after_suback_is_missed(connect: Connect) -> None:
    with network([("a", "b"), ("b", "c"), ("c", "d")]) as net:
        subscriber, publisher = connect(net.port("d")), connect(net.port("a"))
        for number in range(50):
            subscriber.subscribe(f"at/once/{number}", 1)
            publisher.publish(f"at/once/{number}", b"%d" % number, qos=1)
        subscriber.wait_for(lambda received: len(received) >= 50)
        assert sorted(subscriber.payloads()) == sorted(b"%d" % number for number in range(50))
        assert "barrier_timeouts" not in net.node("d").status()["counters"]


def test_a_neighbour_that_stalls_delays_suback_only_for_so_long_and_it_is_counted(connect: Connect) -> None:
    with network([], alone=["a", "b"], settings=PATIENT) as net, Proxy(net.node("b").link_port) as proxy:
        net.link("a", "b", proxy.port)
        subscriber = connect(net.port("a"))
        proxy.stall()
        assert subscriber.subscribe("t", 1) == 1
        assert net.node("a").status()["counters"]["barrier_timeouts"] == 1
        proxy.resume()
        net.settle()


@pytest.mark.parametrize("qos", [1, 2])
def test_cluster_delivery_acknowledges_only_what_the_other_site_has(
    cluster: tuple[Network, Proxy], connect: Connect, qos: int
) -> None:
    net, proxy = cluster
    near, far, publisher = connect(net.port("a")), connect(net.port("b")), connect(net.port("a"))
    near.subscribe("t", qos)
    far.subscribe("t", qos)
    net.settle()
    proxy.stall()
    acknowledged = publisher.publish_unwatched("t", b"1", qos)
    publisher.publish("t", b"behind it")
    near.wait_for_payload(b"behind it")  # so the broker has read the first, and has answered it
    assert not acknowledged()
    proxy.resume()
    wait_until(acknowledged, "the acknowledgement")
    far.wait_for_payload(b"1")
    near.wait_for_payload(b"1")
    assert sorted(near.payloads()) == [b"1", b"behind it"]


def test_cluster_delivery_does_not_wait_for_a_site_that_is_away(
    cluster: tuple[Network, Proxy], connect: Connect
) -> None:
    net, _ = cluster
    far = connect(net.port("b"), "far", clean=False)
    far.subscribe("t", 1)
    net.settle()
    net.node("b").stop()
    publisher = connect(net.port("a"))
    publisher.publish("t", b"owed", qos=1)
    assert net.node("a").link("b")["backlog_messages"] == 1
    net.node("b").start()
    back = connect(net.port("b"), "far", clean=False)
    back.wait_for_payload(b"owed")
