from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.journal import MemoryJournal, StorageError
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.links.wire import decode_record
from tests.unit.links.runs import run

SIZE = run().size
EVERYTHING = 1 << 30


def numbers(runs: list[Run]) -> list[int]:
    return [one.first for one in runs]


def drain(outbox: Outbox, at_most: int = 1000) -> list[int]:
    """Take and acknowledge until nothing is left."""
    got: list[int] = []
    for _ in range(at_most):
        first, runs = outbox.take(SIZE * 2)
        if not runs:
            return got
        outbox.acknowledge(first + len(runs) - 1)
        got += numbers(runs)
    raise AssertionError("the outbox never ends")


def test_runs_are_taken_in_order_and_kept_until_acknowledged() -> None:
    outbox = Outbox(1)
    for sequence in range(5):
        assert outbox.append(run(sequence))
    assert outbox.take(2 * SIZE) == (1, [run(0), run(1)])
    assert outbox.take(EVERYTHING) == (3, [run(2), run(3), run(4)])
    assert outbox.take(EVERYTHING) == (6, [])
    assert (outbox.backlog_runs, outbox.unsent, outbox.in_flight_bytes) == (5, 0, 5 * SIZE)
    outbox.acknowledge(4)
    assert (outbox.backlog_runs, outbox.in_flight_bytes, outbox.backlog_bytes) == (1, SIZE, SIZE)


def test_what_one_outbox_is_given_is_in_no_other() -> None:
    outbox, other = Outbox(1), Outbox(2)
    outbox.append(run(1))
    assert (outbox.backlog_runs, other.backlog_runs, Outbox(3).backlog_runs) == (1, 0, 0)


def test_a_run_larger_than_the_budget_is_taken_alone() -> None:
    outbox = Outbox(1)
    outbox.append(run(1))
    outbox.append(run(2))
    assert outbox.take(1) == (1, [run(1)])


def test_after_a_rewind_what_was_not_taken_is_sent_again() -> None:
    outbox = Outbox(1)
    for sequence in range(4):
        outbox.append(run(sequence))
    outbox.take(EVERYTHING)
    outbox.rewind(1)
    assert (outbox.in_flight_bytes, outbox.unsent) == (0, 3)
    assert outbox.take(EVERYTHING) == (2, [run(1), run(2), run(3)])


def test_what_is_withdrawn_leaves_no_gap_in_the_stream_and_nothing_on_disk() -> None:
    journal = MemoryJournal()
    outbox = Outbox(1, journal)
    for sequence in range(5):
        outbox.append(run(sequence))
    first, runs = outbox.take(2 * SIZE)
    outbox.acknowledge(first + len(runs) - 1)
    assert outbox.take(2 * SIZE) == (3, [run(2), run(3)])
    outbox.withdraw()
    assert (outbox.sent, outbox.in_flight_bytes, outbox.backlog_runs, journal.records) == (0, 0, 1, 1)
    assert outbox.take(EVERYTHING) == (3, [run(4)])


@pytest.mark.parametrize("call", ["acknowledge", "rewind"])
def test_an_acknowledgement_of_what_was_never_sent_is_the_peers_fault(call: str) -> None:
    outbox = Outbox(1)
    outbox.append(run())
    outbox.take(EVERYTHING)
    with pytest.raises(RemoteProtocolError):
        getattr(outbox, call)(2)
    assert outbox.backlog_runs == 1


def test_qos_0_is_dropped_and_counted_when_memory_is_full() -> None:
    outbox = Outbox(1, MemoryJournal(), memory_bytes=2 * SIZE)
    outbox.append(run(1))
    outbox.append(run(2))
    assert not outbox.append(run(3, 4, qos=0))
    assert outbox.dropped == {"memory": 4}


def test_qos_0_is_dropped_while_older_runs_wait_on_disk() -> None:
    outbox = Outbox(1, MemoryJournal(), memory_bytes=SIZE)
    outbox.append(run(1))
    outbox.append(run(2))
    first, _ = outbox.take(EVERYTHING)
    outbox.acknowledge(first)
    assert not outbox.append(run(3, qos=0)), "it would overtake run 2"
    assert drain(outbox) == [2]


def test_durable_runs_beyond_memory_wait_on_disk_in_order() -> None:
    outbox = Outbox(1, MemoryJournal(), memory_bytes=3 * SIZE)
    for sequence in range(50):
        assert outbox.append(run(sequence))
    assert outbox.backlog_runs == 50
    assert drain(outbox) == list(range(50))
    assert (outbox.backlog_runs, outbox.backlog_bytes) == (0, 0)


def test_what_is_acknowledged_leaves_the_disk() -> None:
    journal = MemoryJournal()
    outbox = Outbox(1, journal, memory_bytes=2 * SIZE)
    for sequence in range(10):
        outbox.append(run(sequence))
    drain(outbox)
    assert (journal.records, journal.size) == (0, 0)


def test_durable_runs_beyond_the_disk_bound_are_dropped_and_counted() -> None:
    outbox = Outbox(1, MemoryJournal(), memory_bytes=SIZE, disk_bytes=200)
    kept = [sequence for sequence in range(20) if outbox.append(run(sequence))]
    assert 0 < len(kept) < 20
    assert outbox.dropped == {"disk": 20 - len(kept)}
    assert drain(outbox) == kept


def test_without_a_journal_durable_runs_are_bounded_by_memory() -> None:
    outbox = Outbox(1, memory_bytes=SIZE)
    outbox.append(run(1))
    assert not outbox.append(run(2))
    assert outbox.dropped == {"memory": 1}


def test_a_failing_disk_leaves_memory() -> None:
    journal = MemoryJournal()
    outbox = Outbox(1, journal, memory_bytes=2 * SIZE)
    journal.failing = True
    assert outbox.append(run(1))
    assert outbox.append(run(2))
    assert not outbox.append(run(3))
    assert (outbox.journal_failures, outbox.dropped) == (3, {"disk": 1})
    assert drain(outbox) == [1, 2]


def test_a_disk_that_comes_late_gets_all_that_is_pending_and_none_of_what_was_left_there() -> None:
    journal = MemoryJournal()
    journal.append(1, b"of an earlier outbox")
    outbox = Outbox(1, None, memory_bytes=10_000)
    for number in (1, 2, 3):
        outbox.append(run(number, qos=0 if number == 2 else 1))
    outbox.next_number = iter(range(5, 100)).__next__
    outbox.begin_journal(journal, 10_000)
    assert outbox.dropped == {"disk": 1}
    assert numbers([decode_record(record) for _, record in journal.read(0, 10_000)]) == [1, 3]
    assert drain(outbox) == [1, 2, 3]
    assert journal.records == 0


def test_a_disk_that_fails_again_half_way_is_tried_again_and_nothing_is_counted_as_dropped() -> None:
    journal = MemoryJournal()
    outbox = Outbox(1, None, memory_bytes=10_000)
    for number in (1, 2):
        outbox.append(run(number, qos=1))
    given = iter(range(1, 100))

    def next_number() -> int:
        number = next(given)
        journal.failing = number == 2
        return number

    outbox.next_number = next_number
    with pytest.raises(StorageError):
        outbox.begin_journal(journal, 10_000)
    journal.failing = False
    outbox.begin_journal(journal, 10_000)
    assert not outbox.dropped
    assert numbers([decode_record(record) for _, record in journal.read(0, 10_000)]) == [1, 2]


def test_what_a_failing_disk_holds_comes_when_it_answers_again() -> None:
    journal = MemoryJournal()
    outbox = Outbox(1, journal, memory_bytes=SIZE)
    for sequence in range(3):
        outbox.append(run(sequence))
    journal.failing = True
    assert drain(outbox) == [0]
    journal.failing = False
    assert drain(outbox) == [1, 2]


def test_runs_that_vanished_from_the_disk_are_counted() -> None:
    journal = MemoryJournal()
    outbox = Outbox(1, journal, memory_bytes=SIZE)
    for sequence in range(4):
        outbox.append(run(sequence))
    journal.trim(journal.last)
    assert drain(outbox) == [0]
    assert outbox.dropped == {"damaged": 3}
    assert outbox.append(run(9, qos=0)), "the lane goes on"


def test_a_damaged_record_is_counted_and_stepped_over() -> None:
    journal = MemoryJournal()
    Outbox(1, journal).append(run(1))
    journal.append(2, b"garbage")
    other = Outbox.restored(2, journal)
    assert drain(other) == [1]
    assert other.dropped == {"damaged": 1}


def test_a_restored_outbox_numbers_what_is_left_from_1() -> None:
    journal = MemoryJournal()
    before = Outbox(1, journal)
    for sequence in range(6):
        before.append(run(sequence, qos=sequence % 2))
    before.take(EVERYTHING)
    before.acknowledge(2)
    after = Outbox.restored(2, journal)
    assert after.backlog_runs == 2
    after.append(run(7))
    assert after.take(EVERYTHING) == (1, [run(3), run(5), run(7)])


def test_clearing_counts_messages_and_empties_the_disk() -> None:
    journal = MemoryJournal()
    outbox = Outbox(1, journal)
    outbox.append(run(1, 5))
    outbox.append(run(6, 2, qos=0))
    assert outbox.clear() == 7
    assert (outbox.backlog_runs, journal.records) == (0, 0)
    outbox.append(run(8))
    assert outbox.take(EVERYTHING) == (3, [run(8)])


steps = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 1)),
    st.tuples(st.just("take"), st.integers(1, 4)),
    st.tuples(st.just("acknowledge"), st.integers(0, 4)),
    st.tuples(st.just("rewind"), st.integers(0, 4)),
    st.tuples(st.just("disk"), st.integers(0, 1)),
)


@given(st.lists(steps, max_size=60), st.integers(1, 4), st.sampled_from([100, 400, EVERYTHING]))
def test_whatever_happens_kept_runs_come_out_in_order_and_bounds_hold(
    script: list[tuple[str, int]], memory: int, disk: int
) -> None:
    journal = MemoryJournal()
    outbox = Outbox(1, journal, memory_bytes=memory * SIZE, disk_bytes=disk)
    kept: list[int] = []
    sizes: dict[int, int] = {}
    sent = acknowledged = appended = 0
    for action, amount in script:
        if action == "append":
            one = run(100 + appended, qos=amount)
            sizes[one.first] = one.size
            if outbox.append(one):
                kept.append(one.first)
            appended += 1
        elif action == "take":
            first, runs = outbox.take(amount * SIZE)
            assert first == sent + 1
            assert numbers(runs) == kept[sent : sent + len(runs)]
            sent += len(runs)
        elif action == "acknowledge":
            acknowledged = min(acknowledged + amount, sent)
            outbox.acknowledge(acknowledged)
        elif action == "rewind":
            acknowledged = min(acknowledged + amount, sent)
            outbox.rewind(acknowledged)
            sent = acknowledged
        else:
            journal.failing = bool(amount)
        assert outbox.backlog_runs == len(kept) - acknowledged
        assert outbox.unsent == len(kept) - sent
        assert outbox.in_flight_bytes == sum(sizes[one] for one in kept[acknowledged:sent])
        assert journal.size <= disk
    journal.failing = False
    outbox.acknowledge(sent)
    assert drain(outbox) == kept[sent:]
    assert sum(outbox.dropped.values()) == appended - len(kept)


def test_what_the_write_ahead_log_has_is_not_written_again_until_it_is_settled() -> None:
    journal = MemoryJournal()
    outbox = Outbox(1, journal)
    for number in (3, 5, 9):
        assert outbox.append(run(number), number)
    assert journal.records == 0
    first, runs = outbox.take(SIZE)
    outbox.acknowledge(first + len(runs) - 1)
    assert outbox.settle()
    assert [number for number, _ in journal.read(0, EVERYTHING)] == [5, 9]
    assert outbox.settle()
    assert drain(Outbox.restored(2, journal)) == [5, 9]


def test_before_anything_goes_to_disk_alone_what_is_before_it_goes_there_too() -> None:
    journal = MemoryJournal()
    outbox = Outbox(1, journal, memory_bytes=2 * SIZE)
    outbox.wal_name = "lanes/b/0"
    outbox.next_number = lambda: 8
    for number in (3, 5, 7):
        assert outbox.append(run(number), number)
    assert [number for number, _ in journal.read(0, EVERYTHING)] == [3, 5, 7]
    assert outbox.append(run(8))
    assert drain(outbox) == [3, 5, 7, 8]
    assert (journal.records, journal.last) == (0, 8)


def test_a_disk_that_does_not_take_what_the_write_ahead_log_has_leaves_it_there() -> None:
    journal = MemoryJournal()
    outbox = Outbox(1, journal)
    outbox.append(run(3), 3)
    journal.failing = True
    assert not outbox.settle()
    journal.failing = False
    assert outbox.settle()
    assert journal.records == 1
    assert outbox.journal_failures == 1


class TestSorting:
    def test_brings_what_was_not_taken_into_the_order_of_its_origins(self) -> None:
        outbox = Outbox(1)
        for sequence in (9, 5, 3, 4):
            outbox.append(run(sequence))
        outbox.append(run(1, origin="b"))
        assert outbox.take(1) == (1, [run(9)])
        outbox.sort()
        assert outbox.take(EVERYTHING) == (2, [run(3), run(4), run(5), run(1, origin="b")])

    def test_keeps_on_disk_exactly_what_is_not_acknowledged(self) -> None:
        journal = MemoryJournal()
        outbox = Outbox(1, journal)
        for sequence in (3, 1, 2):
            outbox.append(run(sequence))
        outbox.sort()
        assert outbox.take(SIZE) == (1, [run(1)])
        outbox.acknowledge(1)
        assert drain(Outbox.restored(2, journal)) == [2, 3]

    def test_includes_the_little_that_a_restart_left_on_disk(self) -> None:
        journal = MemoryJournal()
        Outbox(1, journal).append(run(3))
        outbox = Outbox.restored(2, journal)
        for sequence in (4, 1, 2):
            outbox.append(run(sequence))
        outbox.sort()
        assert outbox.take(SIZE) == (1, [run(1)])
        outbox.acknowledge(1)
        assert drain(Outbox.restored(3, journal)) == [2, 3, 4]

    def test_leaves_the_order_as_it_is_when_the_disk_fails(self) -> None:
        journal = MemoryJournal(capacity=500)
        outbox = Outbox(1, journal)
        while outbox.append(run(10 - outbox.backlog_runs)) and not outbox.journal_failures:
            pass
        before = outbox.kept()
        outbox.sort()
        assert outbox.kept() == before


def test_what_is_on_disk_only_can_be_read_and_stays_there() -> None:
    outbox = Outbox(1, MemoryJournal(), memory_bytes=2 * SIZE)
    assert outbox.on_disk_only == (0, 0)
    for sequence in range(1, 6):
        outbox.append(run(sequence))
    first, last = outbox.on_disk_only
    assert numbers([found for _, found in outbox.read(first, last, 1 << 20)]) == [3, 4, 5]
    assert numbers([found for _, found in outbox.read(first, last - 1, 1 << 20)]) == [3, 4]
    assert drain(outbox) == [1, 2, 3, 4, 5]
