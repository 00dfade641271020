"""What is in flight, read from frames that pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.gateway.ledger import TO_ACKNOWLEDGE, TO_COMPLETE, TO_RECEIVE, TO_RELEASE, Ledger
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Packet, PubAck, PubComp, Publish, PubRec, PubRel, Subscribe, Subscription


def nowhere(file: int, data: bytes) -> int:
    return len(data)


def frames(*packets: Packet, version: int = 5) -> bytes:
    return b"".join(codec.encode(each, version) for each in packets)


@pytest.mark.parametrize("version", [4, 5])
def test_a_publication_is_kept_until_the_site_took_it(version: int) -> None:
    ledger = Ledger(1000, nowhere)
    first, second = Publish("t", b"1", 1, packet_id=1), Publish("t", b"x" * 300, 2, packet_id=2)
    plain = Publish("t", b"0")
    ledger.up(frames(plain, first, Subscribe(9, (Subscription("t", 1),)), second, version=version))
    assert list(ledger.sent) == [1, 2]
    assert ledger.sent[2] == codec.encode(second, version)
    ledger.down(frames(PubAck(1), PubRec(2), version=version))
    assert (ledger.sent, ledger.received) == ({}, {2: False})
    ledger.up(frames(PubRel(2), version=version))
    assert ledger.received == {2: True}
    ledger.down(frames(PubComp(2), version=version))
    assert ledger.received == {}


def test_a_refused_publication_is_over() -> None:
    ledger = Ledger(1000, nowhere)
    ledger.up(frames(Publish("t", b"", 2, packet_id=1)))
    ledger.down(frames(PubRec(1, 0x97)))
    assert (ledger.sent, ledger.received) == ({}, {})


def test_a_delivery_is_open_until_its_last_answer() -> None:
    ledger = Ledger(1000, nowhere)
    ledger.down(frames(Publish("t", b"", 1, packet_id=1), Publish("t", b"", 2, packet_id=2)))
    assert ledger.open == {1: TO_ACKNOWLEDGE, 2: TO_RECEIVE}
    ledger.up(frames(PubAck(1), PubRec(2)))
    assert ledger.open == {2: TO_RELEASE}
    ledger.down(frames(PubRel(2)))
    assert ledger.open == {2: TO_COMPLETE}
    ledger.up(frames(PubComp(2)))
    assert ledger.open == {}


def test_more_than_may_be_kept_is_said_and_forgotten_when_all_is_answered() -> None:
    ledger = Ledger(100, nowhere)
    ledger.up(frames(Publish("t", b"x" * 60, 1, packet_id=1), Publish("t", b"x" * 60, 1, packet_id=2)))
    assert not ledger.complete
    assert ledger.sent[2] == b""
    ledger.down(frames(PubAck(2), PubAck(1)))
    assert ledger.complete


def test_a_passage_writes_through_the_ledger() -> None:
    written: list[tuple[int, bytes]] = []

    def write(file: int, data: bytes) -> int:
        written.append((file, data))
        return len(data)

    ledger = Ledger(1000, write)
    up, down = frames(Publish("t", b"", 1, packet_id=1)), frames(Publish("t", b"", 1, packet_id=7))
    assert (ledger.pass_up(3, up), ledger.pass_down(4, down)) == (len(up), len(down))
    assert written == [(3, up), (4, down)]
    assert (list(ledger.sent), ledger.open) == ([1], {7: TO_ACKNOWLEDGE})


@given(st.binary(max_size=200))
def test_any_bytes_do_no_harm(data: bytes) -> None:
    ledger = Ledger(100, nowhere)
    ledger.up(data)
    ledger.down(data)
    assert all(0 <= number <= 0xFFFF for number in [*ledger.sent, *ledger.open, *ledger.received])
