"""Where what is held lies: memory, a journal, or only there."""

from brokerweave.care.queues import Queues
from brokerweave.care.shelf import Shelf
from brokerweave.links.journal import MemoryJournal
from tests.unit.care.messages import held, sequences

ROOM = 1 << 30


def queues_on(journal: MemoryJournal, memory: int = ROOM, slack: int = ROOM, trim_after: int = 1) -> Queues:
    queues = Queues(ROOM, ROOM, 60.0, Shelf(journal, memory, slack, trim_after=trim_after))
    queues.restore(0.0)
    return queues


def test_a_holder_that_restarts_still_holds() -> None:
    journal = MemoryJournal()
    queues = queues_on(journal)
    queues.hold(held(1), {"c": ("d", 1), "b": ("d", 0)}, now=0)
    queues.hold(held(2), {"c": ("d", 1)}, now=0)
    queues.received("c", [held(1).hash], now=0, home="d")
    queues.flush()
    again = queues_on(journal)
    assert again.take("c") == [held(2)]
    assert again.take("b") == [held(1)]
    assert again.take("b") == []  # its QoS 0 was not forgotten


def test_what_is_kept_does_not_age_while_a_holder_is_away_or_by_a_clock_that_is_set_meanwhile() -> None:
    journal = MemoryJournal()
    queues = queues_on(journal)
    queues.hold(held(1), {"c": ("d", 1)}, now=0)
    queues.hold(held(2), {"c": ("d", 1)}, now=50)
    queues.flush()
    again = Queues(ROOM, ROOM, 60.0, Shelf(journal))
    again.restore(5000.0)
    again.expire(5059.0)
    assert again.take("c") == [held(1), held(2)]
    again.expire(5060.0)
    assert again.take("c") == []


def test_what_happens_in_one_turn_is_one_record() -> None:
    journal = MemoryJournal()
    queues = queues_on(journal)
    for sequence in range(100):
        queues.add("c", held(sequence), now=0)
    queues.flush()
    queues.flush()
    assert journal.records == 1


def test_what_was_given_once_at_qos_0_is_not_given_after_a_restart() -> None:
    journal = MemoryJournal()
    queues = queues_on(journal)
    queues.add("c", held(1), now=0, qos=0)
    queues.take("c")
    queues.flush()
    assert queues_on(journal).take("c") == []


def test_the_oldest_leave_memory_and_are_read_back() -> None:
    journal = MemoryJournal()
    queues = queues_on(journal, memory=20_000)
    for sequence in range(50):
        queues.add("c", held(sequence, "x" * 1000 + str(sequence)), now=0)
        queues.flush()
    assert queues.shelf.memory_bytes < 20_000 + 50 * 300
    assert [one.publish.payload[1000:] for one in queues.take("c")] == [b"%d" % n for n in range(50)]


def test_nothing_leaves_memory_before_it_is_written() -> None:
    journal = MemoryJournal()
    queues = queues_on(journal, memory=1000)
    journal.failing = True
    queues.add("c", held(1, "x" * 5000), now=0)
    queues.flush()
    assert queues.shelf.failures == 1
    assert sequences(queues.take("c")) == [1]


def test_a_disk_that_does_not_give_back_costs_only_what_it_has() -> None:
    journal = MemoryJournal()
    queues = queues_on(journal, memory=0)
    queues.add("c", held(1), now=0)
    queues.flush()
    queues.add("c", held(2), now=0)
    journal.failing = True
    assert sequences(queues.take("c")) == [2]
    assert queues.dropped == {"c": 1}
    assert queues.shelf.failures == 1


def test_the_journal_is_trimmed_up_to_the_oldest_that_is_owed() -> None:
    journal = MemoryJournal()
    queues = queues_on(journal)
    for sequence in range(10):
        queues.add("c", held(sequence), now=0)
        queues.flush()
    queues.received("c", [held(sequence).hash for sequence in range(9)], now=0)
    queues.flush()
    assert journal.records == 2  # the last publication, and what was received
    queues.received("c", [held(9).hash], now=0)
    queues.flush()
    assert journal.records == 0


def test_one_that_waits_long_does_not_make_the_journal_grow() -> None:
    journal = MemoryJournal()
    queues = queues_on(journal, slack=10_000)
    queues.add("offline", held(0), now=0)
    for sequence in range(1, 500):
        queues.add("c", held(sequence), now=0)
        queues.received("c", [held(sequence).hash], now=0)
        queues.flush()
    assert journal.size < 15_000
    assert sequences(queues_on(journal).take("offline")) == [0]


def test_a_damaged_record_is_counted_and_the_rest_is_found() -> None:
    journal = MemoryJournal()
    queues = queues_on(journal)
    queues.add("c", held(1), now=0)
    queues.flush()
    journal.append(journal.last + 1, b"\x01garbage")
    journal.append(journal.last + 1, b"\x07")
    queues = Queues(ROOM, ROOM, 60.0, Shelf(journal))
    queues.restore(0.0)
    assert queues.shelf.failures == 2
    queues.add("c", held(2), now=0)
    queues.flush()
    assert sequences(queues_on(journal).take("c")) == [1, 2]


def test_the_journal_is_not_trimmed_for_each_record() -> None:
    """That would make a new file whenever a holder owes nothing, which is most of the time."""
    journal = MemoryJournal()
    queues = queues_on(journal, trim_after=10)
    for sequence in range(4):
        queues.add("c", held(sequence), now=0)
        queues.flush()
        queues.received("c", [held(sequence).hash], now=0)
        queues.flush()
    assert journal.records == 8
    queues.add("c", held(4), now=0)
    queues.flush()
    queues.received("c", [held(4).hash], now=0)
    queues.flush()
    assert journal.records == 0
