"""A broker that takes two unreleased QoS 2 publications of a client is never handed a third."""

from __future__ import annotations

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Packet, Publish, PubRec, PubRel
from tests.unit.session.test_pair import Site

ROOM = 2


@pytest.fixture(params=["cluster", "watched"])
def site(request: pytest.FixtureRequest) -> Site:
    site = Site(4, cluster=True, watched=request.param == "watched", room=ROOM)
    site.connect()
    return site


def sent(packet_id: int, payload: bytes = b"", qos: int = 2) -> Publish:
    return Publish("t", payload, qos, packet_id=packet_id)


def encoded(*packets: Packet, version: int = 4) -> bytes:
    return b"".join(codec.encode(packet, version) for packet in packets)


def test_what_the_broker_has_no_room_for_waits_and_follows_the_next_releases_in_order(site: Site) -> None:
    assert site.client(*map(sent, (1, 2, 3, 4, 5))) == encoded(sent(1), sent(2))
    site.broker(PubRec(1), PubRec(2))
    assert site.client(PubRel(1), PubRel(2)) == encoded(PubRel(1), sent(3), PubRel(2), sent(4))
    site.broker(PubRec(3))
    assert site.client(PubRel(3)) == encoded(PubRel(3), sent(5))


def test_what_waits_is_forwarded_only_when_the_broker_has_had_it(site: Site) -> None:
    site.client(*map(sent, (1, 2, 3)))
    assert site.pair.unanswered == [sent(1), sent(2)]
    site.broker(PubRec(1), PubRec(2))
    assert [publish.packet_id for publish in site.host.forwarded] == [1, 2]
    site.client(PubRel(1))
    assert site.pair.unanswered == [sent(3)]
    site.broker(PubRec(3))
    assert [publish.packet_id for publish in site.host.forwarded] == [1, 2, 3]


def test_nothing_else_waits_for_room(site: Site) -> None:
    other = sent(9, qos=1), Publish("t")
    assert site.client(*map(sent, (1, 2, 3)), *other) == encoded(sent(1), sent(2), *other)


def test_one_that_is_sent_again_needs_no_room_of_its_own(site: Site) -> None:
    site.client(sent(1), sent(2))
    again = Publish("t", b"", 2, dup=True, packet_id=1)
    assert site.client(again) == encoded(again)


def test_a_session_that_goes_on_has_less_room_for_what_was_not_released() -> None:
    site = Site(4, cluster=True, room=ROOM)
    site.host.record.incoming_qos2 = {7}
    site.client(Connect("c", 4, clean_start=False))
    site.broker(ConnAck(session_present=True))
    assert site.client(sent(1), sent(2)) == encoded(sent(1))
    assert site.client(PubRel(7)) == encoded(PubRel(7), sent(2))


def test_room_is_counted_before_the_broker_has_accepted_the_client() -> None:
    site = Site(4, cluster=True, room=ROOM)
    connect = Connect("c", 4)
    assert site.client(connect, *map(sent, (1, 2, 3))) == encoded(connect, sent(1), sent(2))


def test_beyond_its_bytes_the_oldest_goes_on_all_the_same_and_is_counted(site: Site) -> None:
    large = bytes(site.pair.limits.client_queue)
    assert site.client(sent(1), sent(2), sent(3), sent(4, large)) == encoded(
        sent(1), sent(2), sent(3), sent(4, large)
    )
    assert site.host.counters == {"broker_room_exceeded": 2}


def test_what_waited_when_the_client_left_was_never_acknowledged_and_is_not_forwarded(site: Site) -> None:
    site.client(*map(sent, (1, 2, 3)))
    site.pair.ended()
    assert [publish.packet_id for publish in site.host.forwarded] == [1, 2]
    assert site.host.counters == {"unacknowledged_publications": 3}


def test_an_mqtt_5_client_keeps_to_receive_maximum_itself() -> None:
    site = Site(5, cluster=True, room=ROOM)
    site.connect()
    three = sent(1), sent(2), sent(3)
    assert site.client(*three) == encoded(*three, version=5)


def test_where_the_node_keeps_no_acknowledgement_back_it_keeps_no_publication_back() -> None:
    site = Site(4, room=ROOM)
    site.connect()
    three = sent(1), sent(2), sent(3)
    assert site.client(*three) == encoded(*three)
