"""A journal on disk, and small notes beside it: what a node must find again after it was killed.

Owns the files of one outbox: segments of records, each record with its length, checksum and number, and a
note of how far it was trimmed. Invariants: a record is one write at the end of the newest segment, so a
kill leaves at most one torn record, at the end, which is cut off on opening; whole segments are deleted
once trimmed. Nothing is fsynced: a killed process loses nothing, a power cut may lose what the kernel had
not written yet. Must not know: what a record means.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from brokerweave.links.journal import StorageError

SEGMENT_BYTES = 4 << 20
_HEAD = struct.Struct(">IIQ")
_NOTE_HEAD = struct.Struct(">II")


@dataclass(slots=True)
class _Segment:
    path: Path
    first: int
    last: int
    size: int


class FileJournal:
    """Implements `links.journal.Journal` in a folder of its own. Numbers are contiguous in each segment."""

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
        return sum(s.last - max(s.first - 1, self._trimmed) for s in self._segments if s.last > self._trimmed)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def append(self, sequence: int, record: bytes) -> None:
        if sequence <= self.last:
            raise ValueError(f"record {sequence} after {self.last}")
        data = _HEAD.pack(len(record), zlib.crc32(record), sequence) + record
        try:
            segment = self._newest(sequence, len(data))
            assert self._writing is not None
            written = os.pwrite(self._writing, data, segment.size)
        except OSError as error:
            raise _translated(self._folder, error) from error
        if written != len(data):
            raise StorageError(f"{self._folder}: the disk is full")
        segment.size += len(data)
        segment.last = self.last = sequence

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
                            if zlib.crc32(record) != checksum:
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
        if (
            newest is None
            or self._writing is None
            or newest.size + size > self._segment_bytes
            or newest.last + 1 != sequence
        ):
            path = self._folder / f"{sequence:020}.log"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            if self._writing is not None:
                os.close(self._writing)
            self._writing = descriptor
            newest = _Segment(path, sequence, sequence - 1, 0)
            self._segments.append(newest)
        return newest

    def _recover(self, path: Path) -> None:
        """Read a segment to its end or to the first record that is not whole, and cut it there."""
        data = path.read_bytes()
        offset = last = 0
        first = int(path.stem)
        while offset < len(data):
            end = offset + _HEAD.size
            if end > len(data):
                break
            length, checksum, sequence = _HEAD.unpack_from(data, offset)
            record = data[end : end + length]
            if len(record) != length or zlib.crc32(record) != checksum:
                break
            offset, last = end + length, sequence
        if offset < len(data):
            self.damaged += 1
            os.truncate(path, offset)
        if offset:
            self._segments.append(_Segment(path, first, last, offset))
        else:
            path.unlink()


class Note:
    """A few bytes that are overwritten in place: how far something got. Torn writes read as absent."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> bytes | None:
        stored = os.pread(self._descriptor, 1 << 16, 0)
        if len(stored) < _NOTE_HEAD.size:
            return None
        length, checksum = _NOTE_HEAD.unpack_from(stored)
        data = stored[_NOTE_HEAD.size : _NOTE_HEAD.size + length]
        return data if len(data) == length and zlib.crc32(data) == checksum else None

    def write(self, data: bytes) -> None:
        os.pwrite(self._descriptor, _NOTE_HEAD.pack(len(data), zlib.crc32(data)) + data, 0)

    def close(self) -> None:
        os.close(self._descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file as a whole: readers see the old one or the new one."""
    temporary = path.with_suffix(".new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _translated(folder: Path, error: OSError) -> StorageError:
    return StorageError(f"{folder}: {error.strerror or error}")
