"""Logs for tests: publications to write, a disk that can be full, and everything that a reader finds."""

from __future__ import annotations

import errno
from pathlib import Path

from brokerweave.edgelog.folder import LogFiles
from brokerweave.edgelog.layout import START, Position
from brokerweave.edgelog.reader import LogReader, Skipped
from brokerweave.edgelog.rows import LogRow, rows
from brokerweave.edgelog.writer import LogWriter, Policy
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish

SMALL = Policy(fsync="never", max_bytes=1 << 20, min_free=0)
"""Segments of 64 KiB."""
SECOND = 1_000_000


class FakeDisk(LogFiles):
    """Takes `room` bytes and no more; a write that does not fit leaves its beginning, as a real one does."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room
        self.syncs = 0
        self.broken_sync = False

    def write(self, file: int, data: bytes, offset: int) -> None:
        super().write(file, data[: self.room], offset)
        if len(data) > self.room:
            self.room = 0
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(data)

    def sync(self, file: int) -> None:
        if self.broken_sync:
            raise OSError(errno.EIO, "Input/output error")
        self.syncs += 1

    def free(self, folder: Path) -> int:
        return self.room


def frames(*payloads: bytes, topic: str = "t", qos: int = 0, version: int = 4) -> bytes:
    return b"".join(
        codec.encode(Publish(topic, each, qos, packet_id=7 if qos else 0), version) for each in payloads
    )


def write_block(writer: LogWriter, *payloads: bytes, time: int = SECOND) -> None:
    writer.append(time, b"client", 4, len(payloads), frames(*payloads))
    writer.flush()


def read(folder: Path, after: Position = START, skipped: Skipped | None = None) -> list[LogRow]:
    return [row for block in LogReader(folder).blocks(after, skipped=skipped) for row in rows(block, after)]


def payloads(folder: Path, after: Position = START, skipped: Skipped | None = None) -> list[bytes]:
    return [row.payload for row in read(folder, after, skipped)]


def segment_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seg"))


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
