"""The account of a failover, from records made by hand: each loss, repeat and gap is found, no other."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.failover import join, split
from benchmarks.failover.account import Account, Kill, account
from benchmarks.failover.client import PAYLOAD, Publisher, Subscriber, packet, text
from benchmarks.failover.record import Life, Published, Received, Record
from benchmarks.failover.report import as_json, faults, table
from benchmarks.failover.scene import Plan

KILL = Kill(("a",), 10.0, 14.0)


def published(count: int = 20) -> Published:
    """One publication a second from 0, acknowledged 0.1 s later."""
    times = [float(n) for n in range(count)]
    acked: list[float | None] = [at + 0.1 for at in times]
    return Published(Life("p"), 0, times, acked, list(acked))


def received(numbers: dict[int, float] | None = None, life: Life | None = None) -> Received:
    """Each 0.05 s after it was sent, but for the given."""
    arrivals = {n: n + 0.05 for n in range(20)} if numbers is None else numbers
    ordered = sorted(arrivals.items(), key=lambda item: item[1])
    return Received(life or Life("s"), 0, [n for n, _ in ordered], [at for _, at in ordered])


def judged(got: Received, sent: Published | None = None, kills: tuple[Kill, ...] = (KILL,)) -> Account:
    return account(Record([sent or published()], [got], 0.0), kills, calm=5.0)


def cut_off() -> Life:
    return Life("s", lost=[10.02], connected=[0.0, 10.03], subscribed=[0.0, 10.04])


def test_a_run_without_harm_has_none() -> None:
    found = judged(received())
    assert (found.lost, found.doubled, found.misplaced, found.delivered) == (0, 0, 0, 20)
    assert faults(Plan(), found) == []
    one = found.rounds[0]
    assert (one.cut_off, one.shaken, one.before, one.during) == (0, 0, 1.0, 1.0)
    assert one.gap_at_survivors == pytest.approx(1.0)


def test_what_was_acknowledged_and_never_came_is_lost() -> None:
    found = judged(received({n: n + 0.05 for n in range(20) if n != 10}))
    assert found.lost == 1
    assert (found.rounds[0].lost, found.rounds[0].lost_at_survivors) == (1, 1)
    assert faults(Plan(), found) == ["1 lost"]


def test_what_was_never_acknowledged_is_owed_to_nobody() -> None:
    sent = published()
    sent.taken[10] = sent.finished[10] = None
    assert judged(received({n: n + 0.05 for n in range(20) if n != 10}), sent).lost == 0


def test_a_loss_belongs_to_the_kill_that_it_was_under_way_in() -> None:
    kills = (Kill(("a",), 5.0, 7.0), KILL)
    found = judged(received({n: n + 0.05 for n in range(20) if n != 9}), kills=kills)
    assert [each.lost for each in found.rounds] == [0, 1]


def test_a_repeat_at_a_client_of_a_dead_node_is_told_from_one_at_a_survivor() -> None:
    for life, doubled in ((cut_off(), (1, 0, 0)), (None, (0, 0, 1)), (Life("s", [13.0]), (0, 1, 0))):
        got = received(None, life)
        at = got.numbers.index(9) + 1
        got.numbers.insert(at + 1, 9)
        got.times.insert(at + 1, 10.06)
        one = judged(got).rounds[0]
        assert (one.doubled, one.doubled_at_shaken, one.doubled_at_survivors) == doubled
        assert one.doubled_oldest == pytest.approx(10.0 - 9.05 if life and doubled[0] else 0.0)


def test_a_repeat_of_what_came_long_before_the_kill_was_not_in_flight() -> None:
    got = received(None, cut_off())
    got.numbers.append(3)
    got.times.append(19.5)
    one = judged(got)
    assert (one.rounds[0].doubled, one.rounds[0].doubled_stale) == (1, 1)
    assert faults(Plan(), one) == ["kill 1: 1 doubled that were not in flight"]


def test_the_way_back_is_divided_between_client_and_cluster() -> None:
    arrivals = {n: n + 0.05 for n in range(20) if n != 9} | {9: 10.50}
    found = judged(received(arrivals, cut_off()))
    (one,) = found.rounds[0].returns
    assert one.closed == pytest.approx(0.02)
    assert one.connected == pytest.approx(0.01)
    assert one.subscribed == pytest.approx(0.01)
    assert one.owed == 1
    assert one.first_owed == pytest.approx(0.46)
    assert one.all_owed == pytest.approx(0.46)
    assert one.ours == pytest.approx(0.47)
    assert one.theirs == pytest.approx(0.03)


def test_who_never_came_back_is_counted() -> None:
    found = judged(received(None, Life("s", [10.02], [0.0], [0.0])))
    assert found.rounds[0].never_back == 1
    assert "1 never came back" in faults(Plan(), found)[0]


def test_a_subscriber_that_hears_nothing_more_has_a_gap_to_the_end() -> None:
    found = judged(received({n: n + 0.05 for n in range(10)}, cut_off()))
    assert found.rounds[0].gap == pytest.approx(14.0 - 9.05)


def test_an_arrival_after_a_later_one_is_out_of_order_unless_it_is_a_repeat() -> None:
    assert judged(received({n: n + 0.05 for n in range(20)} | {8: 9.5})).misplaced == 1


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    record = Record([published()], [received(None, cut_off())], 0.25)
    record.write(tmp_path / "record")
    assert Record.read(tmp_path / "record") == record


def test_a_run_is_shown_and_written_whole() -> None:
    runs = [(Plan(), judged(received(None, cut_off())))]
    assert table(runs).row_count > 20
    assert json.loads(json.dumps(as_json(runs, {})))["runs"][0]["account"]["lost"] == 0


# The clients, without a socket


class Wire:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def take(self) -> list[bytes]:
        taken, self.written = self.written, []
        return taken


def publisher(qos: int) -> tuple[Publisher, Wire]:
    made, wire = Publisher(("127.0.0.1", 0), Published(Life("p"), 7), qos, False), Wire()
    made.write = wire.write  # type: ignore[method-assign]
    made.data_received(b"\x20\x02\x00\x00")
    return made, wire


def test_a_publisher_sends_again_what_was_not_acknowledged_with_dup_and_the_same_id() -> None:
    made, wire = publisher(1)
    made.publish()
    made.publish()
    first, second = wire.take()
    made.data_received(packet(0x40, b"\x00\x01"))
    made.data_received(b"\x20\x02\x00\x00")
    assert wire.take() == [bytes((second[0] | 8,)) + second[1:]]
    assert (made.record.resent, made.idle) == (1, False)
    assert made.record.taken[0] is not None
    assert made.record.taken[1] is None
    assert first[0] == 0x32


def test_past_pubrec_only_pubrel_goes_again() -> None:
    made, wire = publisher(2)
    made.publish()
    made.data_received(packet(0x50, b"\x00\x01"))
    wire.take()
    made.data_received(b"\x20\x02\x00\x00")
    assert wire.take() == [packet(0x62, b"\x00\x01")]
    made.data_received(packet(0x70, b"\x00\x01"))
    assert made.idle
    assert made.record.finished[0] is not None


def test_what_is_due_while_the_window_is_full_waits() -> None:
    made, wire = publisher(1)
    for _ in range(22):
        made.publish()
    assert (len(wire.take()), made.record.waiting) == (20, 2)
    made.data_received(packet(0x40, b"\x00\x01"))
    assert (len(wire.take()), made.record.waiting) == (1, 1)


def test_a_subscriber_notes_a_qos_2_packet_once_and_answers_it_each_time() -> None:
    made, wire = Subscriber(("127.0.0.1", 0), Received(Life("s"), 7), 2, False), Wire()
    made.write = wire.write  # type: ignore[method-assign]
    frame = packet(0x34, text("failover/7") + b"\x00\x05" + PAYLOAD.pack(7, 3))
    made.data_received(frame[:4])
    made.data_received(frame[4:] + frame)
    assert made.record.numbers == [3]
    assert wire.take() == [packet(0x50, b"\x00\x05") * 2]
    made.data_received(packet(0x62, b"\x00\x05") + frame)
    assert made.record.numbers == [3, 3]


def across(arrivals: dict[int, float]) -> split.Found:
    """One topic published at site 0, with a subscriber at each of four; these arrive at the last one's."""
    got = [received() for _ in range(3)]
    return split.judge(Record([published()], [*got, received(arrivals)], 0.0), 5.0, 15.0, 4)


def test_a_split_that_healed_has_lost_and_doubled_nothing_if_all_came_in_the_end() -> None:
    late = {n: n + 0.05 if n < 5 else max(n, 15.0) + 0.5 for n in range(20)}
    found = across(late)
    assert found.good
    assert (found.lost, found.doubled, found.within_lost, found.across) == (0, 0, 0, 16)
    assert found.reconciled == pytest.approx(0.5)


def test_what_the_other_half_never_got_of_a_split_is_lost() -> None:
    found = across({n: n + 0.05 for n in range(20) if n != 9})
    assert (found.lost, found.within_lost, found.good) == (1, 0, False)


def test_what_came_only_after_the_split_within_a_half_was_lost_to_it() -> None:
    slow = {n: n + 0.05 for n in range(20)} | {9: 15.2}
    got = [received(), received(slow), received(), received()]
    found = split.judge(Record([published()], got, 0.0), 5.0, 15.0, 4)
    assert (found.lost, found.within_lost, found.good) == (0, 1, False)


def test_a_client_of_a_new_site_is_owed_what_was_made_since_its_suback_once() -> None:
    got = Counter({(0, n): 1 for n in range(5, 16) if n != 8}) + Counter({(0, 9): 1})
    stay = join.Stay(4.5, 15.5, got)
    join.judge([stay], Record([published()], [], 0.0))
    assert (stay.expected, stay.lost, stay.doubled) == (9, 1, 1)


def test_what_others_miss_while_a_site_joins_is_counted() -> None:
    got = received({n: n + 0.05 for n in range(20) if n != 3})
    got.numbers.append(4)
    got.times.append(20.0)
    assert join.others(Record([published()], [got], 0.0)) == (1, 1)
