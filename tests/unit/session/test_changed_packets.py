"""Listeners that change or reject packets, in either direction: all others see what they made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from brokerweave.errors import LocalProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Packet,
    PacketType,
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
    Unsubscribe,
)
from brokerweave.mqtt.properties import Property
from brokerweave.plugin import Listener, Reject, Session, Side
from brokerweave.session.phase import Phase
from tests.support.listening import FakeListenerContext
from tests.unit.session.test_pair import Site

Answer = Callable[[Packet], Packet | Reject | None]


def listener(side: Side, kind: PacketType, answer: Answer) -> Listener:
    class Changing(Listener):
        name = "changing"
        packets = frozenset({(side, kind)})

        def packet_arrived(self, session: Session, packet: Packet) -> Packet | Reject | None:
            assert session.side is side
            return answer(packet)

    return Changing(FakeListenerContext())


def unit_added(packet: Packet) -> Packet:
    assert isinstance(packet, Publish)
    return replace(packet, payload=packet.payload + b" C")


def site_with(
    *listeners: Listener,
    version: int = 5,
    cluster: bool = False,
    records: bool = False,
    watched: bool = False,
) -> Site:
    site = Site(version, listeners, cluster=cluster, records=records, watched=watched)
    site.connect()
    return site


def encoded(*packets: Packet, version: int = 5) -> bytes:
    return b"".join(codec.encode(packet, version) for packet in packets)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_broker_the_links_and_the_taps_get_the_changed_publication(version: int, qos: int) -> None:
    changing = listener(Side.CLIENT, PacketType.PUBLISH, unit_added)
    site = site_with(changing, version=version, records=True)
    sent = Publish("t", b"21", qos, packet_id=3 if qos else 0)
    changed = replace(sent, payload=b"21 C")
    assert site.client(PingReq(), sent, PingReq()) == encoded(PingReq(), changed, PingReq(), version=version)
    if qos:
        site.broker(PubAck(3) if qos == 1 else PubRec(3))
    assert [packet.payload for packet in site.host.forwarded] == [b"21 C"]
    assert site.host.recorded == [(b"C", False)]


def test_in_cluster_delivery_the_changed_publication_is_what_other_sites_confirm() -> None:
    site = site_with(listener(Side.CLIENT, PacketType.PUBLISH, unit_added), cluster=True)
    site.client(Publish("t", b"21", 1, packet_id=3))
    site.broker(PubAck(3))
    assert [packet.payload for packet in site.host.forwarded] == [b"21 C"]


def test_a_publication_that_waits_for_room_at_the_broker_waits_as_it_was_changed() -> None:
    site = Site(4, (listener(Side.CLIENT, PacketType.PUBLISH, unit_added),), cluster=True, room=1)
    site.connect()
    site.client(Publish("t", b"1", 2, packet_id=1), Publish("t", b"2", 2, packet_id=2))
    assert site.client(PubRel(1)) == encoded(PubRel(1), Publish("t", b"2 C", 2, packet_id=2), version=4)


def test_its_topic_decides_where_a_changed_publication_goes() -> None:
    def moved(packet: Packet) -> Packet:
        assert isinstance(packet, Publish)
        return replace(packet, topic=f"site/{packet.topic}")

    site = site_with(listener(Side.CLIENT, PacketType.PUBLISH, moved))
    site.client(Publish("t"), Publish("$SYS/x"))
    assert site.topics == ["site/t", "site/$SYS/x"]


def test_qos_packet_id_and_dup_stay() -> None:
    other = Publish("t", b"new", 0, False, False, 0)
    site = site_with(listener(Side.CLIENT, PacketType.PUBLISH, lambda packet: other))
    sent = Publish("t", b"old", 1, dup=True, packet_id=9)
    assert site.client(sent) == encoded(replace(sent, payload=b"new"))


def test_each_listener_sees_what_the_one_before_made_and_the_first_rejection_counts() -> None:
    seen: list[Packet] = []
    site = site_with(
        listener(Side.CLIENT, PacketType.PUBLISH, unit_added),
        listener(Side.CLIENT, PacketType.PUBLISH, lambda packet: Reject(0x99)),
        listener(Side.CLIENT, PacketType.PUBLISH, seen.append),
    )
    assert site.client(Publish("t", b"21")) == b""
    assert not seen
    site = site_with(
        listener(Side.CLIENT, PacketType.PUBLISH, unit_added),
        listener(Side.CLIENT, PacketType.PUBLISH, seen.append),
    )
    site.client(Publish("t", b"21"))
    assert seen == [Publish("t", b"21 C")]


@pytest.mark.parametrize(
    "answer",
    [PingReq(), Publish("a/#"), Publish(""), Publish("t", bytes(1 << 20)), "nonsense"],
    ids=["another type", "no topic name", "no topic", "too large", "no packet"],
)
def test_a_packet_that_cannot_take_its_place_is_the_listeners_failure(answer: Packet) -> None:
    site = site_with(listener(Side.CLIENT, PacketType.PUBLISH, lambda packet: answer))
    assert site.client(Publish("t", b"21")) == encoded(Publish("t", b"21"))
    assert site.topics == ["t"]
    assert [type(error) for _, error in site.host.failures] == [LocalProtocolError]


def test_the_node_learns_the_filters_of_the_changed_subscribe() -> None:
    def prefixed(packet: Packet) -> Packet:
        assert isinstance(packet, Subscribe)
        filters = tuple(replace(one, topic_filter=f"site/{one.topic_filter}") for one in packet.subscriptions)
        return replace(packet, packet_id=77, subscriptions=filters)

    site = site_with(listener(Side.CLIENT, PacketType.SUBSCRIBE, prefixed))
    asked = Subscribe(3, (Subscription("a", 1),))
    assert site.client(asked) == encoded(Subscribe(3, (Subscription("site/a", 1),)))
    site.broker(SubAck(3, (1,)))
    assert site.host.granted_filters == [("site/a", 1)]


def test_the_node_learns_of_the_changed_connect_and_its_version_stays() -> None:
    def renamed(packet: Packet) -> Packet:
        return Connect("renamed", 5)

    site = Site(4, (listener(Side.CLIENT, PacketType.CONNECT, renamed),))
    assert site.client(Connect("c", 4)) == encoded(Connect("renamed", 4), version=4)
    assert (site.pair.client.client_id, site.pair.version) == ("renamed", 4)


@pytest.mark.parametrize(("version", "code"), [(4, 5), (5, 0x87)])
def test_a_client_whose_connect_is_rejected_hears_it_in_connack(version: int, code: int) -> None:
    site = Site(version, (listener(Side.CLIENT, PacketType.CONNECT, lambda packet: Reject(0x87, "no")),))
    assert site.client(Connect("c", version)) == b""
    assert site.host.to_client == [encoded(ConnAck(code), version=version)]
    assert site.host.connects == 0
    assert site.pair.error is not None


@pytest.mark.parametrize("watched", [False, True])
def test_the_client_gets_the_changed_delivery_in_its_place(watched: bool) -> None:
    site = site_with(listener(Side.BROKER, PacketType.PUBLISH, unit_added), watched=watched)
    out = site.broker(PingResp(), Publish("t", b"21", 1, packet_id=4), PingResp())
    assert out == encoded(PingResp(), Publish("t", b"21 C", 1, packet_id=4), PingResp())


def test_a_changed_suback_stands_and_keeps_its_place() -> None:
    def lowered(packet: Packet) -> Packet:
        assert isinstance(packet, SubAck)
        return replace(packet, reason_codes=(0,))

    site = site_with(listener(Side.BROKER, PacketType.SUBACK, lowered))
    site.host.barrier = True
    site.client(Subscribe(3, (Subscription("a", 1),)))
    assert site.broker(Publish("x"), SubAck(3, (1,)), Publish("y")) == encoded(Publish("x"))
    assert site.host.granted_filters == [("a", 0)]
    site.pair.end_hold(site.host.hold_points[0])
    assert b"".join(site.host.to_client) == encoded(SubAck(3, (0,)), Publish("y"))


def test_a_changed_acknowledgement_waits_for_the_cluster_as_it_was_changed() -> None:
    def told(packet: Packet) -> Packet:
        assert isinstance(packet, PubAck)
        return replace(packet, reason_code=0x10)

    site = site_with(listener(Side.BROKER, PacketType.PUBACK, told), cluster=True)
    site.client(Publish("t", b"21", 1, packet_id=3))
    assert site.broker(PubAck(3)) == b""
    site.pair.release(site.host.acks[0])
    assert site.host.to_client == [encoded(PubAck(3, 0x10))]


def test_a_changed_connack_can_refuse_a_client() -> None:
    refusing = listener(Side.BROKER, PacketType.CONNACK, lambda packet: ConnAck(0x87))
    site = Site(5, (refusing,))
    site.client(Connect("c", 5))
    assert site.broker(ConnAck()) == encoded(ConnAck(0x87))
    assert site.pair.phase is Phase.REFUSED


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("version", [4, 5])
def test_a_rejected_delivery_is_acknowledged_in_the_clients_stead(version: int, watched: bool) -> None:
    rejecting = listener(Side.BROKER, PacketType.PUBLISH, lambda packet: Reject(0x99))
    site = site_with(rejecting, version=version, watched=watched)
    assert site.broker(Publish("t", b"1", 1, packet_id=4), Publish("t", b"2", 2, packet_id=5)) == b""
    code = 0x99 if version == 5 else 0
    answers = encoded(PubAck(4, code), PubRec(5, code), version=version)
    assert b"".join(site.host.to_broker) == answers
    if version == 4:
        assert site.broker(PubRel(5)) == b""
        assert site.host.to_broker[2:] == [encoded(PubComp(5), version=4)]
    if watched:
        assert sum(map(len, site.host.receipts)) == 2, "nobody keeps them for the client"


def test_any_other_packet_of_the_broker_that_is_rejected_ends_the_pair_and_nothing_follows_it() -> None:
    site = site_with(listener(Side.BROKER, PacketType.SUBACK, lambda packet: Reject(0x87, "no")))
    site.client(Subscribe(3, (Subscription("a", 1),)))
    assert site.broker(Publish("x"), SubAck(3, (1,)), Publish("y")) == encoded(Publish("x"))
    assert site.pair.error is not None
    assert not site.host.granted_filters


@pytest.mark.parametrize("side", list(Side))
def test_listeners_and_the_other_side_see_whole_topics_instead_of_aliases(side: Side) -> None:
    seen: list[Packet] = []

    def first_is_bad(packet: Packet) -> Reject | None:
        seen.append(packet)
        return Reject() if len(seen) == 1 else None

    site = site_with(listener(side, PacketType.PUBLISH, first_is_bad))
    speak = site.client if side is Side.CLIENT else site.broker
    alias = ((Property.TOPIC_ALIAS, 1),)
    assert speak(Publish("long/topic", b"1", properties=alias)) == b""
    assert speak(Publish("", b"2", properties=alias)) == encoded(Publish("long/topic", b"2"))
    assert seen == [Publish("long/topic", b"1"), Publish("long/topic", b"2")]


def test_publications_are_not_looked_at_for_a_listener_that_names_something_else() -> None:
    site = site_with(listener(Side.CLIENT, PacketType.UNSUBSCRIBE, lambda packet: None))
    whole = encoded(Publish("a"), Publish("b"))
    _, items = site.pair._upstream.feed(whole)
    assert [type(item).__name__ for item in items] == ["Routed"]
    assert site.client(Unsubscribe(3, ("a",))) == encoded(Unsubscribe(3, ("a",)))
