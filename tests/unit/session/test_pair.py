"""A pair, fed bytes from both sides, with a host that writes down what it hears."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from brokerweave.mqtt.properties import Property
from brokerweave.mqtt.scanner import RouteCache, Routed, split
from brokerweave.mqtt.stamp import Stamps
from brokerweave.plugin import Listener, Reject, Session, Side
from brokerweave.runtime.passage import Passage
from brokerweave.session.held_stream import NotReady
from brokerweave.session.hold_points import HeldAck, HoldPoint
from brokerweave.session.host import Publication
from brokerweave.session.pair import Pair
from brokerweave.session.phase import Phase
from brokerweave.session.record import SessionRecord
from tests.support.listening import FakeListenerContext


@dataclass
class Limits:
    max_packet: int = 1 << 20
    client_queue: int = 1 << 12


@dataclass
class Host:
    forwarded: list[Publish] = field(default_factory=list)
    granted_filters: list[tuple[str, int]] = field(default_factory=list)
    withdrawn_filters: list[str] = field(default_factory=list)
    to_client: list[bytes] = field(default_factory=list)
    to_broker: list[bytes] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    taken: list[tuple[str, int]] = field(default_factory=list)
    released_ids: list[int] = field(default_factory=list)
    connects: int = 0
    closes: int = 0
    receipts: list[list[bytes]] = field(default_factory=list)
    acted_on: set[bytes] = field(default_factory=set)
    hung_up: list[bytes] = field(default_factory=list)
    barrier: bool = False
    lets_subscribe: bool = True
    lets_publish: bool = True
    room_to_hold: int = 1 << 20
    held: int = 0
    asked: list[dict[str, int]] = field(default_factory=list)
    is_superseded: bool = False
    is_full: bool = False
    holds_behind: bool = False
    behind: list[HoldPoint] = field(default_factory=list)
    hold_points: list[HoldPoint] = field(default_factory=list)
    acks: list[HeldAck] = field(default_factory=list)
    recorded: list[tuple[bytes, bool]] = field(default_factory=list)
    """The last byte of each publication, and whether it was resent."""
    events: list[str] = field(default_factory=list)
    uncertain_topics: list[str] = field(default_factory=list)
    version: int = 0
    unread_connects: list[bytes] = field(default_factory=list)
    failures: list[tuple[Listener, Exception]] = field(default_factory=list)
    record: SessionRecord = field(default_factory=lambda: SessionRecord("c", 0))
    stamps: Stamps = field(default_factory=lambda: Stamps(b"the key of the tests"))
    names: dict[bytes, bytes] = field(default_factory=dict)
    """For payloads that get a stamp: what it says."""
    client_has: list[bytes] = field(default_factory=list)
    """Names of what the client got from the node, and the broker is yet to deliver."""

    def connect_arrived(self, pair: Pair) -> None:
        self.connects += 1

    def connect_unread(self, pair: Pair, connect: bytes) -> None:
        self.unread_connects.append(connect)

    def accepted(self, pair: Pair, session_present: bool) -> SessionRecord:
        if self.holds_behind and session_present:
            self.behind.append(pair.hold_behind())
        return self.record

    def may_subscribe(self, pair: Pair, filters: Mapping[str, int]) -> bool:
        self.asked.append(dict(filters))
        return self.lets_subscribe

    def may_publish(self, pair: Pair) -> bool:
        return self.lets_publish

    def holds(self, pair: Pair, size: int) -> None:
        self.held += size
        if self.held > self.room_to_hold:
            raise NotReady(full=True)

    def granted(self, pair: Pair, filters: list[tuple[str, int]], hold_point: HoldPoint) -> bool:
        self.granted_filters += filters
        self.hold_points.append(hold_point)
        if self.holds_behind:
            self.behind.append(pair.hold_behind())
        return not self.barrier

    def withdrawn(self, pair: Pair, filters: list[str]) -> None:
        self.withdrawn_filters += filters

    @property
    def publisher(self) -> Host:
        return self

    def has_room(self, topic: str, retain: bool) -> bool:
        return not self.is_full

    def forward(self, publication: Publication) -> bool:
        if self.is_full and publication.max_qos:
            return False
        if publication.taken is not None:
            self.taken.append(publication.taken)
        for frame in split(publication.blob):
            packet = codec.decode(frame, publication.version)
            assert isinstance(packet, Publish)
            self.forwarded.append(packet)
        return True

    def released(self, pair: Pair, packet_id: int) -> None:
        self.released_ids.append(packet_id)

    def forward_confirmed(self, group: object, publish: Publish, pair: Pair, ack: HeldAck) -> bool:
        self.forwarded.append(publish)
        self.acks.append(ack)
        return False

    def tapped(self, group: object) -> bool:
        return True

    def record_publications(self, pair: Pair, routed: Routed) -> None:
        self.recorded += [
            (frame[-1:], index in (routed.resent or ())) for index, frame in enumerate(split(routed.blob))
        ]
        self.events.append("record")

    def write_recorded(self) -> None:
        self.events.append("write")

    def ended(self, pair: Pair, unexpected: bool) -> None:
        self.ends.append(unexpected)

    def listener_failed(self, listener: Listener, error: Exception) -> None:
        self.failures.append((listener, error))

    def latest_version(self) -> int:
        return self.version

    def uncertain(self, topic: str, since: int) -> None:
        if since < self.version:
            self.uncertain_topics.append(topic)

    def closed(self, pair: Pair) -> None:
        self.closes += 1

    def publishing(self, topic: str) -> None:
        pass

    def keeps(self, topic: bytes) -> bool:
        return True

    def received(self, pair: Pair, hashes: list[bytes], more: bool) -> None:
        self.receipts.append(hashes)

    def superseded(self, pair: Pair) -> bool:
        return self.is_superseded

    def resent(self, pair: Pair, publish: Publish) -> bool:
        return publish.payload in self.acted_on

    def publication_name(self, pair: Pair, publish: Publish) -> bytes:
        return self.names.get(publish.payload, b"")

    def subscribing(self, pair: Pair) -> None: ...

    def entering(self, pair: Pair, publish: Publish) -> None: ...

    def swallows(self, pair: Pair, content: bytes, must_see: bool) -> bool:
        if must_see or content not in self.client_has:
            return False
        self.client_has.remove(content)
        return True

    def clear_session(self, pair: Pair) -> None: ...

    def hang_up(self, pair: Pair, last_words: bytes) -> None:
        self.hung_up.append(last_words)
        pair.ended()

    def write_client(self, pair: Pair, data: bytes) -> None:
        self.to_client.append(data)

    def write_broker(self, pair: Pair, data: bytes) -> None:
        self.to_broker.append(data)

    def count(self, counter: str, amount: int = 1) -> None:
        if amount:
            self.counters[counter] = self.counters.get(counter, 0) + amount


def everything_is_wanted(topic: bytes, retain: bool) -> object:
    return "somewhere"


class Site:
    """A pair with its host, spoken to in packets, through its passages as by sockets."""

    def __init__(
        self,
        version: int = 4,
        listeners: tuple[Listener, ...] = (),
        *,
        cluster: bool = False,
        records: bool = False,
        watched: bool = False,
        room: int | None = None,
    ) -> None:
        self.version = version
        self.host = Host()
        routes = RouteCache(everything_is_wanted)
        self.pair = Pair(1, self.host, routes, Limits(), 100.0, listeners, cluster, records, watched, room)

    def client(self, *packets: Packet) -> bytes:
        return self._speak(Side.CLIENT, packets)

    def broker(self, *packets: Packet) -> bytes:
        return self._speak(Side.BROKER, packets)

    def _speak(self, side: Side, packets: tuple[Packet, ...]) -> bytes:
        pair, out = self.pair, bytearray()
        feed = pair.from_client if side is Side.CLIENT else pair.from_broker

        def write(file: int, data: bytes) -> int:
            out.extend(data)
            return len(data)

        passage = Passage(pair.scanner(side), lambda data: out.extend(feed(data)))
        passage.lead_to(0, write, out.extend, lambda: 0, lambda: False)
        passage.open = pair.upstream_open if side is Side.CLIENT else pair.downstream_open
        passage(b"".join(codec.encode(p, self.version) for p in packets))
        return bytes(out)

    def connect(self, **options: object) -> None:
        self.client(Connect("c", self.version, **options))  # type: ignore[arg-type]
        self.broker(ConnAck())

    @property
    def topics(self) -> list[str]:
        return [packet.topic for packet in self.host.forwarded]


@pytest.fixture(params=[4, 5])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(request.param)


def test_bytes_pass_unchanged_in_both_directions(site: Site) -> None:
    up = b"".join(
        codec.encode(p, site.version)
        for p in (
            Connect("c", site.version),
            Publish("t", b"1", qos=1, packet_id=7),
            Publish("t", b"2", qos=2, packet_id=8),
            PubRel(8),
            PingReq(),
        )
    )
    down = b"".join(
        codec.encode(p, site.version)
        for p in (ConnAck(), PubAck(7), PubRec(8), PubComp(8), Publish("x", b"y"))
    )
    assert site.pair.from_client(up) == up
    assert site.pair.from_broker(down) == down


def test_a_partial_frame_waits_for_its_rest(site: Site) -> None:
    site.connect()
    frame = codec.encode(Publish("t", b"payload"), site.version)
    assert site.pair.from_client(frame[:5]) == b""
    assert site.host.forwarded == []
    assert site.pair.from_client(frame[5:]) == frame
    assert site.topics == ["t"]


def test_connect_is_reported_once_it_is_whole(site: Site) -> None:
    data = codec.encode(Connect("c", site.version), site.version)
    for byte in data[:-1]:
        assert site.pair.from_client(bytes((byte,))) == b""
    assert site.host.connects == 0
    assert site.pair.from_client(data[-1:]) == data
    assert site.host.connects == 1


def test_nothing_is_forwarded_before_connack(site: Site) -> None:
    site.client(Connect("c", site.version), Publish("a"), Publish("b", qos=2, packet_id=1))
    assert site.topics == []
    site.broker(ConnAck())
    assert site.topics == ["a", "b"]


def test_what_came_before_a_refusing_connack_is_dropped_and_counted(site: Site) -> None:
    site.client(Connect("c", site.version), Publish("a"), Publish("b", qos=2, packet_id=1))
    site.broker(ConnAck(reason_code=5 if site.version == 4 else 0x87))
    site.client(Publish("c"))
    assert site.topics == []
    assert site.host.counters == {"refused_clients": 1, "refused_publications": 3}
    assert site.pair.phase is Phase.REFUSED


def test_reading_pauses_when_too_much_is_held_before_connack(site: Site) -> None:
    site.client(Connect("c", site.version), Publish("a", bytes(5000)))
    assert site.pair.wants_pause
    site.broker(ConnAck())
    assert not site.pair.wants_pause


def test_many_small_packets_held_before_connack_count_more_than_their_payload(site: Site) -> None:
    site.client(Connect("c", site.version))
    site.client(*(Publish("t" * 100, qos=2, packet_id=n) for n in range(1, 20)))
    assert site.pair.wants_pause


def test_an_unauthenticated_client_cannot_make_the_node_wait_for_as_large_a_packet_as_a_client_can() -> None:
    limits = Limits(max_packet=1 << 28)
    stranger = Pair(1, Host(), RouteCache(everything_is_wanted), limits, 0.0)
    stranger.from_client(b"\x10\x80\x80\x80\x01" + bytes(1 << 20))
    assert stranger.error is not None
    client = Pair(1, Host(), RouteCache(everything_is_wanted), limits, 0.0)
    client.from_client(codec.encode(Connect("c"), 4) + b"\x30\x80\x80\x80\x01" + bytes(1 << 20))
    assert client.error is None


def test_a_chunk_of_many_packets_is_taken_in_turns_and_in_order(site: Site) -> None:
    site.connect()
    packets: list[Packet] = []
    for number in range(1, 1000):
        packets += [Publish(f"{number}"), Publish("2", qos=2, packet_id=number), PubRel(number)]
    chunk = b"".join(codec.encode(packet, site.version) for packet in packets)
    parts = [site.pair.from_client(chunk + b"\x30\xff\xff\xff\x7f")]
    assert 0 < len(parts[0]) < len(chunk)
    while site.pair.put_off is not None:
        assert site.pair.error is None
        parts.append(site.pair.next_turn())
    assert b"".join(parts) == chunk
    assert site.topics == [topic for number in range(1, 1000) for topic in (f"{number}", "2")]
    assert site.pair.error is not None  # for the frame behind them, which is too large


def test_a_subscribe_larger_than_the_clients_queue_is_refused(site: Site) -> None:
    site.connect()
    site.client(Subscribe(1, tuple(Subscription(f"{number}", 0) for number in range(2000))))
    assert site.pair.error is not None


def test_a_filter_counts_when_suback_grants_it(site: Site) -> None:
    site.connect()
    site.client(Subscribe(3, (Subscription("a", 2), Subscription("b", 1), Subscription("c", 0))))
    assert site.host.granted_filters == []
    site.broker(SubAck(3, (1, 0x80, 0)))
    assert site.host.granted_filters == [("a", 1), ("c", 0)]


def test_a_filter_ends_with_unsuback(site: Site) -> None:
    site.connect()
    site.client(Unsubscribe(4, ("a", "b")))
    assert site.host.withdrawn_filters == []
    site.broker(UnsubAck(4, (0, 0x87) if site.version == 5 else ()))
    assert site.host.withdrawn_filters == (["a"] if site.version == 5 else ["a", "b"])


def test_a_suback_nobody_asked_for_grants_nothing(site: Site) -> None:
    site.connect()
    site.broker(SubAck(9, (1,)))
    assert site.host.granted_filters == []


def test_reading_pauses_while_too_many_subscriptions_wait_for_the_brokers_answer(site: Site) -> None:
    site.connect()
    packet_ids = range(1, 100)
    for packet_id in packet_ids:
        site.client(Subscribe(packet_id, (Subscription("f", 0),)))
    assert site.pair.wants_pause
    for packet_id in packet_ids:
        site.broker(SubAck(packet_id, (0,)))
    assert not site.pair.wants_pause


def test_a_client_that_always_has_one_subscription_under_way_can_go_on_for_ever(site: Site) -> None:
    site.connect()
    site.client(Subscribe(1, (Subscription("f" * 100, 0),)))
    for packet_id in range(2, 200):
        site.client(Subscribe(packet_id, (Subscription("f" * 100, 0),)))
        site.broker(SubAck(packet_id - 1, (0,)))
    assert site.pair.error is None
    assert not site.pair.wants_pause


def test_a_qos2_publication_sent_again_before_its_release_is_forwarded_once(site: Site) -> None:
    site.connect()
    site.client(Publish("t", b"1", qos=2, packet_id=5))
    site.client(Publish("t", b"1", qos=2, packet_id=5, dup=True))
    assert len(site.host.forwarded) == 1
    site.client(PubRel(5), Publish("t", b"2", qos=2, packet_id=5))
    assert [p.payload for p in site.host.forwarded] == [b"1", b"2"]


def test_a_qos2_publication_sent_again_on_a_new_connection_is_forwarded_once() -> None:
    first, second = Site(), Site()
    second.host.record = first.host.record
    first.connect(clean_start=False)
    first.client(Publish("t", b"1", qos=2, packet_id=5))
    second.client(
        Connect("c", 4, clean_start=False), Publish("t", b"1", qos=2, packet_id=5, dup=True), PubRel(5)
    )
    second.broker(ConnAck(session_present=True))
    assert second.host.forwarded == []
    assert second.host.record.incoming_qos2 == set()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("cluster", [False, True])
def test_what_the_node_could_not_keep_ends_the_pair_and_does_not_reach_the_broker(
    cluster: bool, qos: int
) -> None:
    site = Site(5, cluster=cluster)
    site.connect()
    site.host.is_full = True
    assert site.client(Publish("t", b"1", qos=qos, packet_id=5)) == b""
    assert isinstance(site.pair.error, RemoteProtocolError)
    assert site.pair.error.reason_code == 0x97
    assert site.host.forwarded == []
    assert site.host.record.incoming_qos2 == set(), "sent again it is new"


def test_forwarded_publications_are_no_redeliveries(site: Site) -> None:
    site.connect()
    site.client(Publish("t", qos=1, packet_id=5, dup=True))
    assert [p.dup for p in site.host.forwarded] == [False]


def test_topic_aliases_are_resolved_before_forwarding() -> None:
    site = Site(5)
    site.connect()
    alias = ((Property.TOPIC_ALIAS, 3),)
    whole = site.client(Publish("t", b"1", properties=alias), Publish("", b"2", properties=alias))
    assert [(p.topic, p.payload, p.properties) for p in site.host.forwarded] == [
        ("t", b"1", ()),
        ("t", b"2", ()),
    ]
    assert codec.encode(Publish("", b"2", properties=alias), 5) in whole


def test_the_topics_behind_aliases_are_bounded() -> None:
    site = Site(5)
    site.connect()
    for alias in range(1, 100):
        site.client(Publish("t" * 100, b"2", properties=((Property.TOPIC_ALIAS, alias),)))
    assert site.pair.error is not None


def test_dollar_topics_are_not_forwarded(site: Site) -> None:
    site.connect()
    site.client(Publish("$SYS/x"), Publish("$x", qos=2, packet_id=1))
    assert site.topics == []


def test_disconnect_discards_the_will(site: Site) -> None:
    site.connect(will=Will("w", b"gone"))
    site.client(Disconnect())
    site.pair.ended()
    assert site.host.ends == [False]


def test_disconnect_with_will_keeps_it() -> None:
    site = Site(5)
    site.connect(will=Will("w", b"gone"))
    site.client(Disconnect(reason_code=0x04))
    site.pair.ended()
    assert site.host.ends == [True]


def test_an_end_without_disconnect_is_unexpected(site: Site) -> None:
    site.connect(will=Will("w", b"gone"))
    site.pair.ended()
    assert site.host.ends == [True]


def test_a_client_that_was_never_accepted_leaves_no_trace(site: Site) -> None:
    site.client(Connect("c", site.version, will=Will("w", b"gone")))
    site.pair.ended()
    assert site.host.ends == []


def test_the_brokers_connack_and_the_clients_disconnect_may_change_the_expiry() -> None:
    site = Site(5)
    site.client(Connect("c", 5, properties=((Property.SESSION_EXPIRY_INTERVAL, 10),)))
    assert site.pair.expiry == 10
    site.broker(ConnAck(properties=((Property.SESSION_EXPIRY_INTERVAL, 20),)))
    assert site.pair.expiry == 20
    site.client(Disconnect(properties=((Property.SESSION_EXPIRY_INTERVAL, 0),)))
    assert site.pair.expiry == 0


def test_a_311_session_that_is_not_clean_expires_as_configured() -> None:
    site = Site(4)
    site.connect(clean_start=False)
    assert site.pair.expiry == 100.0


def test_the_assigned_client_id_is_taken_over() -> None:
    site = Site(5)
    site.client(Connect("", 5))
    site.broker(ConnAck(properties=((Property.ASSIGNED_CLIENT_IDENTIFIER, "made"),)))
    assert site.pair.client.client_id == "made"


class Validator(Listener):
    name: ClassVar[str] = "validator"
    packets = frozenset({(Side.CLIENT, PacketType.PUBLISH)})

    def packet_arrived(self, session: Session, packet: Packet) -> Reject | None:
        assert isinstance(packet, Publish)
        return Reject(0x99, "bad") if packet.payload == b"bad" else None


class Clumsy(Validator):
    def packet_arrived(self, session: Session, packet: Packet) -> Reject | None:
        raise ZeroDivisionError

    def receive_failed(self, session: Session, error: Exception) -> None:
        raise ZeroDivisionError


def test_a_listener_that_raises_neither_stops_the_packet_nor_ends_the_pair() -> None:
    validator, clumsy = Validator(FakeListenerContext()), Clumsy(FakeListenerContext())
    site = Site(4, (clumsy, validator))
    site.connect()
    good = Publish("t", b"good")
    assert site.client(good) == codec.encode(good, 4)
    assert site.client(Publish("t", b"bad")) == b"", "the next listener is asked all the same"
    assert (site.pair.error, len(site.host.failures)) == (None, 2)
    assert site.pair.from_client(b"\x00\x00") == b"\x00\x00"
    assert len(site.host.failures) == 3


@pytest.fixture(params=[4, 5])
def validated(request: pytest.FixtureRequest) -> Site:
    site = Site(request.param, (Validator(FakeListenerContext()),))
    site.connect()
    return site


def test_a_rejected_publication_reaches_neither_broker_nor_links(validated: Site) -> None:
    whole = validated.client(Publish("a", b"good"), Publish("b", b"bad"), PingReq(), Publish("c", b"good"))
    expected = (Publish("a", b"good"), PingReq(), Publish("c", b"good"))
    assert whole == b"".join(codec.encode(p, validated.version) for p in expected)
    assert validated.topics == ["a", "c"]


def test_a_rejected_qos1_publication_is_acknowledged_in_the_brokers_stead(validated: Site) -> None:
    assert validated.client(Publish("b", b"bad", qos=1, packet_id=4)) == b""
    code = 0x99 if validated.version == 5 else 0
    assert validated.host.to_client == [codec.encode(PubAck(4, code), validated.version)]


def test_a_rejected_qos2_exchange_of_311_is_seen_through_by_the_node() -> None:
    site = Site(4, (Validator(FakeListenerContext()),))
    site.connect()
    assert site.client(Publish("b", b"bad", qos=2, packet_id=4)) == b""
    assert site.client(PubRel(4)) == b""
    assert site.host.to_client == [codec.encode(PubRec(4), 4), codec.encode(PubComp(4), 4)]


class TestTheStreamStandsAtASuback:
    def test_until_the_filters_are_known_everywhere(self, site: Site) -> None:
        site.host.barrier = True
        site.connect()
        site.client(Subscribe(3, (Subscription("a", 0),)))
        before, suback, after = Publish("x"), SubAck(3, (0,)), Publish("y")
        assert site.broker(before, suback, after) == codec.encode(before, site.version)
        assert site.broker(Publish("z")) == b""
        site.pair.end_hold(site.host.hold_points[0])
        expected = b"".join(codec.encode(p, site.version) for p in (suback, after, Publish("z")))
        assert b"".join(site.host.to_client) == expected
        assert site.broker(Publish("more")) == codec.encode(Publish("more"), site.version)

    def test_and_at_each_of_several_in_their_order(self, site: Site) -> None:
        site.host.barrier = True
        site.connect()
        for packet_id in (1, 2):
            site.client(Subscribe(packet_id, (Subscription("a", 0),)))
        assert site.broker(SubAck(1, (0,)), SubAck(2, (0,))) == b""
        site.pair.end_hold(site.host.hold_points[1])
        assert site.host.to_client == []
        site.pair.end_hold(site.host.hold_points[0])
        assert b"".join(site.host.to_client) == b"".join(
            codec.encode(SubAck(i, (0,)), site.version) for i in (1, 2)
        )

    def test_and_the_broker_is_not_read_when_too_much_stands(self, site: Site) -> None:
        site.host.barrier = True
        site.connect()
        site.client(Subscribe(3, (Subscription("a", 0),)))
        site.broker(SubAck(3, (0,)), Publish("x", bytes(5000)))
        assert site.pair.wants_broker_pause
        site.pair.end_hold(site.host.hold_points[0])
        assert not site.pair.wants_broker_pause


@pytest.fixture(params=[4, 5])
def cluster(request: pytest.FixtureRequest) -> Site:
    site = Site(request.param, cluster=True)
    site.connect()
    return site


class TestInClusterDelivery:
    def test_a_publication_is_forwarded_when_the_broker_has_acknowledged_it(self, cluster: Site) -> None:
        cluster.client(Publish("t", qos=1, packet_id=1), Publish("u", qos=2, packet_id=2), Publish("v"))
        assert cluster.topics == ["v"]
        cluster.broker(PubAck(1))
        cluster.broker(PubRec(2))
        assert cluster.topics == ["v", "t", "u"]

    def test_the_acknowledgement_waits_for_the_cluster_and_nothing_else_does(self, cluster: Site) -> None:
        cluster.client(Publish("t", qos=1, packet_id=1))
        other = Publish("x", b"for the client")
        assert cluster.broker(other, PubAck(1), other) == codec.encode(other, cluster.version) * 2
        assert cluster.host.to_client == []
        cluster.pair.release(cluster.host.acks[0])
        assert cluster.host.to_client == [codec.encode(PubAck(1), cluster.version)]

    def test_acknowledgements_keep_their_order(self, cluster: Site) -> None:
        for packet_id in (1, 2, 3):
            cluster.client(Publish("t", qos=1, packet_id=packet_id))
        assert cluster.broker(PubAck(1), PubAck(2), PubAck(3)) == b""
        cluster.pair.release(cluster.host.acks[1])
        assert cluster.host.to_client == []
        cluster.pair.release(cluster.host.acks[0])
        assert cluster.host.to_client == [
            codec.encode(PubAck(1), cluster.version) + codec.encode(PubAck(2), cluster.version)
        ]

    def test_what_the_broker_refuses_is_not_forwarded(self) -> None:
        site = Site(5, cluster=True)
        site.connect()
        site.client(Publish("t", qos=1, packet_id=1))
        refusal = PubAck(1, 0x87)
        assert site.broker(refusal) == codec.encode(refusal, 5)
        assert site.topics == []

    def test_a_qos2_publication_resent_after_its_pubrec_is_not_forwarded_again(self, cluster: Site) -> None:
        cluster.client(Publish("t", qos=2, packet_id=7))
        cluster.broker(PubRec(7))
        cluster.client(Publish("t", qos=2, packet_id=7, dup=True))
        again = PubRec(7)
        cluster.pair.release(cluster.host.acks[0])
        assert cluster.broker(again) == codec.encode(again, cluster.version)
        assert cluster.topics == ["t"]

    def test_a_qos2_publication_resent_before_its_pubrec_is_forwarded_once(self, cluster: Site) -> None:
        cluster.client(Publish("t", qos=2, packet_id=7))
        cluster.client(Publish("t", qos=2, packet_id=7, dup=True))
        cluster.broker(PubRec(7))
        assert cluster.topics == ["t"]

    def test_what_the_broker_had_not_acknowledged_when_the_client_left_goes_as_in_local_delivery(
        self, cluster: Site
    ) -> None:
        cluster.client(Publish("t", qos=1, packet_id=1), Publish("u", qos=2, packet_id=2))
        cluster.pair.ended()
        assert cluster.topics == ["t", "u"]
        assert cluster.host.record.incoming_qos2 == {2}
        assert cluster.host.counters["unacknowledged_publications"] == 2

    def test_what_a_client_that_has_another_connection_sent_on_this_one_goes_nowhere(
        self, cluster: Site
    ) -> None:
        cluster.client(Publish("t", qos=1, packet_id=1), Publish("u", qos=2, packet_id=2))
        cluster.host.is_superseded = True
        assert cluster.broker(PubRec(2)) == b""
        cluster.pair.ended()
        assert cluster.topics == []
        assert cluster.host.record.incoming_qos2 == set()
        assert cluster.host.counters["unacknowledged_publications"] == 2

    def test_what_the_broker_had_not_acknowledged_when_it_left_itself_is_not_forwarded_but_looked_at(
        self, cluster: Site
    ) -> None:
        cluster.client(Publish("t", qos=1, packet_id=1), Publish("u", b"kept", 1, True, packet_id=2))
        cluster.pair.ended(broker_left=True)
        assert cluster.topics == []
        assert cluster.host.uncertain_topics == ["u"]

    def test_a_message_to_be_retained_is_looked_at_if_others_came_before_its_acknowledgement(
        self, cluster: Site
    ) -> None:
        cluster.client(Publish("t", b"kept", 1, True, packet_id=1))
        cluster.broker(PubAck(1))
        assert cluster.host.uncertain_topics == []
        for packet_id, topic in ((2, "u"), (3, "v")):
            cluster.client(Publish(topic, b"kept", 1, True, packet_id=packet_id))
        cluster.client(Publish("w", b"not kept", 1, packet_id=4))
        cluster.host.version += 1
        cluster.broker(PubAck(2))
        assert cluster.host.uncertain_topics == ["u"]
        cluster.broker(PubAck(4))
        cluster.pair.ended()
        assert cluster.host.uncertain_topics == ["u", "v"]

    def test_a_broker_that_hangs_up_after_the_clients_goodbye_refused_nothing(self, cluster: Site) -> None:
        cluster.client(Publish("t", qos=1, packet_id=1), Disconnect())
        cluster.pair.ended(broker_left=True)
        assert cluster.topics == ["t"]

    def test_the_client_is_not_read_while_too_much_waits_for_the_broker(self, cluster: Site) -> None:
        cluster.client(Publish("t", bytes(5000), qos=1, packet_id=1))
        assert cluster.pair.wants_pause
        cluster.broker(PubAck(1))
        assert not cluster.pair.wants_pause


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_comes_in_one_chunk_with_connect_takes_the_routes_it_chose(site: Site, qos: int) -> None:
    def route_later(pair: Pair) -> None:
        pair.use_routes(RouteCache(lambda topic, retain: "somewhere" if topic == b"own" else None))

    site.host.connect_arrived = route_later  # type: ignore[method-assign]
    ids = (1, 2) if qos else (0, 0)
    publications = [Publish(t, b"", qos, packet_id=i) for t, i in zip(("other", "own"), ids, strict=True)]
    site.client(Connect("c", site.version), *publications)
    site.broker(ConnAck())
    assert site.topics == ["own"]


@pytest.mark.parametrize("accepted", [True, False])
def test_the_end_of_every_pair_that_sent_connect_is_heard_of_once(site: Site, accepted: bool) -> None:
    site.client(Connect("c", site.version))
    if accepted:
        site.broker(ConnAck())
    site.pair.ended()
    assert (site.host.closes, len(site.host.ends)) == (1, int(accepted))
