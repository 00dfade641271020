"""What a pair of a mesh tells its host of what the client has."""

from __future__ import annotations

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import (
    PacketType,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
)
from brokerweave.mqtt.properties import Property
from tests.unit.session.test_pair import Site


@pytest.fixture(params=[4, 5])
def site(request: pytest.FixtureRequest) -> Site:
    site = Site(request.param, watched=True)
    site.connect()
    return site


def named(*payloads: bytes, topic: str = "t") -> list[bytes]:
    return [content_hash(topic, payload) for payload in payloads]


def test_without_a_mesh_deliveries_and_their_answers_pass_unseen() -> None:
    site = Site(4)
    site.connect()
    delivery = codec.encode(Publish("t", b"1", 1, packet_id=1), 4)
    assert site.pair.downstream_open
    assert site.pair._downstream.passes(delivery)
    assert site.pair._upstream.passes(codec.encode(PubAck(1), 4))


def test_topic_and_payload_are_told_apart() -> None:
    assert content_hash("ab", b"c") != content_hash("a", b"bc")
    assert content_hash("ab", b"c") == content_hash(b"ab", b"c")


def test_qos_0_is_received_when_it_is_written(site: Site) -> None:
    site.broker(Publish("t", b"1"), Publish("t", b"2"))
    assert site.host.receipts == [named(b"1", b"2")]


def test_qos_0_to_a_filter_of_more_is_no_receipt_since_it_was_published_so(site: Site) -> None:
    assert site.pair.record is not None
    site.pair.record.filters.update({"t": 1, "u/+": 0})
    site.broker(Publish("t", b"1"), Publish("u/1", b"2"))
    assert site.host.receipts == [named(b"2", topic="u/1")]


def test_qos_0_is_no_receipt_where_all_filters_are_of_more(site: Site) -> None:
    assert site.pair.record is not None
    site.pair.record.filters.update({"t": 1, "$share/g/u": 2})
    site.broker(Publish("t", b"1"), Publish("u", b"1"))
    assert site.host.receipts == []


def test_qos_0_that_stands_is_received_when_the_stream_goes_on(site: Site) -> None:
    site.host.barrier = True
    site.client(Subscribe(3, (Subscription("t", 0),)))
    site.broker(Publish("t", b"1"), SubAck(3, (0,)), Publish("t", b"2"))
    assert site.host.receipts == [named(b"1")]
    site.pair.end_hold(site.host.hold_points[0])
    assert site.host.receipts == [named(b"1"), named(b"2")]


def test_qos_1_is_received_at_puback_and_once_a_chunk_the_host_is_told(site: Site) -> None:
    site.broker(*(Publish("t", b"%d" % n, 1, packet_id=n) for n in (1, 2, 3)))
    assert site.host.receipts == []
    passed = site.client(PubAck(1), PubAck(2))
    assert passed == codec.encode(PubAck(1), 4) + codec.encode(PubAck(2), 4)
    assert site.host.receipts == [named(b"1", b"2")]


def test_qos_2_is_received_at_pubrec_and_only_then(site: Site) -> None:
    site.broker(Publish("t", b"1", 2, packet_id=5))
    site.client(PubRec(5))
    assert site.host.receipts == [named(b"1")]
    site.client(PubRec(5))
    site.broker(PubRel(5))
    site.client(PubComp(5))
    assert site.host.receipts == [named(b"1")]


def test_a_packet_id_used_again_stands_for_the_new_publication(site: Site) -> None:
    for payload in (b"1", b"2"):
        site.broker(Publish("t", payload, 1, packet_id=5))
        site.client(PubAck(5))
    assert site.host.receipts == [named(b"1"), named(b"2")]


def test_an_answer_to_nothing_is_no_receipt(site: Site) -> None:
    site.client(PubAck(9), PubRec(10), PubComp(11))
    assert site.host.receipts == []


def test_a_client_that_refuses_a_publication_has_it_too() -> None:
    site = Site(5, watched=True)
    site.connect()
    site.broker(Publish("t", b"1", 1, packet_id=1), Publish("t", b"2", 2, packet_id=2))
    site.client(PubAck(1, 0x97), PubRec(2, 0x97))
    assert site.host.receipts == [named(b"1", b"2")]
    site.pair.redeliver([Publish("t", b"3", 1)], lambda: None)  # no id is in the way any more
    assert site.host.to_client


def test_a_retained_copy_is_no_receipt(site: Site) -> None:
    site.broker(Publish("t", b"0", retain=True), Publish("t", b"1", 1, retain=True, packet_id=1))
    site.client(PubAck(1))
    assert site.host.receipts == []


def test_with_retain_as_published_the_flag_says_nothing() -> None:
    site = Site(5, watched=True)
    site.connect()
    site.client(Subscribe(1, (Subscription("t", 1, retain_as_published=True),)))
    site.broker(SubAck(1, (1,)), Publish("t", b"0", retain=True))
    assert site.host.receipts == [named(b"0")]


def test_the_brokers_topic_aliases_are_resolved() -> None:
    site = Site(5, watched=True)
    site.connect()
    alias = ((Property.TOPIC_ALIAS, 3),)
    site.broker(Publish("t", b"1", properties=alias), Publish("", b"2", properties=alias))
    assert site.host.receipts == [named(b"1", b"2")]
    site.broker(Publish("", b"3", properties=((Property.TOPIC_ALIAS, 4),)))
    assert site.pair.error is not None


@pytest.mark.parametrize("kind", [PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP])
def test_a_malformed_answer_is_a_protocol_error(site: Site, kind: PacketType) -> None:
    site.pair.from_client(bytes((kind << 4, 2, 0, 0)))
    assert site.pair.error is not None
