"""What a pair offers to the edge log, and when: before the client hears an acknowledgement."""

from __future__ import annotations

import pytest

from brokerweave.mqtt.packets import ConnAck, Connect, Packet, PubAck, PubComp, Publish, PubRec, PubRel
from brokerweave.mqtt.properties import Property
from tests.unit.session.test_pair import Site


def recording(version: int = 4, cluster: bool = False) -> Site:
    site = Site(version, records=True, cluster=cluster)
    site.connect()
    return site


def test_without_taps_nothing_is_recorded() -> None:
    site = Site(4)
    site.connect()
    site.client(Publish("t", b"1", 1, packet_id=1))
    site.broker(PubAck(1))
    assert site.host.events == []


@pytest.mark.parametrize("version", [4, 5])
def test_qos_0_is_recorded_as_it_arrives(version: int) -> None:
    site = recording(version)
    site.client(Publish("t", b"1"), Publish("t", b"2"))
    assert site.host.recorded == [(b"1", False), (b"2", False)]
    assert site.host.events == ["record"]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize(("qos", "answer"), [(1, PubAck(7)), (2, PubRec(7))])
def test_what_is_acknowledged_is_recorded_and_written_before_the_client_hears_it(
    version: int, cluster: bool, qos: int, answer: PubAck | PubRec
) -> None:
    site = recording(version, cluster)
    site.client(Publish("t", b"1", qos, packet_id=7))
    assert "write" not in site.host.events
    site.broker(answer)
    assert site.host.events == ["record", "write"]
    assert site.host.recorded == [(b"1", False)]
    site.broker(PubComp(7))
    assert len(site.host.events) == 2


def test_topics_that_no_tap_wants_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    site = recording()
    monkeypatch.setattr(site.host, "tapped", lambda group: False)
    site.client(Publish("t", b"1", 1, packet_id=1))
    site.broker(PubAck(1))
    assert "write" not in site.host.events


@pytest.mark.parametrize(("version", "cluster"), [(5, False), (5, True)])
@pytest.mark.parametrize(("qos", "answer"), [(1, PubAck(7, 0x87)), (2, PubRec(7, 0x97))])
def test_what_the_broker_refuses_is_not_recorded(
    version: int, cluster: bool, qos: int, answer: PubAck | PubRec
) -> None:
    site = recording(version, cluster)
    site.client(Publish("t", b"1", qos, packet_id=7), Publish("t", b"2"))
    site.broker(answer)
    site.pair.ended()
    assert site.host.recorded == [(b"2", False)]
    assert site.host.counters.get("tap_refused", 0) == (0 if cluster else 1)


def test_in_mqtt_5_what_waits_is_forwarded_meanwhile_and_bytes_pass_unchanged() -> None:
    site = recording(5)
    sent = Publish("t", b"1", 1, packet_id=7)
    assert site.client(sent) != b""
    assert site.topics == ["t"]
    assert site.host.recorded == []


@pytest.mark.parametrize("cluster", [False, True])
def test_what_was_not_answered_when_the_connection_ended_is_recorded(cluster: bool) -> None:
    site = recording(5, cluster)
    site.client(Publish("t", b"1", 1, packet_id=7), Publish("t", b"2", 2, packet_id=8))
    site.broker(PubAck(7))
    site.pair.ended()
    assert site.host.recorded == [(b"1", False), (b"2", False)]


@pytest.mark.parametrize("cluster", [False, True])
def test_what_the_broker_did_not_answer_before_it_hung_up_is_not_recorded(cluster: bool) -> None:
    site = recording(5, cluster)
    site.client(Publish("t", b"1", 1, packet_id=7), Publish("t", b"2", 1, packet_id=8))
    site.broker(PubAck(7))
    site.pair.ended(broker_left=True)
    assert site.host.recorded == [(b"1", False)]
    counter = "unacknowledged_publications" if cluster else "tap_unanswered"
    assert site.host.counters[counter] == 1


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("cluster", [False, True])
def test_a_row_says_that_the_client_resent_it(version: int, cluster: bool) -> None:
    site = recording(version, cluster)
    answers: list[Packet] = [PubAck(6), PubAck(7), PubRec(8)]
    site.client(
        Publish("t", b"1", 1, packet_id=6),
        Publish("t", b"2", 1, dup=True, packet_id=7),
        Publish("t", b"3", 2, dup=True, packet_id=8),
    )
    site.broker(*answers)
    assert site.host.recorded == [(b"1", False), (b"2", True), (b"3", True)]
    assert [packet.dup for packet in site.host.forwarded] == [False] * 3


@pytest.mark.parametrize("version", [4, 5])
def test_a_resent_qos_2_publication_is_one_more_row_but_goes_to_no_link_again(version: int) -> None:
    site = recording(version)
    site.client(Publish("t", b"1", 2, packet_id=8))
    site.broker(PubRec(8))
    site.client(Publish("t", b"1", 2, dup=True, packet_id=8))
    site.broker(PubRec(8))
    assert site.host.recorded == [(b"1", False), (b"1", True)]
    assert site.topics == ["t"]
    site.client(PubRel(8))


def test_an_alias_is_resolved_before_recording() -> None:
    site = recording(5)
    site.client(
        Publish("t", b"1", properties=((Property.TOPIC_ALIAS, 1),)),
        Publish("", b"2", 1, packet_id=3, properties=((Property.TOPIC_ALIAS, 1),)),
    )
    site.broker(PubAck(3))
    assert site.host.recorded == [(b"1", False), (b"2", False)]


def test_nothing_of_a_client_that_the_broker_refuses_is_recorded() -> None:
    site = Site(4, records=True)
    site.client(Connect("c", 4), Publish("t", b"1", 1, packet_id=1))
    site.broker(ConnAck(5))
    assert site.host.recorded == []


def test_dollar_topics_are_not_recorded() -> None:
    site = recording(5)
    site.client(Publish("$x", b"1"), Publish("$x", b"2", 2, packet_id=1))
    site.client(Publish("$x", b"2", 2, dup=True, packet_id=1))
    site.broker(PubRec(1))
    assert site.host.recorded == []


def test_a_client_with_too_much_unanswered_is_not_slowed_down() -> None:
    site = recording(5)
    for number in range(1, 21):
        site.client(Publish("t", b"x" * 500, 1, packet_id=number))
    assert not site.pair.wants_pause
    early = len(site.host.recorded)
    assert 0 < early < 20
    site.broker(*(PubAck(number) for number in range(1, 21)))
    assert len(site.host.recorded) == 20
