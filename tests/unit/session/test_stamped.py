"""Stamps between a pair and its broker: put on what the client publishes, taken off what it gets."""

from __future__ import annotations

from typing import ClassVar

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Packet,
    PacketType,
    PubAck,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
)
from brokerweave.mqtt.properties import Properties, Property
from brokerweave.mqtt.scanner import split
from brokerweave.mqtt.stamp import Stamps
from brokerweave.plugin import Listener, Reject, Session, Side
from tests.unit.session.test_pair import Site

ID = b"an id of 12b"
OWN: Properties = (
    (Property.CONTENT_TYPE, "json"),
    (Property.USER_PROPERTY, ("bw", "a client's own")),
    (Property.MESSAGE_EXPIRY_INTERVAL, 60),
)


class Stamped(Site):
    """A site whose host names what the client publishes."""

    def __init__(
        self,
        version: int = 5,
        listeners: tuple[Listener, ...] = (),
        *,
        watched: bool = True,
        takes: int | None = None,
        properties: Properties = (),
    ) -> None:
        super().__init__(version, listeners, watched=watched)
        self.host.names = {b"1": ID, b"2": b"another"}
        self.client(Connect("c", version, properties=properties))
        limit = () if takes is None else ((Property.MAXIMUM_PACKET_SIZE, takes),)
        self.broker(ConnAck(properties=limit))

    def stamped(self, packet: Publish, id: bytes = ID) -> bytes:
        return self.host.stamps.stamp(codec.encode(packet, 5), id)

    def delivers(self, frame: bytes) -> bytes:
        return self.pair.from_broker(frame)

    @property
    def received(self) -> list[bytes]:
        return [name for names in self.host.receipts for name in names]


@pytest.fixture
def site() -> Stamped:
    return Stamped()


class TestUpstream:
    @pytest.mark.parametrize("qos", [1, 2])
    @pytest.mark.parametrize("retain", [False, True])
    @pytest.mark.parametrize("properties", [(), OWN], ids=["bare", "with properties"])
    def test_the_broker_gets_the_name_and_others_get_what_the_client_sent(
        self, site: Stamped, qos: int, retain: bool, properties: Properties
    ) -> None:
        publish = Publish("t", b"1", qos, retain, packet_id=7, properties=properties)
        assert site.client(publish) == site.stamped(publish)
        site.broker(PubAck(7) if qos == 1 else PubRec(7))
        assert site.host.forwarded == [publish]

    def test_among_others_each_keeps_its_place(self, site: Stamped) -> None:
        packets: list[Packet] = [
            Publish("t", b"0"),
            Publish("t", b"1", 1, packet_id=1),
            Subscribe(5, (Subscription("u"),)),
            Publish("t", b"2", 2, packet_id=2),
            Publish("t", b"without a name", 1, packet_id=3),
            PubRel(2),
        ]
        sent = [codec.encode(packet, 5) for packet in packets]
        expected = list(sent)
        expected[1] = site.host.stamps.stamp(sent[1], ID)
        expected[3] = site.host.stamps.stamp(sent[3], b"another")
        assert split(site.client(*packets)) == expected

    def test_one_sent_again_has_what_the_host_says_of_it(self, site: Stamped) -> None:
        again = Publish("t", b"1", 1, dup=True, packet_id=7)
        assert site.client(again) == site.stamped(again)

    def test_an_alias_stays_with_it(self, site: Stamped) -> None:
        alias = ((Property.TOPIC_ALIAS, 3),)
        for topic in ("t", ""):
            publish = Publish(topic, b"1", 1, packet_id=7, properties=alias)
            assert site.client(publish) == site.stamped(publish)
            site.broker(PubAck(7))
        assert site.topics == ["t", "t"]

    def test_qos_0_goes_as_it_came(self, site: Stamped) -> None:
        for properties in ((), ((Property.TOPIC_ALIAS, 3),)):
            publish = Publish("t", b"1", properties=properties)
            assert site.client(publish) == codec.encode(publish, 5)

    def test_without_a_name_nothing_changes(self, site: Stamped) -> None:
        publish = Publish("t", b"3", 1, packet_id=7, properties=OWN)
        assert site.client(publish) == codec.encode(publish, 5)
        assert site.host.counters == {}

    def test_what_came_before_connack_goes_without(self) -> None:
        site = Site(5, watched=True)
        site.host.names = {b"1": ID}
        publish = Publish("t", b"1", 1, packet_id=7)
        sent = site.client(Connect("c", 5), publish)
        assert split(sent)[1] == codec.encode(publish, 5)

    def test_what_would_be_too_large_for_the_broker_goes_without_and_is_counted(self) -> None:
        site = Stamped(takes=60)
        small = Publish("t", b"1", 1, packet_id=7)
        large = Publish("t" * 30, b"1", 1, packet_id=8)
        assert site.client(small) == site.stamped(small)
        assert site.client(large) == codec.encode(large, 5)
        assert site.host.counters == {"unstamped_too_large": 1}

    def test_the_stamp_of_another_is_taken_off_and_counted(self, site: Stamped) -> None:
        """It can only be copied from what a client got from the broker without a node."""
        plain = Publish("t", b"3", 1, packet_id=7)
        assert site.pair.from_client(site.stamped(plain)) == codec.encode(plain, 5)
        named = Publish("t", b"1", 1, packet_id=8)
        assert site.pair.from_client(site.stamped(named, b"copied")) == site.stamped(named)
        assert site.host.counters == {"stamps_refused": 2}
        site.broker(PubAck(7), PubAck(8))
        assert site.host.forwarded == [plain, named]

    def test_of_a_stamp_of_another_key_nobody_takes_notice(self, site: Stamped) -> None:
        forged = Stamps(b"guessed").stamp(codec.encode(Publish("t", b"3", 1, packet_id=7), 5), ID)
        assert site.pair.from_client(forged) == forged
        assert site.host.counters == {}


class TestDownstream:
    @pytest.mark.parametrize("qos", [0, 1, 2])
    @pytest.mark.parametrize("properties", [(), OWN], ids=["bare", "with properties"])
    def test_the_client_gets_it_without_and_the_host_hears_the_name(
        self, site: Stamped, qos: int, properties: Properties
    ) -> None:
        publish = Publish("t", b"live", qos, packet_id=7 if qos else 0, properties=properties)
        assert site.delivers(site.stamped(publish)) == codec.encode(publish, 5)
        if qos:
            site.client(PubAck(7) if qos == 1 else PubRec(7))
        assert site.received == [content_hash("t", b"live") + ID]

    def test_what_has_none_is_known_by_its_content(self, site: Stamped) -> None:
        publish = Publish("t", b"live", 1, packet_id=7, properties=OWN)
        assert site.delivers(codec.encode(publish, 5)) == codec.encode(publish, 5)
        site.client(PubAck(7))
        assert site.received == [content_hash("t", b"live")]

    def test_equal_publications_are_told_apart(self, site: Stamped) -> None:
        frames = [site.stamped(Publish("t", b"equal", 1, packet_id=n), b"%d" % n) for n in (1, 2)]
        assert len(split(site.delivers(b"".join(frames)))) == 2
        equal = content_hash("t", b"equal")
        site.client(PubAck(2))
        assert site.received == [equal + b"2"]
        site.client(PubAck(1))
        assert site.received == [equal + b"2", equal + b"1"]

    def test_sent_again_it_has_the_same_name(self, site: Stamped) -> None:
        again = Publish("t", b"live", 1, dup=True, packet_id=7)
        assert site.delivers(site.stamped(again)) == codec.encode(again, 5)
        site.client(PubAck(7))
        assert site.received == [content_hash("t", b"live") + ID]

    def test_in_a_chunk_and_cut_anywhere_the_bytes_are_those_without_stamps(self) -> None:
        packets: list[Packet] = [
            PubAck(1),
            Publish("t", b"a", 1, packet_id=1),
            Publish("t", b"b", properties=OWN),
            Publish("t", b"c", 2, packet_id=2, properties=((Property.SUBSCRIPTION_IDENTIFIER, 300),)),
            PubRel(9),
        ]
        plain = b"".join(codec.encode(packet, 5) for packet in packets)
        for size in (1, 7, 30, 1000):
            site = Stamped()
            data = b"".join(
                site.stamped(packet) if isinstance(packet, Publish) else codec.encode(packet, 5)
                for packet in packets
            )
            cuts = range(0, len(data), size)
            assert b"".join(site.delivers(data[at : at + size]) for at in cuts) == plain

    def test_an_alias_of_the_brokers_stays(self, site: Stamped) -> None:
        alias = ((Property.TOPIC_ALIAS, 3),)
        for topic in ("t", ""):
            publish = Publish(topic, b"live", 1, packet_id=7, properties=alias)
            assert site.delivers(site.stamped(publish)) == codec.encode(publish, 5)
            site.client(PubAck(7))
        plain = Publish("", b"live", 1, packet_id=7, properties=alias)
        site.delivers(codec.encode(plain, 5))
        site.client(PubAck(7))
        live = content_hash("t", b"live")
        assert site.received == [live + ID, live + ID, live]

    def test_a_retained_copy_for_a_new_subscription_is_no_receipt(self, site: Stamped) -> None:
        copy = Publish("t", b"kept", 1, retain=True, packet_id=7)
        assert site.delivers(site.stamped(copy)) == codec.encode(copy, 5)
        site.client(PubAck(7))
        assert site.received == []

    def test_held_behind_suback_it_comes_without(self, site: Stamped) -> None:
        site.host.holds_behind = True
        site.client(Subscribe(3, (Subscription("t", 2),)))
        live = Publish("t", b"live", 1, packet_id=7)
        assert site.delivers(codec.encode(SubAck(3, (2,)), 5) + site.stamped(live)) == codec.encode(
            SubAck(3, (2,)), 5
        )
        site.pair.end_hold(site.host.behind[0])
        assert site.host.to_client == [codec.encode(live, 5)]
        site.client(PubAck(7))
        assert site.received == [content_hash("t", b"live") + ID]

    def test_what_the_client_has_under_that_name_is_answered_in_its_stead(self, site: Stamped) -> None:
        site.host.client_has = [content_hash("t", b"equal") + ID]
        other = Publish("t", b"equal", 1, packet_id=8)
        frames = site.stamped(Publish("t", b"equal", 1, packet_id=7)) + site.stamped(other, b"other")
        assert site.delivers(frames) == codec.encode(other, 5)
        assert site.pair.for_broker == codec.encode(PubAck(7), 5)
        assert site.received == []

    def test_what_cannot_be_read_goes_on_as_it_is(self, site: Stamped) -> None:
        torn = b"\x32\x07\x00\x01t\x00\x07\x05\x26"
        assert site.delivers(torn) == torn
        assert site.host.counters == {"unread_packets": 1}


class TestRedelivery:
    def test_is_known_by_the_stamps_that_the_host_gives(self, site: Stamped) -> None:
        publishes = [Publish("t", b"a", 1), Publish("t", b"b"), Publish("t", b"c")]
        site.pair.redeliver(publishes, lambda: None, stamps=[ID, b"", b"c"])
        assert split(b"".join(site.host.to_client))[0] == codec.encode(
            Publish("t", b"a", 1, packet_id=65535), 5
        )
        site.client(PubAck(65535))
        stamps = {b"a": ID, b"b": b"", b"c": b"c"}
        expected = [content_hash("t", payload) + stamp for payload, stamp in stamps.items()]
        assert sorted(site.received) == sorted(expected)


class Looking(Listener):
    packets: ClassVar = frozenset({(Side.CLIENT, PacketType.PUBLISH), (Side.BROKER, PacketType.PUBLISH)})

    def __init__(self) -> None:
        self.seen: list[Packet] = []

    def packet_arrived(self, session: Session, packet: Packet) -> Packet | Reject | None:
        self.seen.append(packet)
        return Reject(0x87) if isinstance(packet, Publish) and packet.payload == b"rejected" else None


class TestListeners:
    def test_see_no_stamps(self) -> None:
        listener = Looking()
        site = Stamped(listeners=(listener,))
        up, down = Publish("t", b"1", 1, packet_id=7), Publish("t", b"live", 1, packet_id=7)
        assert site.client(up) == site.stamped(up)
        assert site.delivers(site.stamped(down)) == codec.encode(down, 5)
        assert listener.seen == [up, down]

    def test_what_they_reject_counts_as_received_under_its_name(self) -> None:
        site = Stamped(listeners=(Looking(),))
        assert site.delivers(site.stamped(Publish("t", b"rejected", 1, packet_id=7))) == b""
        site.client(PubAck(8))
        assert site.received == [content_hash("t", b"rejected") + ID]


class TestWhereNothingIsStamped:
    @pytest.mark.parametrize("version", [4, 5])
    def test_chunks_of_an_unwatched_pair_pass_as_the_same_object(self, version: int) -> None:
        site = Stamped(version, watched=False)
        packets = [Publish("$t", b"1", qos, packet_id=qos) for qos in (0, 1)]
        up = b"".join(codec.encode(packet, version) for packet in packets)
        assert site.pair.from_client(up) is up
        assert site.pair._upstream.passes(up)
        down = b"".join(codec.encode(Publish("t", b"1", q, packet_id=q), version) for q in (0, 1, 2))
        if version == 5:
            down += site.stamped(Publish("t", b"1"))  # of whom it is, nobody looks
        assert site.pair.from_broker(down) is down
        assert site.pair._downstream.passes(down)

    def test_a_3_1_1_client_has_no_properties(self) -> None:
        site = Stamped(4)
        publish = Publish("t", b"1", 1, packet_id=7)
        assert site.client(publish) == codec.encode(publish, 4)
        assert site.broker(publish) == codec.encode(publish, 4)
        site.client(PubAck(7))
        assert site.received == [content_hash("t", b"1")]
