"""Finding rows by time, and reading a part of a segment without the rest of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.edgelog import blocks
from brokerweave.edgelog.layout import START, Position
from brokerweave.edgelog.reader import LogReader
from brokerweave.edgelog.writer import LogWriter, Policy
from tests.unit.edgelog.logs import SECOND, flip, frames, read, segment_files, write_block

TINY = Policy(fsync="never", max_bytes=1 << 14, min_free=0)
"""Segments of 1 KiB."""


def write_times(folder: Path, times: list[int], rows: int = 3) -> None:
    """One block of so many rows, each a run of its own, for each time; two starts."""
    for half in (times[: len(times) // 2], times[len(times) // 2 :]):
        writer = LogWriter(folder, "a", TINY)
        for time in half:
            for _ in range(rows):
                writer.append(time, b"c", 4, 1, frames(b"x" * 90))
            writer.flush()
        writer.close()


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(0, 32))
def test_a_time_is_found_where_reading_all_rows_finds_it(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], wanted: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    write_times(folder, sorted(times))
    before = [row.position for row in read(folder) if row.received < wanted]
    found = LogReader(folder).position_at(wanted)
    if before:
        assert found == before[-1]
    else:
        assert START < found < LogReader(folder).first()


def test_a_time_is_found_behind_a_damaged_segment(tmp_path: Path) -> None:
    write_times(tmp_path, [SECOND * n for n in range(1, 13)])
    files = segment_files(tmp_path)
    assert len(files) >= 3
    flip(files[0], 10)  # its header
    flip(files[1], 200)
    last = read(tmp_path, Position(2, 33))[0]
    assert LogReader(tmp_path).position_at(last.received) == Position(2, 33)


def test_rows_tell_when_they_came_and_how_old_the_oldest_unread_is(tmp_path: Path) -> None:
    write_times(tmp_path, [SECOND * n for n in range(1, 9)])
    reader = LogReader(tmp_path)
    assert reader.received(reader.end()) == 8 * SECOND
    assert reader.received(Position(1, 1)) == SECOND
    assert reader.received(Position(9, 99)) == 0
    assert reader.age(START, 10 * SECOND) == 9.0
    assert reader.age(Position(1, 3), 10 * SECOND) == 8.0
    assert reader.age(reader.end(), 10 * SECOND) == 0.0
    assert reader.age(START, 0) == 0.0


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is read from segments' blocks, in bytes."""
    sizes: list[int] = []

    def counted(file: int, size: int, at: int) -> bytes:
        data = os.pread(file, size, at)
        sizes.append(len(data))
        return data

    class Counting:
        pread = staticmethod(counted)

    monkeypatch.setattr(blocks, "os", Counting)
    return sizes


def test_blocks_before_a_position_are_stepped_over_by_their_heads(
    tmp_path: Path, read_bytes: list[int]
) -> None:
    writer = LogWriter(tmp_path, "a", Policy(fsync="never", max_bytes=1 << 30, min_free=0))
    for number in range(20):
        write_block(writer, b"%d" % number * 400_000)
    writer.close()
    (row,) = read(tmp_path, Position(1, 19))
    assert row.sequence == 20
    assert sum(read_bytes) < 3_000_000
    reader = LogReader(tmp_path)
    assert reader.received(reader.end()) == SECOND
    read_bytes.clear()
    assert reader.received(reader.end()) == SECOND
    assert sum(read_bytes) < 1_500_000  # it goes on where it was: at the last block
