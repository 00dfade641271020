"""When a client may believe an acknowledgement: SUBACK behind the barrier, PUBACK in cluster delivery."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
)
from brokerweave.mqtt.packets import Connect as ConnectPacket
from tests.integration.conftest import Connect
from tests.support.proxy import Proxy
from tests.support.raw import RawClient
from tests.support.sites import Network, Settings, merged, network
from tests.support.verdicts import in_order, once_each
from tests.support.waiting import wait_until

PATIENT: Settings = {"links": {"ping_interval": 5}}
"""Links that do not give a stalled neighbour up within a test."""


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[Network, Proxy]]:
    """a ──proxy── b, with cluster delivery; the parameter is `links.order`."""
    order = getattr(request, "param", "topic")
    delivery: Settings = {"node": {"delivery": "cluster", "cluster_timeout": 15}, "links": {"order": order}}
    settings = merged(PATIENT, delivery)
    with network([], alone=["a", "b"], settings=settings) as net, Proxy(net.node("b").link_port) as proxy:
        net.link("a", "b", proxy.port)
        yield net, proxy


class Eager(RawClient):
    """Sees each packet in the moment in which it arrives, and what was published to it so far."""

    def __init__(self, port: int, client_id: str) -> None:
        super().__init__(port)
        self.got: list[bytes] = []
        self.send(ConnectPacket(client_id))
        self.read_until(ConnAck)

    def read_until(self, kind: type[Packet]) -> None:
        while not isinstance(packet := codec.decode(self.read_packets(1), 4), kind):
            if isinstance(packet, Publish):
                self.got.append(packet.payload)
                self.send(PubAck(packet.packet_id))


def missed(net: Network, to: str, source: str, count: int) -> int:
    """So often: subscribe at `to`, publish at `source` right after SUBACK. How many of them never come?"""
    with Eager(net.port(to), "subscriber") as subscriber, Eager(net.port(source), "publisher") as publisher:
        for number in range(1, count + 1):
            subscriber.send(Subscribe(number, (Subscription(f"at/once/{number}", 1),)))
            subscriber.read_until(SubAck)
            publisher.send(Publish(f"at/once/{number}", b"%d" % number, 1, packet_id=number))
            publisher.read_until(PubAck)
        net.wait_until_nothing_is_pending()
        subscriber.send(PingReq())
        subscriber.read_until(PingResp)  # behind everything that the broker had for it
    net.wait_until_quiet()
    assert len(set(subscriber.got)) == len(subscriber.got)
    return count - len(subscriber.got)


@pytest.mark.parametrize("count", [50, pytest.param(1_000, marks=pytest.mark.slow)])
def test_nothing_that_is_published_anywhere_after_suback_is_missed_but_with_async(count: int) -> None:
    row = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
    # A machine that is busy with something else is no reason to give up.
    settings = merged(PATIENT, {"node": {"barrier_timeout": 5}})
    with network(row, settings=settings, special={"a": {"node": {"subscribe": "async"}}}) as net:
        behind_barrier = missed(net, "e", "a", count)
        at_once = missed(net, "a", "e", count)
        print(f"\nmissed of {count}: {behind_barrier} with barrier, {at_once} with async")
        assert behind_barrier == 0
        assert net.counted("barrier_timeouts").total() == 0
        assert at_once > 0


def test_a_neighbour_that_stalls_delays_suback_only_for_so_long_and_it_is_counted(connect: Connect) -> None:
    with network([], alone=["a", "b"], settings=PATIENT) as net, Proxy(net.node("b").link_port) as proxy:
        net.link("a", "b", proxy.port)
        subscriber = connect(net.port("a"))
        proxy.stall()
        assert subscriber.subscribe("t", 1) == 1
        assert net.node("a").status()["counters"]["barrier_timeouts"] == 1
        proxy.resume()
        net.settle()


@pytest.mark.parametrize(
    ("cluster", "qos"), [("topic", 1), ("topic", 2), ("round-robin", 1)], indirect=["cluster"]
)
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
    once_each(near.payloads(), [b"1", b"behind it"])
    for number in range(2, 6):  # so that every lane carries some
        publisher.publish("t", b"%d" % number, qos)
    assert net.counted("cluster_timeouts").total() == 0


def test_cluster_delivery_makes_no_client_lose_what_is_beyond_the_room_of_its_broker(
    cluster: tuple[Network, Proxy], connect: Connect
) -> None:
    """Mosquitto takes 20 that were not released; what 3.1.1 clients send beyond it acknowledges and drops."""
    net, proxy = cluster
    near, far = connect(net.port("a")), connect(net.port("b"))
    near.subscribe("t", 2)
    far.subscribe("t", 2)
    net.settle()
    numbers = range(1, 51)
    with Eager(net.port("a"), "publisher") as publisher:
        proxy.stall()  # so no acknowledgement goes out, and nothing is released
        publisher.send(*(Publish("t", b"%d" % number, 2, packet_id=number) for number in numbers))
        publisher.send(PingReq())
        publisher.read_until(PingResp)
        proxy.resume()
        for _ in range(2 * len(numbers)):
            packet = codec.decode(publisher.read_packets(1), 4)
            assert isinstance(packet, PubRec | PubComp)
            if isinstance(packet, PubRec):
                publisher.send(PubRel(packet.packet_id))
    for subscriber in (near, far):
        subscriber.wait_for_payload(b"50")
        in_order(subscriber.payloads(), [b"%d" % number for number in numbers])


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
