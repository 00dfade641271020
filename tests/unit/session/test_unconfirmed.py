"""Publications that a client sent again and the node answers in the broker's stead."""

from __future__ import annotations

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.frames import split
from brokerweave.mqtt.packets import ConnAck, Connect, Packet, PubAck, PubComp, Publish, PubRec, PubRel
from brokerweave.mqtt.properties import Property
from tests.unit.session.test_pair import Site


@pytest.fixture(params=[4, 5])
def site(request: pytest.FixtureRequest) -> Site:
    site = Site(request.param, watched=True)
    site.connect()
    site.host.acted_on = {b"known"}
    return site


def resent(packet_id: int, qos: int = 1, payload: bytes = b"known", topic: str = "t") -> Publish:
    return Publish(topic, payload, qos, dup=True, packet_id=packet_id)


def written(site: Site) -> list[Packet]:
    packets = [codec.decode(frame, site.version) for frame in split(b"".join(site.host.to_client))]
    site.host.to_client.clear()
    return packets


def encoded(site: Site, *packets: Packet) -> bytes:
    return b"".join(codec.encode(packet, site.version) for packet in packets)


def test_one_that_was_acted_on_does_not_reach_the_broker_and_nothing_else_is_lost(site: Site) -> None:
    around = Publish("a", b"1"), Publish("b", b"2", 1, packet_id=2)
    assert site.client(around[0], resent(1), around[1]) == encoded(site, *around)
    assert site.host.counters == {"publications_resent": 1}


def test_one_that_nobody_knows_goes_on_as_it_is(site: Site) -> None:
    unknown = resent(1, payload=b"new")
    assert site.client(unknown) == encoded(site, unknown)
    assert site.host.forwarded == []


def test_one_without_dup_is_new(site: Site) -> None:
    new = Publish("t", b"known", 1, packet_id=1)
    assert site.client(new) == encoded(site, new)


def test_its_acknowledgement_waits_for_the_cluster(site: Site) -> None:
    site.client(resent(1))
    assert site.host.forwarded == [Publish("t", b"known", 1, dup=True, packet_id=1)]
    assert site.host.acks[0].resent
    assert written(site) == []
    site.pair.release(site.host.acks[0])
    assert written(site) == [PubAck(1)]


def test_a_qos_2_exchange_is_seen_through_by_the_node(site: Site) -> None:
    assert site.client(resent(1, qos=2)) == b""
    site.pair.release(site.host.acks[0])
    assert written(site) == [PubRec(1)]
    assert site.client(PubRel(1)) == b""
    assert written(site) == [PubComp(1)]
    assert site.client(PubRel(1)) == encoded(site, PubRel(1))


def test_a_qos_2_publication_that_the_brokers_session_knows_stays_with_the_broker(site: Site) -> None:
    first = Publish("t", b"known", 2, packet_id=1)
    site.client(first)
    site.broker(PubRec(1))
    assert site.client(resent(1, qos=2)) == encoded(site, resent(1, qos=2))
    assert site.client(PubRel(1)) == encoded(site, PubRel(1))


def test_one_that_the_broker_has_yet_to_answer_stays_with_the_broker(site: Site) -> None:
    site.client(Publish("t", b"known", 1, packet_id=1))
    assert site.client(resent(1)) == encoded(site, resent(1))


def test_the_nodes_answer_keeps_behind_those_that_the_broker_owes(site: Site) -> None:
    site.client(Publish("t", b"a", 1, packet_id=1), resent(2), Publish("t", b"b", 1, packet_id=3), resent(4))
    assert [publish.packet_id for publish in site.host.forwarded] == []
    assert site.broker(PubAck(1), PubAck(3)) == b""
    assert [publish.packet_id for publish in site.host.forwarded] == [1, 2, 3, 4]
    for ack in reversed(site.host.acks):
        site.pair.release(ack)
    assert written(site) == [PubAck(number) for number in (1, 2, 3, 4)]


def test_the_nodes_answer_keeps_behind_one_that_the_broker_refuses() -> None:
    site = Site(5, watched=True)
    site.connect()
    site.host.acted_on = {b"known"}
    site.client(Publish("t", b"a", 1, packet_id=1), resent(2))
    assert site.broker(PubAck(1, 0x87)) == b""
    site.pair.release(site.host.acks[0])
    assert written(site) == [PubAck(1, 0x87), PubAck(2)]


def test_what_waits_for_the_broker_counts_against_the_clients_queue(site: Site) -> None:
    site.host.acted_on = {bytes(3000)}
    site.client(Publish("t", b"a", 1, packet_id=1))
    assert not site.pair.wants_pause
    site.client(resent(2, payload=bytes(3000)), resent(3, payload=bytes(3000)))
    assert site.pair.wants_pause
    site.broker(PubAck(1))
    assert not site.pair.wants_pause


def test_before_connack_it_goes_on_as_it_is() -> None:
    site = Site(4, watched=True)
    site.host.acted_on = {b"known"}

    site.client(Connect("c"))
    assert site.client(resent(1)) == encoded(site, resent(1))
    site.broker(ConnAck())
    assert site.host.forwarded == []


def test_the_topic_behind_an_alias_is_shown_and_an_alias_the_broker_must_learn_goes_on() -> None:
    site = Site(5, watched=True)
    site.connect()
    site.host.acted_on = {b"known"}
    alias = ((Property.TOPIC_ALIAS, 3),)
    learns = Publish("t", b"known", 1, dup=True, packet_id=1, properties=alias)
    assert site.client(learns) == encoded(site, learns)
    assert site.client(Publish("", b"known", 1, dup=True, packet_id=2, properties=alias)) == b""
    site.broker(PubAck(1))
    assert site.host.forwarded[-1] == Publish("t", b"known", 1, dup=True, packet_id=2)
