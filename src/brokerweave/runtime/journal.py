"""A journal on disk, and small notes beside it: what a node must find again after it was killed.

Owns the files of one journal: segments of records, each record with its length, checksum and number, and a
note of how far it was trimmed. Invariants: a record is one write at the end of the newest segment, so a
kill leaves at most one torn record, at the end, which is cut off on opening; whole segments are deleted
once trimmed. Nothing is fsynced: a killed process loses nothing, a power cut may lose what the kernel had
not written yet. Must not know: what a record means.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from brokerweave.links.journal import StorageError

SEGMENT_BYTES = 4 << 20
_HEAD = struct.Struct(">IIQ")
"""Length, checksum, number. The checksum is over number and record: zeros are no record."""
_NUMBER = struct.Struct(">Q")
_NOTE = struct.Struct(">IIQ")
_NOTE_PLACE = 64


@dataclass(slots=True)
class _Segment:
    path: Path
    size: int = 0
    numbers: array[int] = field(default_factory=lambda: array("Q"))
    """Of its records, in order."""

    @property
    def last(self) -> int:
        return self.numbers[-1] if self.numbers else 0


class FileJournal:
    """Implements `links.journal.Journal` in a folder of its own."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.damaged = 0
        """Records found torn or damaged on opening; each was cut off with what followed in its segment."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._writing: int | None = None
        self._cursor: tuple[int, _Segment, int] | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._mark = Note(folder / "trimmed")
            self._trimmed = int.from_bytes(self._mark.read() or b"")
            for path in sorted(folder.glob("*.log")):
                self._recover(path)
        except OSError as error:
            raise _translated(folder, error) from error
        self.last = max(self._trimmed, self._segments[-1].last if self._segments else 0)
        self.trim(self._trimmed)

    @property
    def records(self) -> int:
        return sum(len(s.numbers) - bisect_right(s.numbers, self._trimmed) for s in self._segments)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def append(self, sequence: int, record: bytes) -> None:
        if sequence <= self.last:
            raise ValueError(f"record {sequence} after {self.last}")
        data = _HEAD.pack(len(record), _checksum(sequence, record), sequence) + record
        try:
            segment = self._newest(sequence, len(data))
            assert self._writing is not None
            written = os.pwrite(self._writing, data, segment.size)
        except OSError as error:
            raise _translated(self._folder, error) from error
        if written != len(data):
            raise StorageError(f"{self._folder}: the disk is full")
        segment.size += len(data)
        segment.numbers.append(sequence)
        self.last = sequence

    def read(self, sequence_from: int, limit_bytes: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        sequence_from = max(sequence_from, self._trimmed + 1)
        try:
            for segment in self._segments:
                if segment.last < sequence_from:
                    continue
                offset = 0
                if self._cursor and self._cursor[0] == sequence_from and self._cursor[1] is segment:
                    offset = self._cursor[2]
                with segment.path.open("rb") as file:
                    file.seek(offset)
                    while offset < segment.size:
                        length, checksum, sequence = _HEAD.unpack(file.read(_HEAD.size))
                        if sequence >= sequence_from:
                            if found and length > limit_bytes:
                                self._cursor = (sequence, segment, offset)
                                return found
                            record = file.read(length)
                            if _checksum(sequence, record) != checksum:
                                raise StorageError(f"{segment.path}: record {sequence} is damaged")
                            found.append((sequence, record))
                            limit_bytes -= length
                        else:
                            file.seek(length, os.SEEK_CUR)
                        offset += _HEAD.size + length
        except OSError as error:
            raise _translated(self._folder, error) from error
        except struct.error:
            raise StorageError(f"{self._folder}: a segment is shorter than it was") from None
        return found

    def trim(self, up_to: int) -> None:
        self._trimmed = max(self._trimmed, up_to)
        self.last = max(self.last, up_to)
        try:
            self._mark.write(self._trimmed.to_bytes(8))
            while self._segments and self._segments[0].last <= self._trimmed:
                if self._writing is not None and len(self._segments) == 1:
                    os.close(self._writing)
                    self._writing = None
                self._segments.pop(0).path.unlink(missing_ok=True)
        except OSError as error:
            raise _translated(self._folder, error) from error

    def close(self) -> None:
        if self._writing is not None:
            os.close(self._writing)
            self._writing = None
        self._mark.close()

    def delete(self) -> None:
        """Close and leave nothing behind."""
        self.close()
        for path in self._folder.iterdir():
            path.unlink(missing_ok=True)
        self._folder.rmdir()

    def _newest(self, sequence: int, size: int) -> _Segment:
        newest = self._segments[-1] if self._segments else None
        if newest is None or self._writing is None or newest.size + size > self._segment_bytes:
            path = self._folder / f"{sequence:020}.log"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            if self._writing is not None:
                os.close(self._writing)
            self._writing = descriptor
            newest = _Segment(path)
            self._segments.append(newest)
        return newest

    def _recover(self, path: Path) -> None:
        """Read a segment to its end or to the first record that is not whole, and cut it there."""
        data = path.read_bytes()
        offset = 0
        numbers = array("Q")
        while offset < len(data):
            end = offset + _HEAD.size
            if end > len(data):
                break
            length, checksum, sequence = _HEAD.unpack_from(data, offset)
            record = data[end : end + length]
            if len(record) != length or _checksum(sequence, record) != checksum:
                break
            if numbers and sequence <= numbers[-1]:
                break
            offset = end + length
            numbers.append(sequence)
        if offset < len(data):
            self.damaged += 1
            os.truncate(path, offset)
        if offset:
            self._segments.append(_Segment(path, offset, numbers))
        else:
            path.unlink()


class Note:
    """A few bytes that are overwritten: how far something got. A torn write leaves what was there before."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        stored = os.pread(self._descriptor, 2 * _NOTE_PLACE, 0)
        # Two places take turns, so the one that was not being written is whole.
        found = [_read_place(stored[place : place + _NOTE_PLACE]) for place in (0, _NOTE_PLACE)]
        newest = max((one for one in found if one), default=None)
        self._writes = newest[0] if newest else 0
        self._data = newest[1] if newest else None

    def read(self) -> bytes | None:
        return self._data

    def write(self, data: bytes) -> None:
        """At most 48 bytes."""
        self._writes += 1
        self._data = data
        head = _NOTE.pack(len(data), _checksum(self._writes, data), self._writes)
        os.pwrite(self._descriptor, head + data, self._writes % 2 * _NOTE_PLACE)

    def close(self) -> None:
        os.close(self._descriptor)


def _read_place(stored: bytes) -> tuple[int, bytes] | None:
    if len(stored) < _NOTE.size:
        return None
    length, checksum, writes = _NOTE.unpack_from(stored)
    data = stored[_NOTE.size : _NOTE.size + length]
    return (writes, data) if len(data) == length and _checksum(writes, data) == checksum else None


def write_atomically(path: Path, data: bytes, sync: bool = True) -> None:
    """Replace a file as a whole: readers see the old one or the new one; `sync`: also after a power cut."""
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.pwrite(descriptor, data, 0) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)


def _checksum(number: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(_NUMBER.pack(number)))


def _translated(folder: Path, error: OSError) -> StorageError:
    return StorageError(f"{folder}: {error.strerror or error}")
