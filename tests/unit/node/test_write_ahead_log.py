from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.journal import MemoryJournal
from brokerweave.node.write_ahead_log import OWN, RunEntry, Waits, WriteAheadLog, decode_entry, encode_run
from tests.unit.links.runs import run

ENTRY = RunEntry(run(), OWN, (("lanes/b/0", 1), ("injectors/0", 2)), "sensör", 7)


def test_an_entry_reads_back_as_it_was_written() -> None:
    assert decode_entry(encode_run(ENTRY)) == ENTRY
    assert decode_entry(encode_run(RunEntry(run(), 3, ()))) == RunEntry(run(), 3, ())
    boxes = (("lanes/b/0", 1), ("lanes/c/0", 2), ("injectors/0", 2))
    planned = RunEntry(
        run(), 3, boxes, "", 0, (("lanes/b/0", ("d",)),), (("lanes/b/0", b"\0\1"), ("lanes/c/0", b"x"))
    )
    assert decode_entry(encode_run(planned)) == planned


@pytest.mark.parametrize("waits", [Waits(None, False), Waits("b", True, False)])
def test_a_run_that_waits_and_one_that_waited_read_back_as_they_were_written(waits: Waits) -> None:
    waiting = replace(ENTRY, destinations=(), waits=waits)
    assert decode_entry(encode_run(waiting)) == waiting
    assert decode_entry(encode_run(replace(ENTRY, waited=2**40))) == replace(ENTRY, waited=2**40)


def test_an_entry_says_who_is_to_keep_a_run_and_who_sent_it() -> None:
    entry = replace(
        ENTRY, run=replace(ENTRY.run, sender=("publisher", 9)), holds=(("lanes/b/0", ("d", "é")),)
    )
    assert decode_entry(encode_run(entry)) == entry


@given(st.binary(max_size=80))
def test_anything_else_is_an_error_or_a_note(data: bytes) -> None:
    try:
        entry = decode_entry(data)
    except RemoteProtocolError:
        return
    assert entry


def test_an_entry_cut_anywhere_is_an_error() -> None:
    data = encode_run(ENTRY)
    for size in range(len(data) - len(ENTRY.run.blob)):
        with pytest.raises(RemoteProtocolError):
            decode_entry(data[:size])


def test_numbers_grow_while_the_disk_fails_and_the_failure_is_said_once() -> None:
    said: list[str] = []
    journal = MemoryJournal()
    wal = WriteAheadLog(journal, said.append)
    assert wal.run(ENTRY) == 1
    journal.failing = True
    assert [wal.run(ENTRY), wal.run(ENTRY)] == [2, 3]
    journal.failing = False
    assert wal.run(ENTRY) == 4
    assert (wal.failures, len(said)) == (2, 1)
    journal.failing = True
    wal.note("ended", "c")
    assert len(said) == 2
    journal.failing = False
    assert [number for number, _ in journal.read(0, 1 << 20)] == [1, 4]


def test_it_asks_for_a_new_beginning_when_it_is_large() -> None:
    asked: list[int] = []
    wal = WriteAheadLog(MemoryJournal())
    wal.limit = 200
    wal.grown = lambda: asked.append(wal.last)
    for _ in range(5):
        wal.note("filter", "client", "f" * 50, 1)
    assert asked == [3, 4, 5]
    wal.trim(5)
    wal.note("ended", "client")
    assert asked == [3, 4, 5]


def test_it_never_gives_a_number_that_a_journal_knows() -> None:
    wal = WriteAheadLog(MemoryJournal())
    wal.begin_after(41)
    assert wal.run(ENTRY) == 42


def test_without_a_journal_it_keeps_nothing() -> None:
    wal = WriteAheadLog()
    assert not wal.keeps
    assert wal.run(ENTRY) == 0
    wal.note("ended", "c")
    wal.trim(1)
    assert (wal.last, wal.size) == (0, 0)


def test_it_asks_for_a_new_beginning_when_the_disk_fails_and_when_it_works_again() -> None:
    asked: list[int] = []
    journal = MemoryJournal()
    wal = WriteAheadLog(journal)
    wal.grown = lambda: asked.append(wal.last)
    wal.note("ended", "1")
    journal.failing = True
    wal.note("ended", "2")
    wal.note("ended", "3")
    assert asked == [2]
    journal.failing = False
    wal.note("ended", "4")
    wal.note("ended", "5")
    assert asked == [2, 4]
