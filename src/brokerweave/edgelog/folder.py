"""The log's folder: which segments there are, whose log it is, how far it may be read, and the disk itself.

Owns file names and the small files beside the segments. Invariants: a small file is replaced or overwritten
so that a crash leaves the old or the new; segments are sorted by the position of their first row. Must not
know: what blocks mean, when anything is written.
"""

from __future__ import annotations

import errno
import json
import os
import re
import struct
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from brokerweave.edgelog.layout import START, Position, SegmentHeader, decode_header
from brokerweave.errors import BrokerweaveError, Unavailable

_NAME = re.compile(r"([0-9]{10})-([0-9]{20})\.seg")
_SERVED = struct.Struct("<QQQQQI")
"""Write number, served epoch and sequence, safe epoch and sequence, checksum. Two places take turns."""
_HEADER_BYTES = 8192


class LogFiles:
    """The few calls that can fail because of the disk, in one place for tests to stand in for."""

    def write(self, file: int, data: bytes, offset: int) -> None:
        """All of it, or OSError."""
        written = os.pwrite(file, data, offset)
        while written < len(data):  # a disk that has just become full takes a part of a write
            more = os.pwrite(file, memoryview(data)[written:], offset + written)
            if more == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += more

    def sync(self, file: int) -> None:
        os.fsync(file)

    def free(self, folder: Path) -> int:
        """Bytes that this process may still write."""
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment's file, by its name alone."""

    path: Path
    epoch: int
    first: int

    @property
    def start(self) -> Position:
        return Position(self.epoch, self.first)

    def header(self) -> tuple[SegmentHeader, int]:
        """Raises ValueError if it is damaged, OSError if the file is gone."""
        with self.path.open("rb") as file:
            return self.header_in(file)

    def header_in(self, file: BinaryIO) -> tuple[SegmentHeader, int]:
        """The header, and where the first block begins. Raises ValueError."""
        header, at = decode_header(file.read(_HEADER_BYTES))
        if (header.epoch, header.first) != self.start:
            raise ValueError("its header does not fit its name")
        return header, at


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Whose log it is, and where the last start began to write."""

    log_id: str
    node: str
    epoch: int
    next: int


@dataclass(frozen=True, slots=True)
class ServedUpTo:
    """Readers may read up to `served`; up to `safe` it is on the disk whatever happens."""

    served: Position = START
    safe: Position = START


def segments(folder: Path) -> list[Segment]:
    """All segments, oldest first. Raises `Unavailable` if there is no such folder."""
    found = []
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise Unavailable(f"there is no edge log at {folder} ({error.strerror})") from error
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            found.append(Segment(folder / name, int(match[1]), int(match[2])))
    return sorted(found, key=lambda segment: segment.start)


def segment_path(folder: Path, start: Position) -> Path:
    return folder / f"{start.epoch:010}-{start.sequence:020}.seg"


def read_identity(folder: Path) -> LogIdentity | None:
    """None at a first start. Raises `BrokerweaveError` if it cannot be read."""
    path = folder / "log.json"
    try:
        stored = json.loads(path.read_bytes())
        identity = LogIdentity(
            str(stored["log_id"]), str(stored["node"]), int(stored["epoch"]), int(stored["next"])
        )
        if len(bytes.fromhex(identity.log_id)) != 16:
            raise ValueError("no log id")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise BrokerweaveError(f"{path} is damaged ({error}); move it away to go on") from error
    return identity


def write_identity(folder: Path, identity: LogIdentity) -> None:
    replace_file(folder / "log.json", json.dumps(asdict(identity), indent=1).encode() + b"\n")


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole, also over a power cut."""
    temporary = path.with_name(path.name + ".new")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        LogFiles().write(file, data, 0)
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A new name is on the disk only when its folder is."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True)
class Sync:
    """An fsync to be done elsewhere, in a thread: `run` it, then tell the writer by `synced`."""

    disk: LogFiles
    folder: Path
    files: tuple[int, ...]
    up_to: Position

    def run(self) -> OSError | None:
        """None, or what went wrong first; whatever it is, the other files get to the disk. To be run once."""
        errors = [self._tried(file) for file in self.files]
        try:
            sync_folder(self.folder)
        except OSError as error:
            errors.append(error)
        return next(filter(None, errors), None)

    def _tried(self, file: int) -> OSError | None:
        try:
            self.disk.sync(file)
        except OSError as error:
            return error
        finally:
            os.close(file)
        return None


class ServedNote:
    """Written by the node after each block or fsync, read by readers in other processes."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "served", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._number, self.value = _newest(os.pread(self._file, 2 * _SERVED.size, 0))

    def write(self, value: ServedUpTo) -> None:
        self._number += 1
        data = _SERVED.pack(self._number, *value.served, *value.safe, 0)[:-4]
        data += zlib.crc32(data).to_bytes(4, "little")
        os.pwrite(self._file, data, self._number % 2 * _SERVED.size)
        self.value = value

    def close(self) -> None:
        os.close(self._file)


def read_served(folder: Path) -> ServedUpTo:
    """`ServedUpTo()` if there is none that is whole. Raises `Unavailable` if it cannot be read."""
    path = folder / "served"
    try:
        return _newest(path.read_bytes())[1]
    except FileNotFoundError:
        return ServedUpTo()
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}") from error


def _newest(stored: bytes) -> tuple[int, ServedUpTo]:
    found = [(0, ServedUpTo())]
    for place in (0, _SERVED.size):
        data = stored[place : place + _SERVED.size]
        if len(data) == _SERVED.size:
            number, *positions, checksum = _SERVED.unpack(data)
            if zlib.crc32(data[:-4]) == checksum:
                found.append((number, ServedUpTo(Position(*positions[:2]), Position(*positions[2:]))))
    return max(found, key=lambda one: one[0])
