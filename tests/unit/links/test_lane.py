from __future__ import annotations

import pytest

from brokerweave.errors import BrokerweaveError, RemoteProtocolError
from brokerweave.links.lane import Lane, Resume
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.links.wire import BATCH_TOPIC, decode_ack, decode_batch, open_publish
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import PingReq
from brokerweave.mqtt.scanner import Frame, Scanner
from tests.unit.links.runs import run

SIZE = run().size


def deliver(data: bytes, to: Lane, *, confirm: bool = True) -> list[Run]:
    """Hand what one lane's `poll` gave to the other lane."""
    got: list[Run] = []
    for frame in Scanner(0xFFFE, 1 << 24).feed(data)[1]:
        assert isinstance(frame, Frame)
        opened = open_publish(frame.data)
        assert opened is not None
        topic, payload = opened
        if topic == BATCH_TOPIC:
            got += to.received_batch(*decode_batch(payload, 0.0))
            if confirm:
                to.confirm()
        else:
            to.received_ack(decode_ack(payload))
    return got


def pair(*, acknowledged: bool = True, window_bytes: int = 1 << 20) -> tuple[Lane, Lane]:
    left = Lane(Outbox(1), acknowledged=acknowledged, window_bytes=window_bytes)
    right = Lane(Outbox(2), acknowledged=acknowledged)
    connect(left, right)
    return left, right


def connect(left: Lane, right: Lane) -> None:
    from_left, from_right = left.resume(), right.resume()
    left.connected(from_right)
    right.connected(from_left)


def test_a_run_is_kept_until_the_other_side_confirmed_it() -> None:
    left, right = pair()
    left.append(run(1))
    assert deliver(left.poll(0.0), right, confirm=False) == [run(1)]
    assert right.poll(0.0) == b"", "nothing is acknowledged before it is in safe hands"
    right.confirm()
    deliver(right.poll(0.0), left)
    assert left.outbox.backlog_runs == 0


def test_no_more_than_the_window_is_in_flight() -> None:
    left, right = pair(window_bytes=3 * SIZE)
    for sequence in range(10):
        left.append(run(sequence))
    got = deliver(left.poll(0.0), right)
    assert len(got) == 3
    assert left.poll(0.0) == b""
    for _ in range(3):
        deliver(right.poll(0.0), left)
        got += deliver(left.poll(0.0), right)
    assert [one.first for one in got] == list(range(10))


def test_a_run_larger_than_the_window_goes_alone() -> None:
    left, right = pair(window_bytes=10)
    left.append(run(1))
    left.append(run(2))
    assert deliver(left.poll(0.0), right) == [run(1)]


def test_many_runs_become_several_batches_of_bounded_size() -> None:
    left, right = pair()
    left.batch_bytes = 2 * SIZE
    for sequence in range(5):
        left.append(run(sequence))
    data = left.poll(0.0)
    assert len(Scanner(0xFFFE, 1 << 24).feed(data)[1]) == 3
    assert len(deliver(data, right)) == 5


def test_after_a_cut_only_what_was_not_taken_is_sent_again() -> None:
    left, right = pair()
    for sequence in range(4):
        left.append(run(sequence))
    left.batch_bytes = 2 * SIZE
    data = left.poll(0.0)
    deliver(data[: len(data) // 2], right)
    left.disconnected()
    right.disconnected()
    connect(left, right)
    assert deliver(left.poll(0.0), right) == [run(2), run(3)]


def test_runs_that_come_again_are_skipped_counted_and_acknowledged_again() -> None:
    left, right = pair()
    left.append(run(1))
    data = left.poll(0.0)
    deliver(data, right)
    right.poll(0.0)
    assert deliver(data, right) == []
    assert right.repeated == 1
    deliver(right.poll(0.0), left)
    assert left.outbox.backlog_runs == 0


def test_a_gap_is_the_peers_fault() -> None:
    _, right = pair()
    with pytest.raises(RemoteProtocolError):
        right.received_batch(2, [run(2)])


def test_a_claim_to_have_more_than_was_sent_is_the_peers_fault() -> None:
    left, _ = pair()
    with pytest.raises(RemoteProtocolError):
        left.connected(Resume(2, 1, peer_stream=1, taken=1))


def test_a_restarted_receiver_goes_on_from_its_snapshot() -> None:
    left, right = pair()
    left.append(run(1))
    deliver(left.poll(0.0), right)
    restarted = Lane(Outbox(3))
    restarted.restore(right.snapshot())
    left.append(run(2))
    connect(left, restarted)
    assert deliver(left.poll(0.0), restarted) == [run(2)]


def test_a_receiver_that_forgot_everything_gets_what_is_still_pending() -> None:
    left, right = pair()
    left.append(run(1))
    left.append(run(2))
    deliver(left.poll(0.0), right)
    deliver(right.poll(0.0), left)
    left.append(run(3))
    forgetful = Lane(Outbox(3))
    connect(left, forgetful)
    assert deliver(left.poll(0.0), forgetful) == [run(3)]


def test_a_receiver_with_an_old_snapshot_goes_on_where_the_sender_can() -> None:
    left, right = pair()
    old = right.snapshot()
    left.append(run(1))
    deliver(left.poll(0.0), right)
    deliver(right.poll(0.0), left)
    left.append(run(2))
    restarted = Lane(Outbox(3))
    restarted.restore(old)
    connect(left, restarted)
    assert deliver(left.poll(0.0), restarted) == [run(2)]


def test_a_restarted_sender_starts_a_new_stream() -> None:
    left, right = pair()
    left.append(run(1))
    deliver(left.poll(0.0), right)
    restarted = Lane(Outbox(9))
    restarted.append(run(2))
    connect(restarted, right)
    assert deliver(restarted.poll(0.0), right) == [run(2)]


def test_a_peer_that_says_nothing_of_its_stream_starts_over_each_time() -> None:
    _, right = pair()
    for _ in range(2):
        right.connected(None)
        assert right.received_batch(1, [run(1)]) == [run(1)]
        right.confirm()


def test_a_damaged_snapshot_is_an_error() -> None:
    with pytest.raises(BrokerweaveError):
        Lane(Outbox(1)).restore(b"short")


def test_at_qos_0_runs_are_forgotten_when_sent_and_nothing_is_acknowledged() -> None:
    left, right = pair(acknowledged=False)
    left.append(run(1))
    assert deliver(left.poll(0.0), right) == [run(1)]
    assert left.outbox.backlog_runs == 0
    assert right.poll(0.0) == b""


def test_at_qos_0_runs_are_dropped_and_counted_while_the_link_is_down() -> None:
    left, right = pair(acknowledged=False)
    left.append(run(1, 2))
    left.disconnected()
    assert not left.append(run(3, 4))
    assert left.outbox.dropped == {"link_down": 6}
    connect(left, right)
    left.append(run(7))
    assert deliver(left.poll(0.0), right) == [run(7)]


def test_at_qos_0_one_poll_writes_a_window_at_most() -> None:
    left, _ = pair(acknowledged=False, window_bytes=3 * SIZE)
    for sequence in range(10):
        left.append(run(sequence))
    left.poll(0.0)
    assert left.outbox.unsent == 7


def test_an_abandoned_lane_has_nothing_pending() -> None:
    left, _ = pair()
    left.append(run(1, 3))
    assert left.abandon() == 3
    assert left.poll(0.0) == b""
    assert left.outbox.backlog_runs == 0


def test_a_held_lane_sends_announcements_and_acknowledgements_but_no_runs() -> None:
    left, right = pair()
    left.held = True
    left.append(run(1))
    left.announce(PingReq())
    right.append(run(2))
    deliver(right.poll(0.0), left)
    sent = left.poll(0.0)
    assert sent.endswith(codec.encode(PingReq(), 5))
    deliver(sent.removesuffix(codec.encode(PingReq(), 5)), right)
    assert right.outbox.backlog_runs == 0
    assert left.outbox.unsent == 1
    left.held = False
    assert deliver(left.poll(0.0), right) == [run(1)]


def test_an_announcement_is_made_once_on_each_connection_before_any_run() -> None:
    left, right = pair()
    left.announce(PingReq())
    left.append(run(1))
    assert left.poll(0.0).startswith(codec.encode(PingReq(), 5))
    left.append(run(2))
    assert codec.encode(PingReq(), 5) not in left.poll(0.0)
    left.disconnected()
    right.disconnected()
    connect(left, right)
    assert left.poll(0.0).startswith(codec.encode(PingReq(), 5))


def test_a_neighbour_that_forgot_what_it_took_gets_nothing_of_qos_0_again() -> None:
    left, right = pair()
    for sequence, qos in ((1, 0), (2, 1), (3, 0)):
        left.append(run(sequence, qos=qos))
    deliver(left.poll(0.0), right, confirm=False)
    left.append(run(4, qos=0))
    forgetful = Lane(Outbox(3))
    left.disconnected()
    left.connected(forgetful.resume(), epoch=2)
    forgetful.connected(left.resume())
    assert deliver(left.poll(0.0), forgetful) == [run(2), run(4, qos=0)], "number 4 was never sent before"
    assert left.outbox.dropped["peer_forgot"] == 2
    deliver(forgetful.poll(0.0), left)
    assert left.outbox.backlog_runs == left.outbox.backlog_bytes == left.outbox.in_flight_bytes == 0


def test_a_neighbour_that_remembers_gets_what_it_lacks_also_at_qos_0() -> None:
    left, right = pair()
    left.append(run(1, qos=0))
    left.poll(0.0)
    left.disconnected()
    right.disconnected()
    right.restore(right.snapshot())
    connect(left, right)
    assert deliver(left.poll(0.0), right) == [run(1, qos=0)]


def test_a_second_connection_with_the_same_process_changes_no_sequence() -> None:
    left, right = pair()
    said = right.resume()
    left.connected(said, epoch=2)
    for sequence, qos in ((1, 0), (2, 1)):
        left.append(run(sequence, qos=qos))
    deliver(left.poll(0.0), right)
    left.connected(said, epoch=2)
    assert deliver(left.poll(0.0), right) == [], "it says less than it knows"
    deliver(right.poll(0.0), left)
    assert left.outbox.backlog_runs == 0
