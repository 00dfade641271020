"""Packet identifiers, and which runs are complete."""

import pytest

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.inflight import MAX_PACKET_ID, Inflight, Message, OpenRuns, Stage, read_message
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import PingReq, Publish


def one(qos: int = 2) -> Message:
    frame = codec.encode(Publish("t", b"", qos, packet_id=1), 4)
    found = read_message(frame, 4, 2, 0.0, 1)
    found.qos = qos
    return found


def admitted(inflight: Inflight) -> int:
    message = one()
    inflight.admit(message)
    return message.packet_id


def test_identifiers_in_use_are_passed_over_when_they_come_round_again() -> None:
    inflight = Inflight()
    assert [admitted(inflight), admitted(inflight)] == [1, 2]
    for _ in range(MAX_PACKET_ID - 2):
        message = one()
        inflight.admit(message)
        inflight.finish(message)
    assert admitted(inflight) == 3


def test_an_identifier_given_up_is_not_used_again_until_the_session_is_forgotten() -> None:
    inflight = Inflight()
    burnt = one()
    inflight.admit(burnt)
    inflight.finish(burnt, burn=True)
    ids = {admitted(inflight) for _ in range(MAX_PACKET_ID - 1)}
    assert ids == set(range(2, MAX_PACKET_ID + 1))
    assert inflight.full
    inflight.forgotten()
    assert admitted(inflight) == 1


def test_only_what_was_sent_and_not_answered_waits_again_in_its_order() -> None:
    inflight = Inflight()
    messages = [one() for _ in range(4)]
    for message in messages:
        inflight.admit(message)
        inflight.sent(message, 0.0)
    messages[1].stage = Stage.RELEASED
    inflight.finish(messages[2])
    assert inflight.unanswered == 3
    assert inflight.interrupted() == [messages[0], messages[3]]
    assert inflight.unanswered == 0
    assert inflight.resumed(inflight, 5.0) == [messages[1]]
    assert inflight.unanswered == 1
    assert [m.dup for m in messages] == [True, False, False, True]


def test_a_frame_that_is_no_publish_cannot_be_read() -> None:
    with pytest.raises(RemoteProtocolError):
        read_message(codec.encode(PingReq(), 4), 4, 2, 0.0, 1)


def test_runs_are_reported_complete_in_their_order_only() -> None:
    open_runs = OpenRuns()
    open_runs.opened(7, 2)
    open_runs.opened(8, 1)
    open_runs.opened(9, 1)
    assert open_runs.ended(8) is None
    assert open_runs.ended(7) is None
    assert sum(open_runs._left.values()) == 2
    assert open_runs.ended(7) == 8
    assert open_runs.ended(9) == 9
