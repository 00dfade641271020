"""Stamps on the wire: what MQTT 5 clients of a node that stamps get from a real broker, and what others do.

A stand-in for the node names every publication; scanner, pair and relay are the real ones. Each story is
told twice, to clients of the broker and to clients of the node in front of it, who must hear the same bytes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from brokerweave import lab
from brokerweave.mqtt import codec
from brokerweave.mqtt.content import HASH_BYTES
from brokerweave.mqtt.packets import (
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    Subscription,
    Will,
)
from brokerweave.mqtt.properties import Properties, Property, get_int, without
from brokerweave.mqtt.scanner import split
from brokerweave.mqtt.stamp import GROWTH, Stamps
from brokerweave.session.pair import Pair
from tests.integration.conftest import Connect as Connects
from tests.support.raw import RawClient
from tests.support.sites import merged, network, start_broker
from tests.support.stand_in import StandIn
from tests.support.waiting import wait_until

OWN: Properties = (
    (Property.PAYLOAD_FORMAT_INDICATOR, 1),
    (Property.CONTENT_TYPE, "text/plain"),
    (Property.RESPONSE_TOPIC, "answers"),
    (Property.CORRELATION_DATA, b"\x00\x01"),
    (Property.USER_PROPERTY, ("unit", "celsius")),
    (Property.USER_PROPERTY, ("bw", "a client's own")),
    (Property.USER_PROPERTY, ("unit", "kelvin")),
)
LASTING: Properties = ((Property.SESSION_EXPIRY_INTERVAL, 60),)
SIZES = [0, 60, 80, 90, 100, 120, 16_300, 16_370, 70_000]
"""Some of them on either side of a longer length, with a stamp and without."""


class Naming(StandIn):
    """Gives every publication a name."""

    def __init__(self, broker: int) -> None:
        super().__init__(broker, holds_behind=False)
        self.given: list[bytes] = []

    @property
    def stamps_told(self) -> Counter[bytes]:
        """Of the receipts: what their deliveries were stamped with, b"" for nothing."""
        told: Counter[bytes] = Counter()
        for name, count in self.told.items():
            told[name[HASH_BYTES:]] += count
        return told

    @property
    def complaints(self) -> dict[str, int]:
        return {name: count for name, count in self.counters.items() if name != "accepted_connections"}

    def publication_name(self, pair: Pair, publish: Publish) -> bytes:
        self.given.append(b"name %07d" % len(self.given))
        return self.given[-1]


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[lab.Broker]:
    broker = start_broker("mosquitto")
    yield broker
    broker.close()


@pytest.fixture
def node(mosquitto: lab.Broker) -> Iterator[Naming]:
    node = Naming(mosquitto.port)
    yield node
    node.close()


class Talker(RawClient):
    """Connected, and speaks packet by packet."""

    _ids = itertools.count()

    def __init__(self, port: int, version: int = 5, **options: object) -> None:
        super().__init__(port)
        self.version = version
        name = str(options.pop("client_id", f"talker {next(self._ids)}"))
        self.say(Connect(name, version, **options), answers=1)  # type: ignore[arg-type]

    def say(self, *packets: Packet, answers: int = 0) -> bytes:
        self.send(*packets, version=self.version)
        return self.read_packets(answers)

    def publish(self, *publishes: Publish) -> None:
        """One after the other, each with all its answers."""
        for publish in publishes:
            self.say(publish, answers=min(publish.qos, 1))
            if publish.qos == 2:
                self.say(PubRel(publish.packet_id), answers=1)
        self.say(PingReq(), answers=1)

    def hear(self, count: int) -> list[bytes]:
        """The next PUBLISHes, answered."""
        heard: list[bytes] = []
        while len(heard) < count:
            frame = self.read_packets(1)
            packet = codec.decode(frame, self.version)
            if isinstance(packet, PubRel):
                self.say(PubComp(packet.packet_id))
                continue
            assert isinstance(packet, Publish), packet
            heard.append(frame)
            if packet.qos:
                answer = PubAck if packet.qos == 1 else PubRec
                self.say(answer(packet.packet_id))
        return heard

    def settle(self) -> None:
        """All answers were read: a connection that closes too early takes some with it."""
        self.say(PingReq())
        while isinstance(packet := codec.decode(self.read_packets(1), self.version), PubRel):
            self.say(PubComp(packet.packet_id))
        assert isinstance(packet, PingResp)


def every_kind(topic: str) -> list[Publish]:
    """Of each QoS, with properties and without, of many sizes; every second one equal to the one before."""
    kinds = itertools.product((0, 1, 2), ((), OWN), SIZES, range(2))
    return [
        Publish(topic, bytes(size), qos, packet_id=number if qos else 0, properties=properties)
        for number, (qos, properties, size, _) in enumerate(kinds, 1)
    ]


Story = Callable[[int, int], list[bytes]]
"""What a subscriber at one port hears if the publisher is at another."""


def live(version: int, *subscriptions: Subscription) -> Story:
    def told(listen: int, speak: int) -> list[bytes]:
        with Talker(listen, version) as subscriber, Talker(speak) as publisher:
            identifier = ((Property.SUBSCRIPTION_IDENTIFIER, 300),) if version == 5 else ()
            subscriber.say(Subscribe(1, subscriptions, identifier), answers=1)
            publishes = every_kind("live")
            publisher.publish(*publishes)
            heard = subscriber.hear(len(publishes))
            subscriber.settle()
            return heard

    return told


def aliases(listen: int, speak: int) -> list[bytes]:
    with Talker(listen) as subscriber, Talker(speak) as publisher:
        subscriber.say(Subscribe(1, (Subscription("alias/#", 2),)), answers=1)
        for number, (topic, alias) in enumerate(
            [("alias/a", 1), ("", 1), ("alias/b", 2), ("", 2), ("", 1), ("alias/c", 1), ("", 1)], 1
        ):
            properties = ((Property.TOPIC_ALIAS, alias), *OWN)
            publisher.publish(Publish(topic, b"", 1 + number % 2, packet_id=number, properties=properties))
        return subscriber.hear(7)


def retained(as_published: bool) -> Story:
    def told(listen: int, speak: int) -> list[bytes]:
        with Talker(listen) as subscriber, Talker(speak) as publisher:
            subscription = Subscription("kept", 1, retain_as_published=as_published)
            for qos in (1, 2):
                kept = Publish("kept", b"%d" % qos, qos, retain=True, packet_id=qos, properties=OWN)
                publisher.publish(kept)
            subscriber.say(Subscribe(1, (subscription,)), answers=1)
            heard = subscriber.hear(1)
            publisher.publish(Publish("kept", b"more", 1, retain=True, packet_id=3))
            publisher.publish(Publish("kept", b"", 1, retain=True, packet_id=4))
            return heard + subscriber.hear(2)

    return told


def sent_again(listen: int, speak: int) -> list[bytes]:
    """Live, and once more with DUP; queued meanwhile."""
    name = f"away {listen} {speak}"
    with Talker(speak) as publisher:
        with Talker(listen, client_id=name, clean_start=False, properties=LASTING) as subscriber:
            subscriber.say(Subscribe(1, (Subscription("again", 2),)), answers=1)
            publisher.publish(Publish("again", b"1", 1, packet_id=1), Publish("again", b"2", 2, packet_id=2))
            heard = split(subscriber.read_packets(2))  # unanswered
            subscriber.say(Disconnect())
            subscriber.read_to_end()  # now the broker knows, too
        publisher.publish(Publish("again", b"queued", 1, packet_id=3, properties=OWN))
        with Talker(listen, client_id=name, clean_start=False, properties=LASTING) as subscriber:
            heard += subscriber.hear(3)
        with Talker(listen, client_id=name):
            return heard


def wills(listen: int, speak: int) -> list[bytes]:
    with Talker(listen) as subscriber:
        subscriber.say(Subscribe(1, (Subscription("will", 1),)), answers=1)
        with Talker(speak, will=Will("will", b"gone", 1, properties=OWN)):
            pass
        return subscriber.hear(1)


STORIES: dict[str, Story] = {
    "live": live(5, Subscription("live", 2)),
    "to a subscription of qos 0": live(5, Subscription("live")),
    "to a shared subscription": live(5, Subscription("$share/group/live", 2)),
    "to a 3.1.1 client": live(4, Subscription("live", 2)),
    "aliases": aliases,
    "retained": retained(False),
    "retained as published": retained(True),
    "sent again": sent_again,
    "wills": wills,
}


@pytest.mark.parametrize("story", STORIES)
def test_clients_of_a_node_that_stamps_get_the_same_bytes(
    node: Naming, mosquitto: lab.Broker, story: str
) -> None:
    told = STORIES[story]
    direct = told(mosquitto.port, mosquitto.port)
    assert told(node.port, node.port) == direct
    assert bool(node.given) == (story != "wills")
    assert node.complaints == {}


def test_each_delivery_has_its_own_name_also_of_equal_publications(node: Naming) -> None:
    live(5, Subscription("live", 2))(node.port, node.port)
    plain = 2 * len(SIZES) * 2  # of QoS 0
    wait_until(lambda: node.told.total() == len(node.given) + plain, "every receipt")
    assert node.stamps_told == Counter(node.given) + Counter({b"": plain})
    assert len(node.told) == len(node.given) + len(SIZES)  # for each size there is one content


def test_clients_of_the_broker_itself_see_the_property(node: Naming, mosquitto: lab.Broker) -> None:
    story = STORIES["live"]
    seen = [node.stamps.take_off(frame) for frame in story(mosquitto.port, node.port)]
    assert [frame for frame, _ in seen] == story(mosquitto.port, mosquitto.port)
    assert [name for _, name in seen if name is not None] == node.given


def test_of_what_a_client_of_the_broker_copies_the_node_takes_the_stamp_off(
    node: Naming, mosquitto: lab.Broker
) -> None:
    (copied,) = STORIES["wills"](mosquitto.port, mosquitto.port)
    stamped = node.stamps.stamp(copied, b"copied")
    with Talker(mosquitto.port) as subscriber, Talker(node.port) as publisher:
        subscriber.say(Subscribe(1, (Subscription("will", 1),)), answers=1)
        publisher.socket.sendall(stamped)
        publisher.read_packets(1)
        ((_, name),) = [node.stamps.take_off(frame) for frame in subscriber.hear(1)]
    assert name == node.given[0]
    assert node.complaints == {"stamps_refused": 1}


def test_an_expiry_is_reduced_as_without(node: Naming, mosquitto: lab.Broker) -> None:
    expiring: Properties = ((Property.MESSAGE_EXPIRY_INTERVAL, 3600), *OWN)

    def told(port: int) -> Publish:
        name = f"expiring {port}"
        with Talker(port, client_id=name, properties=LASTING) as subscriber:
            subscriber.say(Subscribe(1, (Subscription("expiring", 1),)), answers=1)
            subscriber.say(Disconnect())
            subscriber.read_to_end()
        with Talker(port) as publisher:
            publisher.publish(Publish("expiring", b"", 1, packet_id=1, properties=expiring))
        with Talker(port, client_id=name, clean_start=False) as subscriber:
            packet = codec.decode(subscriber.hear(1)[0], 5)
            assert isinstance(packet, Publish)
            return packet

    direct, by_node = told(mosquitto.port), told(node.port)
    expiries = [get_int(p.properties, Property.MESSAGE_EXPIRY_INTERVAL) for p in (direct, by_node)]
    assert all(3590 <= seconds <= 3600 for seconds in expiries)
    plain = [without(p.properties, Property.MESSAGE_EXPIRY_INTERVAL) for p in (direct, by_node)]
    assert plain[0] == plain[1]
    assert [p for p, _ in direct.properties] == [p for p, _ in by_node.properties]


def test_two_members_of_a_group_get_each_publication_once(node: Naming) -> None:
    with Talker(node.port) as one, Talker(node.port) as two, Talker(node.port) as publisher:
        for member in (one, two):
            member.say(Subscribe(1, (Subscription("$share/pair/shared", 1),)), answers=1)
        publisher.publish(*(Publish("shared", b"equal", 1, packet_id=n) for n in range(1, 11)))
        for member in (one, two):  # Mosquitto takes turns
            member.hear(5)
            member.settle()
    wait_until(lambda: node.told.total() == 10, "every receipt")
    assert node.stamps_told == Counter(node.given)


def test_a_broker_that_declares_its_largest_packet_gets_none_larger() -> None:
    with start_broker("mosquitto", config=["max_packet_size 200"]) as broker:
        node = Naming(broker.port)
        try:
            with Talker(node.port) as subscriber, Talker(node.port) as publisher:
                subscriber.say(Subscribe(1, (Subscription("t", 1),)), answers=1)
                sizes = range(150, 201)  # of whole packets
                publisher.publish(*(Publish("t", bytes(size - 9), 1, packet_id=size) for size in sizes))
                assert [len(frame) for frame in subscriber.hear(len(sizes))] == list(sizes)
            unstamped = node.counters["unstamped_too_large"]
            assert 0 < unstamped < len(sizes)
        finally:
            node.close()


def test_a_client_misses_what_is_within_a_stamp_of_its_own_largest_packet(
    node: Naming, mosquitto: lab.Broker
) -> None:
    """Its broker counts the stamp: the one thing that clients notice (docs/guarantees.md)."""
    limit: Properties = ((Property.MAXIMUM_PACKET_SIZE, 100),)

    def told(port: int) -> list[int]:
        with Talker(port, properties=limit) as subscriber, Talker(port) as publisher:
            subscriber.say(Subscribe(1, (Subscription("limit", 1),)), answers=1)
            sizes = (100 - GROWTH, 95, 50, 110, 20)
            publisher.publish(*(Publish("limit", bytes(size - 12), 1, packet_id=size) for size in sizes))
            heard: list[int] = []
            while not heard or heard[-1] != 20:
                heard += [len(frame) for frame in subscriber.hear(1)]
            return heard

    assert told(mosquitto.port) == [69, 95, 50, 20]
    assert told(node.port) == [69, 50, 20]


def test_what_a_broker_retained_with_a_stamp_goes_to_other_sites_without(connect: Connects) -> None:
    kept = Publish("kept", b"old", 1, retain=True, packet_id=1, properties=OWN)
    stamped = codec.decode(Stamps().stamp(codec.encode(kept, 5), b"its name"), 5)
    assert isinstance(stamped, Publish)
    with start_broker("mosquitto") as broker:
        with Talker(broker.port) as publisher:
            publisher.publish(stamped)
        with network([("a", "b")], brokers={"a": broker}) as net:
            client = connect(net.port("b"), version=5)
            client.subscribe("kept", 1)
            client.wait_for_payload(b"old")
            (message,) = client.received
            assert message.properties["UserProperty"] == [
                pair for name, pair in OWN if name is Property.USER_PROPERTY
            ]


@pytest.mark.parametrize(("strategy", "asked"), [("mesh", True), ("sf", None)])
def test_only_a_node_that_watches_deliveries_asks_its_broker(strategy: str, asked: bool | None) -> None:
    own = {"node": {"strategy": strategy}}
    with network([], alone=["a"], settings=merged({}, own)) as net:
        abilities = net.node("a").status()["node"]["broker"]["abilities"]
    assert abilities["user_properties"] is asked
