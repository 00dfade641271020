from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.links.connection import (
    HANDSHAKE_BYTES,
    AckArrived,
    BatchArrived,
    ControlArrived,
    Established,
    Event,
    LinkConnection,
    LinkRefused,
    PeerLeft,
)
from brokerweave.links.handshake import Acceptor, Dialer, NodeIdentity
from brokerweave.links.lane import Resume
from brokerweave.links.wire import encode_ack, encode_batch
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import PingReq, PingResp, Publish, Subscribe, Subscription
from tests.unit.links.runs import run

SUBSCRIBE = Subscribe(1, (Subscription("a/#", 1),))


def nonce(size: int) -> bytes:
    return b"n" * size


def dialing(key: bytes | None = b"key") -> LinkConnection:
    me = NodeIdentity("a", 7, "sf", 2, key)
    return LinkConnection(Dialer(me, 1, Resume(11, 1), "b", nonce), 0.0, ping_interval=10.0)


def listening(key: bytes | None = b"key") -> LinkConnection:
    me = NodeIdentity("b", 8, "sf", 2, key)
    return LinkConnection(Acceptor(me, lambda hello: Resume(22, 1), nonce), 0.0, ping_interval=10.0)


def exchange(left: LinkConnection, right: LinkConnection) -> tuple[list[Event], list[Event]]:
    """Pass bytes to and fro until both are silent."""
    at_left: list[Event] = []
    at_right: list[Event] = []
    for _ in range(10):
        to_right, to_left = left.data_to_send(), right.data_to_send()
        if not to_right and not to_left:
            return at_left, at_right
        at_right += right.receive(to_right, 0.0)
        at_left += left.receive(to_left, 0.0)
    raise AssertionError("the two never fall silent")


def established() -> tuple[LinkConnection, LinkConnection]:
    left, right = dialing(), listening()
    exchange(left, right)
    assert left.established
    assert right.established
    return left, right


@pytest.mark.parametrize("key", [b"key", None])
def test_both_sides_are_established_with_the_others_resume(key: bytes | None) -> None:
    at_left, at_right = exchange(dialing(key), listening(key))
    assert at_left == [Established("b", 1, 2, 8, Resume(22, 1))]
    assert at_right == [Established("a", 1, 2, 7, Resume(11, 1))]


def test_a_refusal_is_an_event_at_both_ends() -> None:
    left, right = dialing(b"other"), listening()
    [at_left], [at_right] = exchange(left, right)
    assert isinstance(at_left, LinkRefused)
    assert isinstance(at_right, LinkRefused)
    assert not at_left.retry
    assert left.closed
    assert right.closed


@given(st.lists(st.integers(1, 60), max_size=40))
def test_the_stream_may_be_cut_anywhere(sizes: list[int]) -> None:
    left, right = dialing(), listening()
    events: list[Event] = []
    chunks = iter(sizes)
    sent = False
    for _ in range(400):
        if right.established and not sent:
            right.send(encode_batch(1, [run(1), run(2)], 0.0) + encode_ack(4))
            right.send_control(SUBSCRIBE)
            sent = True
        right.receive(left.data_to_send(), 0.0)
        data = right.data_to_send()
        if not data and sent:
            break
        while data:
            size = next(chunks, 1000)
            events += left.receive(data[:size], 0.0)
            data = data[size:]
    assert events[1:] == [BatchArrived(1, [run(1), run(2)]), AckArrived(4), ControlArrived(SUBSCRIBE)]


def test_what_follows_the_handshake_in_one_chunk_may_be_larger_than_a_handshake() -> None:
    left, right = dialing(None), listening(None)
    right.receive(left.data_to_send(), 0.0)
    big = run(1, 2000)
    right.send(encode_batch(1, [big], 0.0))
    data = right.data_to_send()
    assert len(data) > 2 * HANDSHAKE_BYTES
    assert left.receive(data, 0.0)[1:] == [BatchArrived(1, [big])]


def test_publications_on_other_topics_are_control_packets() -> None:
    left, right = established()
    packet = Publish("$brokerweave/other", b"x")
    left.send_control(packet)
    assert exchange(left, right) == ([], [ControlArrived(packet)])


@pytest.mark.parametrize("packet", [SUBSCRIBE, Publish("$brokerweave/batch", b""), PingReq()])
def test_nothing_but_a_handshake_is_read_from_an_unauthenticated_peer(
    packet: Subscribe | Publish | PingReq,
) -> None:
    right = listening()
    with pytest.raises(RemoteProtocolError):
        right.receive(codec.encode(packet, 5), 0.0)
    assert right.closed
    assert right.receive(b"more", 0.0) == []


def test_an_unauthenticated_peer_cannot_announce_a_large_packet() -> None:
    with pytest.raises(RemoteProtocolError, match="too large"):
        listening().receive(b"\x10\xff\xff\x7f", 0.0)


def test_a_second_handshake_is_the_peers_fault() -> None:
    _, right = established()
    with pytest.raises(RemoteProtocolError):
        right.receive(dialing().data_to_send(), 0.0)


def test_a_packet_beyond_the_limit_is_the_peers_fault() -> None:
    left, right = established()
    with pytest.raises(RemoteProtocolError):
        right.receive(b"\x30\xff\xff\xff\x7f", 0.0)
    assert left.receive(b"", 0.0) == []


@pytest.mark.parametrize("removed", [True, False])
def test_leaving_says_whether_the_neighbour_is_removed(removed: bool) -> None:
    left, right = established()
    left.close(removed)
    assert exchange(left, right) == ([], [PeerLeft(removed)])
    assert left.closed
    assert right.closed
    with pytest.raises(LocalProtocolError):
        left.send(b"x")


def test_a_quiet_side_pings_and_the_answer_keeps_it_alive() -> None:
    left, right = established()
    assert left.tick(0.0)
    assert left.tick(9.0)
    assert left.data_to_send() == b""
    assert left.tick(10.0)
    ping = left.data_to_send()
    assert ping == codec.encode(PingReq(), 5)
    assert right.receive(ping, 10.0) == []
    pong = right.data_to_send()
    assert pong == codec.encode(PingResp(), 5)
    assert left.receive(pong, 29.0) == []
    assert left.tick(58.0)
    assert not left.tick(59.0)


def test_a_side_that_sends_does_not_ping() -> None:
    left, _ = established()
    for second in range(25):
        left.send(encode_ack(0))
        left.tick(float(second))
        assert left.data_to_send() == encode_ack(0)


def test_a_handshake_that_trickles_is_dead_after_three_intervals() -> None:
    left, right = dialing(), listening()
    data = left.data_to_send()
    for second in range(29):
        right.receive(data[second : second + 1], float(second))
        assert right.tick(float(second))
    assert not right.tick(30.0)


@given(st.binary(max_size=100))
def test_any_bytes_from_an_unauthenticated_peer_are_waited_for_refused_or_the_peers_fault(
    data: bytes,
) -> None:
    right = listening()
    try:
        events = right.receive(data, 0.0)
    except RemoteProtocolError:
        assert right.closed
        return
    assert all(isinstance(event, LinkRefused) for event in events)


@given(st.binary(max_size=100))
def test_any_bytes_from_a_neighbour_are_read_or_its_fault(data: bytes) -> None:
    _, right = established()
    try:
        right.receive(data, 0.0)
    except RemoteProtocolError:
        assert right.closed
