from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.links.run import Run
from brokerweave.links.wire import (
    ACK_TOPIC,
    BATCH_TOPIC,
    MAX_PLAN,
    decode_ack,
    decode_batch,
    decode_record,
    encode_ack,
    encode_batch,
    encode_record,
    open_publish,
)
from tests.unit.links.runs import run

NOW = 5000.0

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
sequences = st.integers(0, 2**62)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    count = draw(st.integers(1, 20))
    return Run(
        origin=draw(names),
        epoch=draw(st.integers(0, 2**64 - 1)),
        first=draw(sequences),
        count=count,
        version=draw(st.sampled_from([4, 5])),
        max_qos=draw(st.integers(0, 2)),
        cap=draw(st.integers(0, 2)),
        # Ages on the wire are whole milliseconds; powers of two stay exact.
        born=NOW - draw(st.integers(0, 4000)) / 8,
        blob=draw(st.binary(min_size=5 * count, max_size=5 * count + 100)),
        holds=tuple(draw(st.lists(names, max_size=3))),
        sender=draw(st.none() | st.tuples(st.text(max_size=60), st.integers(1, 0xFFFF)))
        if count == 1
        else None,
        plan=draw(st.binary(max_size=30)),
    )


def payload_of(frame: bytes, topic: bytes) -> memoryview:
    opened = open_publish(frame)
    assert opened is not None
    assert opened[0] == topic
    return opened[1]


def test_what_only_a_mesh_needs_costs_nothing_elsewhere() -> None:
    plain, marked = run(), replace(run(), holds=("d",), sender=("c", 7))
    assert len(encode_record(marked)) == len(encode_record(plain)) + 1 + 2 + 4 + 1


def test_a_plan_costs_its_length_and_has_a_bound() -> None:
    longest = replace(run(), plan=bytes(MAX_PLAN))
    assert len(encode_record(longest)) == len(encode_record(run())) + 2 + MAX_PLAN
    assert decode_record(encode_record(longest)) == longest
    with pytest.raises(LocalProtocolError, match="a plan of"):
        encode_record(replace(run(), plan=bytes(MAX_PLAN + 1)))


@given(st.integers(1, 2**62), st.lists(runs(), min_size=1, max_size=5))
def test_a_batch_reads_back_as_it_was_written(first: int, batch: list[Run]) -> None:
    payload = payload_of(encode_batch(first, batch, NOW), BATCH_TOPIC)
    assert decode_batch(payload, NOW) == (first, batch)


@given(runs())
def test_a_record_reads_back_as_it_was_written(one: Run) -> None:
    assert decode_record(encode_record(one)) == one


@given(st.integers(0, 2**64 - 1))
def test_an_acknowledgement_reads_back_as_it_was_written(sequence: int) -> None:
    assert decode_ack(payload_of(encode_ack(sequence), ACK_TOPIC)) == sequence


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_the_peers_fault(data: bytes) -> None:
    for decode in (decode_ack, decode_record, open_publish, lambda data: decode_batch(data, NOW)):
        try:
            decode(data)
        except RemoteProtocolError:
            continue


@given(st.lists(runs(), min_size=1, max_size=3), st.data())
def test_a_damaged_batch_decodes_or_is_the_peers_fault(batch: list[Run], data: st.DataObject) -> None:
    payload = bytearray(payload_of(encode_batch(1, batch, NOW), BATCH_TOPIC))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        _, decoded = decode_batch(bytes(payload), NOW)
    except RemoteProtocolError:
        return
    assert sum(len(one.blob) for one in decoded) <= len(payload)


@given(st.lists(runs(), min_size=1, max_size=3), st.data())
def test_a_shortened_batch_is_the_peers_fault(batch: list[Run], data: st.DataObject) -> None:
    payload = payload_of(encode_batch(1, batch, NOW), BATCH_TOPIC)
    with pytest.raises(RemoteProtocolError):
        decode_batch(payload[: data.draw(st.integers(0, len(payload) - 1))], NOW)


def test_bytes_after_the_last_run_are_the_peers_fault() -> None:
    payload = bytes(payload_of(encode_batch(1, [run()], NOW), BATCH_TOPIC))
    with pytest.raises(RemoteProtocolError, match="goes on"):
        decode_batch(payload + b"x", NOW)


def test_a_batch_without_runs_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="without runs"):
        decode_batch(payload_of(encode_batch(1, [], NOW), BATCH_TOPIC), NOW)


def test_a_batch_of_another_version_is_the_peers_fault() -> None:
    payload = bytes(payload_of(encode_batch(1, [run()], NOW), BATCH_TOPIC))
    with pytest.raises(RemoteProtocolError, match="version 9"):
        decode_batch(b"\x09" + payload[1:], NOW)


@pytest.mark.parametrize(
    "bad",
    [
        Run("a", 1, 1, 0, 4, 1, 2, 0.0, b"12345"),  # no messages
        Run("a", 1, 1, 2, 4, 1, 2, 0.0, b"123456789"),  # two messages need ten bytes
        Run("a", 1, 1, 1, 4, 3, 2, 0.0, b"12345"),  # QoS 3
        Run("a", 1, 1, 1, 4, 1, 3, 0.0, b"12345"),
        Run("a", 1, 2**63, 1, 4, 1, 2, 0.0, b"12345"),  # past the last sequence
    ],
)
def test_an_impossible_run_is_the_peers_fault(bad: Run) -> None:
    payload = payload_of(encode_batch(1, [bad], NOW), BATCH_TOPIC)
    with pytest.raises(RemoteProtocolError):
        decode_batch(payload, NOW)


@pytest.mark.parametrize("origin", ["", "x" * 256])
def test_an_origin_that_does_not_fit_is_our_own_fault(origin: str) -> None:
    with pytest.raises(LocalProtocolError):
        encode_batch(1, [run(origin=origin)], NOW)


def test_a_run_grows_older_on_its_way() -> None:
    frame = encode_batch(1, [run(born=90.0)], 100.0)
    _, [arrived] = decode_batch(payload_of(frame, BATCH_TOPIC), 7.0)
    assert arrived.born == -3.0


def test_a_run_from_the_future_has_no_age() -> None:
    frame = encode_batch(1, [run(born=90.0)], 50.0)
    _, [arrived] = decode_batch(payload_of(frame, BATCH_TOPIC), 7.0)
    assert arrived.born == 7.0


def test_other_publications_are_left_to_the_codec() -> None:
    assert open_publish(b"\x30\x05\x00\x01t\x00x") is None


def test_a_retained_batch_is_the_peers_fault() -> None:
    frame = encode_batch(1, [run()], NOW)
    with pytest.raises(RemoteProtocolError):
        open_publish(b"\x31" + frame[1:])
