"""What nodes say about clients that moved reads back equal, and garbage is refused."""

from contextlib import suppress
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.care import wire
from brokerweave.care.held import hold
from brokerweave.care.ids import MessageId
from brokerweave.care.wills import PendingWill
from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import Publish, Will
from brokerweave.mqtt.properties import Property
from tests.unit.care.messages import held

DECODERS = [
    wire.decode_receipts,
    wire.decode_got,
    wire.decode_ask,
    lambda payload: wire.decode_answer(payload, 0.0),
    lambda payload: wire.decode_late(payload, 0.0),
    wire.decode_will,
]
WILL = PendingWill("c", "d", 7, 5, Will("w", b"gone", 1, True, ((Property.WILL_DELAY_INTERVAL, 5),)), 60)
PAYLOADS = [
    wire.encode_receipts({"c": [b"12345678", b"12345678"], "b": [b"abcdefgh"]})[0],
    wire.encode_got({"c": [MessageId("p", 1, 0, 2)]})[0],
    wire.encode_ask(wire.Ask(3, 1 << 63, "é")),
    next(wire.encode_answer(3, "c", [held(1), held(2)], 0.0)),
    next(wire.encode_late(9, "c", [held(1)], 0.0)),
    wire.encode_will(WILL),
]


def test_topic_and_payload_do_not_run_into_each_other() -> None:
    assert content_hash("a", b"b") != content_hash("ab", b"")
    assert content_hash("a", b"b") == content_hash("a", b"b")


def test_receipts_read_back_equal() -> None:
    receipts = {"c": [b"12345678", b"12345678"], "é": [b"abcdefgh"]}
    (payload,) = wire.encode_receipts(receipts)
    assert dict(wire.decode_receipts(payload)) == receipts


def test_many_receipts_are_cut_into_several_payloads() -> None:
    hashes = [number.to_bytes(8) for number in range(30_000)]
    payloads = wire.encode_receipts({"c": hashes})
    assert len(payloads) > 1
    assert max(map(len, payloads)) <= wire.PAGE
    assert [
        one for payload in payloads for _, some in wire.decode_receipts(payload) for one in some
    ] == hashes


def test_ids_read_back_equal() -> None:
    ids = [MessageId("p" * 255, (1 << 64) - 1, 255, number) for number in range(2_000)]
    payloads = wire.encode_got({"c": ids})
    assert [one for payload in payloads for _, some in wire.decode_got(payload) for one in some] == ids


def test_a_question_reads_back_equal() -> None:
    for age in (0.0, 2.5, inf):
        ask = wire.Ask(3, 1 << 63, "é", age)
        assert wire.decode_ask(wire.encode_ask(ask)) == ask


@pytest.mark.parametrize("age", [-1.0, nan])
def test_a_question_for_what_is_of_no_age_is_refused(age: float) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.decode_ask(wire.encode_ask(wire.Ask(3, 1, "c", age)))


def test_an_empty_queue_is_an_answer_too() -> None:
    (payload,) = wire.encode_answer(3, "c", [], 0.0)
    assert wire.decode_answer(payload, 0.0) == wire.Answer(3, True, "c", [])


def test_a_long_queue_is_cut_into_several_answers_the_last_one_marked() -> None:
    queue = [held(number, "x" * 1000) for number in range(200)]
    answers = [wire.decode_answer(payload, 0.0) for payload in wire.encode_answer(3, "c", queue, 0.0)]
    assert [answer.last for answer in answers] == [False] * (len(answers) - 1) + [True]
    assert len(answers) > 2
    assert [one for answer in answers for one in answer.held] == queue


def test_a_large_publication_travels_alone() -> None:
    queue = [held(1), held(2, "x" * 100_000), held(3)]
    answers = [wire.decode_answer(payload, 0.0) for payload in wire.encode_answer(3, "c", queue, 0.0)]
    assert [[one.id.sequence for one in answer.held] for answer in answers] == [[1], [2], [3]]


def test_publications_keep_their_age_between_clocks_that_differ() -> None:
    (payload,) = wire.encode_late(9, "c", [held(1, born=95.0)], now=100.0)
    (one,) = wire.decode_late(payload, now=1_000.0).held
    assert one == held(1, born=995.0)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publications_keep_qos_retain_and_properties(qos: int) -> None:
    publish = Publish("t", b"x", qos, True, properties=((Property.USER_PROPERTY, ("k", "v")),))
    one = hold(MessageId("p", 1, 0, 1), publish, 5, 0.0)
    (payload,) = wire.encode_answer(3, "c", [one], 0.0)
    assert wire.decode_answer(payload, 0.0).held == [one]


@pytest.mark.parametrize("version", [3, 4])
def test_wills_read_back_equal(version: int) -> None:
    old = PendingWill("c", "d", 7, version, Will("w", b"", 2))
    for change in (WILL, old, wire.Cleared("c", "d", 7)):
        assert wire.decode_will(wire.encode_will(change)) == change


@pytest.mark.parametrize("number", range(len(DECODERS)))
@given(data=st.data())
def test_garbage_is_refused_as_the_neighbours_fault(number: int, data: st.DataObject) -> None:
    payload = PAYLOADS[number]
    at = data.draw(st.integers(0, len(payload) - 1))
    damaged = payload[:at] + data.draw(st.binary(max_size=6)) + payload[at + data.draw(st.integers(0, 3)) :]
    for garbage in (damaged, data.draw(st.binary(max_size=40))):
        with suppress(RemoteProtocolError):
            DECODERS[number](garbage)


@pytest.mark.parametrize("number", range(len(DECODERS)))
def test_a_payload_that_is_cut_off_is_refused(number: int) -> None:
    with pytest.raises(RemoteProtocolError):
        DECODERS[number](PAYLOADS[number][:-1])


def test_a_count_that_cannot_be_is_refused_without_reserving_room_for_it() -> None:
    with pytest.raises(RemoteProtocolError):
        wire.decode_got(wire.encode_text("c") + b"\xff\xff\xff\xff")
