"""The writer: bounds, readers' positions, full disks, what is served when."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from brokerweave.edgelog.folder import ServedNote, read_served
from brokerweave.edgelog.layout import START, Position
from brokerweave.edgelog.reader import LogReader, Skipped, TrimmedRows
from brokerweave.edgelog.readers import Readers
from brokerweave.edgelog.writer import BLOCK_ROWS, LogWriter, Policy
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from tests.unit.edgelog.logs import (
    SECOND,
    SMALL,
    FakeDisk,
    frames,
    payloads,
    read,
    segment_files,
    write_block,
)

TINY = Policy(fsync="never", max_bytes=1 << 14, min_free=0)


def test_rows_have_all_that_was_published(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", SMALL)
    writer.append(5, "é".encode(), 5, 2, frames(b"x", b"y", topic="s/1", qos=1, version=5), [1])
    writer.flush()
    first, second = read(tmp_path)
    assert (first.client, first.topic, first.payload, first.qos, first.packet_id) == ("é", "s/1", b"x", 1, 7)
    assert (first.received, first.dup, second.dup, second.sequence) == (5, False, True, 2)
    writer.close()


def test_a_block_closes_by_itself_when_it_is_full(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", SMALL)
    for _ in range(BLOCK_ROWS - 1):
        writer.append(1, b"c", 4, 1, frames(b"x"))
    assert payloads(tmp_path) == []
    writer.append(1, b"c", 4, 1, frames(b"x"))
    assert len(payloads(tmp_path)) == BLOCK_ROWS
    writer.close()


def test_with_interval_a_row_is_served_when_it_was_fsynced(tmp_path: Path) -> None:
    disk = FakeDisk()
    writer = LogWriter(tmp_path, "a", Policy(min_free=0), disk=disk)
    write_block(writer, b"x")
    assert payloads(tmp_path) == []
    sync = writer.begin_sync()
    assert sync is not None
    write_block(writer, b"later")
    writer.synced(sync, sync.run(), SECOND)
    assert disk.syncs == 1
    assert payloads(tmp_path) == [b"x"]
    writer.close()
    assert payloads(tmp_path) == [b"x", b"later"]


def test_with_always_each_block_is_fsynced_before_flush_returns(tmp_path: Path) -> None:
    disk = FakeDisk()
    writer = LogWriter(tmp_path, "a", Policy(fsync="always", min_free=0), disk=disk)
    for number in range(3):
        write_block(writer, b"x")
        assert disk.syncs == number + 1
    assert writer.begin_sync() is None
    writer.close()


def test_an_fsync_that_fails_stops_recording_and_a_new_segment_follows(tmp_path: Path) -> None:
    disk, warnings = FakeDisk(), list[str]()
    writer = LogWriter(tmp_path, "a", Policy(fsync="always", min_free=0), warnings.append, disk)
    disk.broken_sync = True
    write_block(writer, b"x")
    assert "fsync failed" in warnings[0]
    disk.broken_sync = False
    write_block(writer, b"missed")
    write_block(writer, b"y", time=3 * SECOND)
    assert len(segment_files(tmp_path)) == 2
    assert payloads(tmp_path) == [b"x", b"y"]
    assert writer.counts.unrecorded == 1
    writer.close()


def test_a_full_disk_stops_recording_loudly_and_room_lets_it_go_on(tmp_path: Path) -> None:
    disk, warnings = FakeDisk(600), list[str]()
    writer = LogWriter(tmp_path, "a", SMALL, warnings.append, disk)
    write_block(writer, b"before" * 50)
    write_block(writer, b"too much" * 50)
    assert writer.status()["recording"] is False
    assert "No space left" in writer.status()["reason"]
    disk.room = 10_000
    write_block(writer, b"too early")
    assert writer.counts.unrecorded == 2
    write_block(writer, b"after", time=3 * SECOND)
    assert writer.status()["recording"] is True
    assert ["stops" in warnings[0], "recording again; 2 messages" in warnings[1]] == [True, True]
    assert len(warnings) == 2
    assert payloads(tmp_path) == [b"before" * 50, b"after"]
    writer.close()


def test_too_little_room_for_a_new_segment_leaves_no_file_behind(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", SMALL, disk=FakeDisk(10))
    write_block(writer, b"x")
    assert writer.counts.unrecorded == 1
    assert segment_files(tmp_path) == []
    writer.close()


def test_recording_stops_while_less_than_min_free_is_left(tmp_path: Path) -> None:
    disk = FakeDisk(1000)
    writer = LogWriter(tmp_path, "a", Policy(fsync="never", min_free=2000), disk=disk)
    writer.maintain(SECOND)
    write_block(writer, b"missed", time=2 * SECOND)
    assert "min_free" in writer.reason
    disk.room = 5000
    writer.maintain(2 * SECOND)
    write_block(writer, b"kept", time=4 * SECOND)
    assert payloads(tmp_path) == [b"kept"]
    assert writer.reason == ""
    writer.close()


def test_a_log_stays_below_its_bytes_and_a_reader_hears_what_was_trimmed(tmp_path: Path) -> None:
    warnings: list[str] = []
    writer = LogWriter(tmp_path, "a", TINY, warnings.append)
    Readers(tmp_path).commit("lake", Position(1, 2))
    for number in range(100):
        write_block(writer, b"%3d" % number * 100)
        writer.trim(SECOND)
    assert sum(path.stat().st_size for path in segment_files(tmp_path)) <= TINY.max_bytes + 2048
    first = read(tmp_path)[0].sequence
    assert first > 3
    assert writer.counts.trimmed == first - 1
    assert writer.counts.trimmed_unread == first - 1 - 2
    assert len(warnings) == 1
    with pytest.raises(TrimmedRows, match="rows after 1:2 were trimmed"):
        payloads(tmp_path, Position(1, 2))
    skipped = Skipped()
    assert len(payloads(tmp_path, Position(1, 2), skipped)) == 101 - first
    assert skipped.trimmed == first - 3
    writer.close()


def test_what_all_readers_have_committed_goes_without_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    writer = LogWriter(tmp_path, "a", TINY, warnings.append)
    for number in range(60):
        write_block(writer, b"%3d" % number * 100)
        for name in ("x", "y"):
            writer.readers.commit(name, writer.last)
        writer.trim(SECOND)
    assert writer.counts.trimmed > 0
    assert (writer.counts.trimmed_unread, warnings) == (0, [])
    writer.close()


def test_old_segments_go_by_age_and_the_newest_is_ended_in_time(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", Policy(fsync="never", max_age=160, min_free=0), disk=FakeDisk())
    write_block(writer, b"old", time=SECOND)
    writer.maintain(5 * SECOND)
    assert payloads(tmp_path) == [b"old"]
    writer.maintain(12 * SECOND)  # a sixteenth of the age has passed: the segment ends
    write_block(writer, b"new", time=150 * SECOND)
    assert len(segment_files(tmp_path)) == 2
    writer.maintain(162 * SECOND)
    assert payloads(tmp_path) == [b"new"]
    writer.close()


def test_trim_before_takes_whole_segments_of_older_rows_only(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", TINY)
    for number in range(10):
        write_block(writer, b"%3d" % number * 100)
    second = LogReader(tmp_path).segments()[1]
    assert writer.trim_before(Position(1, second.last - 1)) == second.first - 1
    assert LogReader(tmp_path).first() == Position(1, second.first)
    assert writer.trim_before(Position(9, 0)) > 0  # all but the one that is being written
    assert len(segment_files(tmp_path)) == 1
    writer.close()


def test_a_position_from_a_lost_tail_goes_on_in_the_next_epoch(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", SMALL)
    write_block(writer, b"0", b"1")
    writer.close()
    writer = LogWriter(tmp_path, "a", SMALL)
    write_block(writer, b"2")
    assert payloads(tmp_path, Position(1, 500)) == [b"2"]
    reader = LogReader(tmp_path)
    assert [reader.lag(p) for p in (START, Position(1, 1), Position(1, 500), reader.end())] == [3, 2, 1, 0]
    writer.close()


def test_a_reader_goes_on_from_where_it_was_while_the_log_grows(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", TINY)
    reader, found, position = LogReader(tmp_path), list[int](), START
    for number in range(40):
        write_block(writer, b"%3d" % number * 30)
        for block in reader.blocks(position):
            found += range(block.first, block.last + 1)
            position = Position(block.epoch, block.last)
    assert found == list(range(1, 41))
    writer.close()


def test_a_readers_position_only_moves_forward(tmp_path: Path) -> None:
    readers = Readers(tmp_path)
    assert readers.all() == {}
    readers.commit("lake", Position(2, 5))
    assert readers.commit("lake", Position(1, 900)) == (2, 5)
    assert readers.all() == {"lake": Position(2, 5)}
    readers.forget("lake")
    with pytest.raises(ConfigError, match="known are none"):
        readers.forget("lake")
    with pytest.raises(ConfigError, match="name"):
        readers.commit("../lake", START)


def test_a_damaged_readers_file_is_said_and_never_taken_for_no_reader(tmp_path: Path) -> None:
    Readers(tmp_path).commit("lake", Position(1, 1))
    (tmp_path / "readers" / "lake.json").write_bytes(b"{")
    with pytest.raises(BrokerweaveError, match="damaged"):
        Readers(tmp_path).all()
    Readers(tmp_path).commit("lake", Position(1, 2))  # this mends it
    assert Readers(tmp_path).all() == {"lake": Position(1, 2)}


def test_a_damaged_readers_file_lets_the_log_stay_below_its_bytes_and_is_said_once(tmp_path: Path) -> None:
    warnings: list[str] = []
    writer = LogWriter(tmp_path, "a", TINY, warnings.append)
    writer.readers.commit("lake", Position(1, 1))
    (tmp_path / "readers" / "lake.json").write_bytes(b"{")
    for number in range(100):
        write_block(writer, b"%3d" % number * 100)
        writer.trim(SECOND)
    assert writer.status()["bytes"] <= TINY.max_bytes + 2048
    assert writer.counts.trimmed_unread == writer.counts.trimmed > 0
    assert ["damaged" in warning for warning in warnings] == [True, False]
    writer.close()


def test_a_segment_without_rows_is_not_counted_beside_the_one_that_takes_its_name(tmp_path: Path) -> None:
    policy = Policy(fsync="never", max_age=160, min_free=0)
    disk = FakeDisk(100)  # enough for the segment's header
    writer = LogWriter(tmp_path, "a", policy, disk=disk)
    write_block(writer, b"missed" * 50)
    disk.room = 1 << 20
    writer.maintain(12 * SECOND)  # a sixteenth of the age has passed: the segment ends
    write_block(writer, b"kept", time=12 * SECOND)
    assert (writer.status()["segments"], len(segment_files(tmp_path))) == (1, 1)
    assert writer.trim_before(Position(1, 0)) == 0
    assert payloads(tmp_path) == [b"kept"]
    writer.close()


@pytest.mark.parametrize("step", [30 * 86_400, -30 * 86_400])
def test_a_clock_that_is_set_neither_trims_fresh_rows_nor_ends_a_segment(tmp_path: Path, step: int) -> None:
    now = 1_000_000_000 * SECOND
    writer = LogWriter(tmp_path, "a", Policy(fsync="never", min_free=0), disk=FakeDisk())
    for number in range(3):
        write_block(writer, b"%d" % number, time=now)
        writer._roll()
    write_block(writer, b"3", time=now)
    writer.append(now, b"c", 4, 1, frames(b"gathered"))
    writer.clock_set(step * SECOND)
    now += step * SECOND
    writer.maintain(now)
    writer.flush()
    writer._roll()
    writer.maintain(now)
    assert payloads(tmp_path) == [b"0", b"1", b"2", b"3", b"gathered"]
    assert len(segment_files(tmp_path)) == 4
    writer.maintain(now + 8 * 86_400 * SECOND)
    assert payloads(tmp_path) == []  # they do get old
    writer.close()


def test_a_clock_that_is_set_back_does_not_put_off_the_next_try(tmp_path: Path) -> None:
    disk, now = FakeDisk(100), 1_000_000 * SECOND
    writer = LogWriter(tmp_path, "a", SMALL, disk=disk)
    write_block(writer, b"missed" * 50, time=now)
    disk.room = 10_000
    writer.clock_set(-3600 * SECOND)
    write_block(writer, b"kept", time=now - 3597 * SECOND)
    assert payloads(tmp_path) == [b"kept"]
    writer.close()


def test_a_start_that_fails_leaves_no_descriptor_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ServedNote, "write", full)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(Unavailable):
            LogWriter(tmp_path, "a", SMALL)
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_for_an_fsync_keeps_all_files_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FakeDisk()
    writer = LogWriter(tmp_path, "a", Policy(min_free=0), disk=disk)
    write_block(writer, b"x")
    writer._roll()
    write_block(writer, b"y")
    with monkeypatch.context() as patched:
        patched.setattr(os, "dup", no_descriptor)
        with pytest.raises(OSError, match="Too many"):
            writer.begin_sync()
    sync = writer.begin_sync()
    assert sync is not None
    writer.synced(sync, sync.run(), SECOND)
    assert disk.syncs == 2
    write_block(writer, b"z")
    monkeypatch.setattr(os, "dup", no_descriptor)
    writer.close()
    assert payloads(tmp_path) == [b"x", b"y", b"z"]


@pytest.mark.parametrize("fsync", ["interval", "always"])
def test_rows_of_an_fsync_that_failed_are_served_later_but_never_called_safe(
    tmp_path: Path, fsync: str
) -> None:
    disk = FakeDisk()
    writer = LogWriter(tmp_path, "a", Policy(fsync=fsync, min_free=0), disk=disk)

    def write(payload: bytes, time: int) -> None:
        write_block(writer, payload, time=time)
        sync = writer.begin_sync()
        if sync is not None:
            writer.synced(sync, sync.run(), time)

    write(b"safe", SECOND)
    disk.broken_sync = True
    write(b"in doubt", SECOND)
    assert payloads(tmp_path) == [b"safe"]
    disk.broken_sync = False
    write(b"later", 3 * SECOND)
    assert payloads(tmp_path) == [b"safe", b"in doubt", b"later"]
    assert read_served(tmp_path).safe == Position(1, 1)
    writer.close()


def test_a_file_that_fails_does_not_keep_the_others_from_the_disk(tmp_path: Path) -> None:
    class FailsOnce(FakeDisk):
        def sync(self, file: int) -> None:
            failing, self.broken_sync = self.broken_sync, False
            self.syncs += 1
            if failing:
                raise OSError(5, "Input/output error")

    disk = FailsOnce()
    writer = LogWriter(tmp_path, "a", Policy(min_free=0), disk=disk)
    for payload in (b"x", b"y"):
        write_block(writer, payload)
        writer._roll()
    disk.broken_sync = True
    sync = writer.begin_sync()
    assert sync is not None
    assert sync.run() is not None
    assert disk.syncs == 2
    writer.close()


def no_descriptor(file: int) -> int:
    raise OSError(24, "Too many open files")
