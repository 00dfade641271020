from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.links.journal import MemoryJournal, StorageError
from brokerweave.runtime.journal import FileJournal, Note, write_atomically
from tests.support.descriptors import closed_as_by_a_kill

RECORDS = [(1, b"one"), (2, b"two"), (5, b"five, after a gap"), (6, b"")]


@pytest.fixture(autouse=True)
def kills() -> Iterator[None]:
    """Most journals here are left as by a process that was killed."""
    with closed_as_by_a_kill():
        yield


def filled(folder: Path, segment_bytes: int = 1 << 20) -> FileJournal:
    journal = FileJournal(folder, segment_bytes)
    for number, record in RECORDS:
        journal.append(number, record)
    return journal


def everything(journal: FileJournal) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while more := journal.read(found[-1][0] + 1 if found else 0, 8):
        found += more
    return found


def only_segment(folder: Path) -> Path:
    (path,) = folder.glob("*.log")
    return path


@pytest.mark.parametrize("segment_bytes", [1, 40, 1 << 20])
def test_what_was_appended_is_found_again_whole_and_in_order(tmp_path: Path, segment_bytes: int) -> None:
    filled(tmp_path, segment_bytes).close()
    journal = FileJournal(tmp_path, segment_bytes)
    assert everything(journal) == RECORDS
    assert (journal.records, journal.last, journal.damaged) == (4, 6, 0)
    journal.append(7, b"seven")
    assert everything(journal)[-1] == (7, b"seven")


def test_a_last_record_cut_at_any_byte_is_cut_off_and_the_others_stay(tmp_path: Path) -> None:
    filled(tmp_path / "whole").close()
    whole = only_segment(tmp_path / "whole").read_bytes()
    last = len(whole) - 16  # the empty record has only a head
    before = last - 16 - len(RECORDS[2][1])
    for size in range(before, len(whole)):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / f"{1:020}.log").write_bytes(whole[:size])
        journal = FileJournal(folder)
        kept = 3 if size >= last else 2
        assert everything(journal) == RECORDS[:kept], size
        assert journal.damaged == (size not in (before, last))
        journal.append(9, b"on we go")
        journal.close()
        assert everything(FileJournal(folder)) == [*RECORDS[:kept], (9, b"on we go")]


def test_a_damaged_byte_anywhere_never_gives_a_wrong_record(tmp_path: Path) -> None:
    filled(tmp_path / "whole").close()
    whole = only_segment(tmp_path / "whole").read_bytes()
    for position in range(len(whole)):
        folder = tmp_path / str(position)
        folder.mkdir()
        (folder / f"{1:020}.log").write_bytes(
            whole[:position] + bytes((whole[position] ^ 0x41,)) + whole[position + 1 :]
        )
        journal = FileJournal(folder)
        found = everything(journal)
        assert found == RECORDS[: len(found)]
        assert len(found) < len(RECORDS)
        assert journal.damaged == 1


def test_zeros_after_a_power_cut_are_no_records(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with only_segment(tmp_path).open("ab") as file:
        file.write(bytes(4096))
    journal = FileJournal(tmp_path)
    assert everything(journal) == RECORDS
    assert journal.damaged == 1


def test_what_is_damaged_while_the_node_runs_is_an_error_and_not_a_message(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    path = only_segment(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"two", b"owt"))
    with pytest.raises(StorageError, match="damaged"):
        journal.read(2, 100)


def test_trimmed_records_are_gone_also_after_opening_again(tmp_path: Path) -> None:
    journal = filled(tmp_path, 1)
    journal.trim(2)
    assert (everything(journal), journal.records) == (RECORDS[2:], 2)
    assert len(list(tmp_path.glob("*.log"))) == 2
    journal.close()
    again = FileJournal(tmp_path)
    assert (everything(again), again.records, again.last) == (RECORDS[2:], 2, 6)


def test_a_number_is_taken_once_also_after_it_was_only_trimmed(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    journal.trim(20)
    assert (journal.last, journal.records, journal.size) == (20, 0, 0)
    with pytest.raises(ValueError, match="20"):
        journal.append(20, b"again")
    journal.close()
    again = FileJournal(tmp_path)
    assert again.last == 20
    again.append(21, b"next")
    assert everything(again) == [(21, b"next")]


def test_a_full_disk_is_an_error_after_which_the_next_record_takes_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = filled(tmp_path)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:10], at))
    with pytest.raises(StorageError, match="full"):
        journal.append(7, b"does not fit")
    monkeypatch.undo()
    journal.append(8, b"fits again")
    journal.close()
    again = FileJournal(tmp_path)
    assert everything(again) == [*RECORDS, (8, b"fits again")]
    assert again.damaged == 0


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 3), st.binary(max_size=30)),
            st.tuples(st.just("trim"), st.integers(0, 5), st.just(b"")),
            st.tuples(st.just("reopen"), st.just(0), st.just(b"")),
        ),
        max_size=30,
    )
)
def test_a_journal_on_disk_is_the_same_as_one_in_memory(
    steps: list[tuple[str, int, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    disk, memory = FileJournal(folder, 64), MemoryJournal()
    for action, number, record in steps:
        if action == "append":
            disk.append(disk.last + number, record)
            memory.append(memory.last + number, record)
        elif action == "trim":
            up_to = max(disk.last - number, 0)
            disk.trim(up_to)
            memory.trim(up_to)
        else:
            disk.close()
            disk = FileJournal(folder, 64)
        assert (disk.records, disk.last) == (memory.records, memory.last)
        assert disk.read(0, 1 << 20) == memory.read(0, 1 << 20)
    disk.close()


def test_a_note_torn_at_any_byte_says_what_it_said_before(tmp_path: Path) -> None:
    note = Note(tmp_path / "whole")
    for text in (b"first", b"second", b"third, longer"):
        note.write(text)
    note.close()
    stored = (tmp_path / "whole").read_bytes()
    place = stored.index(b"third, longer") - 16
    note = Note(tmp_path / "old")
    for text in (b"first", b"second"):
        note.write(text)
    note.close()
    before = (tmp_path / "old").read_bytes().ljust(128, b"\0")
    for size in range(16 + len(b"third, longer")):
        torn = before[:place] + stored[place : place + size] + before[place + size :]
        (tmp_path / "torn").write_bytes(torn)
        found = Note(tmp_path / "torn")
        assert found.read() == b"second", size
        found.write(b"goes on")
        found.close()
        assert Note(tmp_path / "torn").read() == b"goes on"
    assert Note(tmp_path / "whole").read() == b"third, longer"


def test_a_file_that_cannot_be_written_as_a_whole_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 1)
    with pytest.raises(OSError, match="space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
