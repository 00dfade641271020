"""Writes the edge log: runs are gathered to blocks, blocks to segments, and old segments go.

Owns the newest segment and how far readers may read. Invariants: a block is one write behind the last whole
one, so a crash tears at most the tail; a disk that fails stops recording, loudly and counted, and raises
nothing, since relaying goes on; what is served is on the disk as the policy says. Must not know: sockets,
threads, clocks (time comes with what is recorded).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokerweave.edgelog import folder as files
from brokerweave.edgelog.folder import LogFiles, Segment, ServedNote, ServedUpTo, Sync
from brokerweave.edgelog.layout import START, Position, SegmentHeader, encode_block, encode_header, run_head
from brokerweave.edgelog.lock import take_lock, translated
from brokerweave.edgelog.readers import Readers
from brokerweave.edgelog.recovery import recover
from brokerweave.errors import BrokerweaveError

BLOCK_ROWS = 5_000
BLOCK_BYTES = 1 << 20
RETRY_MICROSECONDS = 1_000_000
_LONGEST_ROLL = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Policy:
    """As in `[edge_log]` of the configuration."""

    fsync: str = "interval"
    max_bytes: int = 1 << 30
    max_age: float = 7 * 86_400.0
    min_free: int = 64 << 20

    @property
    def segment_bytes(self) -> int:
        return min(64 << 20, self.max_bytes // 16)

    @property
    def roll_after(self) -> int:
        """Microseconds after which a segment ends, so that age can take it."""
        return min(int(self.max_age / 16 * 1e6), _LONGEST_ROLL)


@dataclass(slots=True)
class WriterCounts:
    """Rows, since the start."""

    recorded: int = 0
    unrecorded: int = 0
    trimmed: int = 0
    trimmed_unread: int = 0
    sync_failures: int = 0


@dataclass(slots=True)
class _Kept:
    segment: Segment
    size: int
    newest: int
    """When its last row came, in microseconds since 1970."""


@dataclass(slots=True)
class _Open:
    """The segment being written."""

    file: int
    kept: _Kept
    seed: int
    began: int


@dataclass(slots=True)
class _Gathered:
    """What the next block will hold."""

    parts: list[bytes] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    time: int = 0


class LogWriter:
    """The one writer of a log; a lock that dies with the process keeps others away."""

    def __init__(
        self,
        folder: Path,
        node: str,
        policy: Policy,
        warn: Callable[[str], None] = lambda message: None,
        disk: LogFiles | None = None,
    ) -> None:
        """Opens a new epoch. Raises `Unavailable` if the disk does not take it now, else `ConfigError`."""
        self.folder = folder
        self.policy = policy
        self.counts = WriterCounts()
        self.reason = ""
        """Why nothing is recorded; empty while it is."""
        self._warn = warn
        self._disk = disk or LogFiles()
        self._block = _Gathered()
        self._open: _Open | None = None
        self._unsynced: list[int] = []
        self._retry_at = 0
        self._missed = 0
        self._doubtful = False
        """An fsync failed since the start: whether the disk has its rows nobody knows."""
        self._unread_series = False
        self._readers_said = ""
        with contextlib.ExitStack() as stack:
            stack.enter_context(translated(folder))
            self._lock = take_lock(folder)
            stack.callback(os.close, self._lock)
            recovered = recover(folder, node, sync=policy.fsync != "never")
            self._note = ServedNote(folder)
            stack.callback(self._note.close)
            self._kept = [_kept(segment) for segment in recovered.segments]
            before = Position(recovered.identity.epoch, recovered.identity.next - 1)
            self._note.write(ServedUpTo(before, before if policy.fsync != "never" else self._note.value.safe))
            stack.pop_all()
        self.identity = recovered.identity
        self.damage = [str(damage) for damage in recovered.damage]
        for damage in self.damage:
            warn(f"edge log: {damage}")
        if recovered.lost:
            warn(f"edge log: {recovered.lost} rows that could be read already were lost in a power cut")
        self._next = recovered.identity.next
        self.readers = Readers(folder)

    # What the node records

    def append(
        self, time: int, client: bytes, version: int, count: int, blob: bytes, resent: Sequence[int] = ()
    ) -> None:
        """Publications of one client: `count` PUBLISH frames; `time` in microseconds since 1970."""
        block = self._block
        block.parts.append(run_head(time, client, version, count, len(blob), resent))
        block.parts.append(blob)
        block.rows += count
        block.size += len(blob)
        block.time = time
        if block.rows >= BLOCK_ROWS or block.size >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered; afterwards it survives the end of the process."""
        block = self._block
        if not block.rows:
            return
        self._block = _Gathered()
        if self.reason and block.time < self._retry_at:
            self._miss(block.rows)
            return
        try:
            self._write(block)
        except OSError as error:
            self._stop(error.strerror or str(error), block.time)
            self._miss(block.rows)
            return
        self.counts.recorded += block.rows
        if self.reason:
            self._warn(f"edge log: recording again; {self._missed} messages were not recorded")
            self.reason, self._missed = "", 0
        try:
            self._written()
        except OSError as error:
            self._sync_failed(error, block.time)

    def _write(self, block: _Gathered) -> None:
        newest = self._newest(block.time)
        data = encode_block(newest.seed, self._next, block.rows, b"".join(block.parts))
        try:
            self._disk.write(newest.file, data, newest.kept.size)
        except OSError:
            with contextlib.suppress(OSError):  # else the next block overwrites what was torn
                os.ftruncate(newest.file, newest.kept.size)
            raise
        newest.kept.size += len(data)
        newest.kept.newest = block.time
        self._next += block.rows

    def _written(self) -> None:
        """Serve a block that was just written, as far as the policy allows."""
        if self.policy.fsync == "always":
            assert self._open is not None
            self._disk.sync(self._open.file)
            self._serve(self.last)
        elif self.policy.fsync == "never":
            self._note.write(ServedUpTo(self.last, self._note.value.safe))

    def _newest(self, time: int) -> _Open:
        newest = self._open
        if newest is not None and newest.kept.size < self.policy.segment_bytes:
            return newest
        self._roll()
        start = Position(self.identity.epoch, self._next)
        path = files.segment_path(self.folder, start)
        header = SegmentHeader(self.identity.log_id, self.identity.node, *start, time)
        data = encode_header(header)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._disk.write(file, data, 0)
            if self.policy.fsync == "always":
                files.sync_folder(self.folder)
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        kept = _Kept(Segment(path, *start), len(data), time)
        self._kept.append(kept)
        self._open = _Open(file, kept, header.seed, time)
        return self._open

    def _roll(self) -> None:
        newest, self._open = self._open, None
        if newest is None:
            return
        if newest.kept.segment.first == self._next:  # it has no rows: the next one gets its name
            self._kept.remove(newest.kept)
        if self.policy.fsync == "interval":
            self._unsynced.append(newest.file)
        else:
            os.close(newest.file)

    # What the shell does now and then

    def begin_sync(self) -> Sync | None:
        """The fsync that is due by the interval; None if there is nothing to sync. One at a time."""
        if self.policy.fsync != "interval" or self._note.value.served == self.last:
            return None
        held = list(self._unsynced)
        if self._open is not None:
            held.append(os.dup(self._open.file))
        self._unsynced = []
        return Sync(self._disk, self.folder, tuple(held), self.last)

    def synced(self, sync: Sync, error: OSError | None, time: int) -> None:
        """An fsync has ended: serve what it made safe."""
        try:
            if error is not None:
                raise error
            self._serve(sync.up_to)
        except OSError as failure:
            self._sync_failed(failure, time)

    def _serve(self, up_to: Position) -> None:
        """All up to here was synced; where an earlier fsync failed in vain, so that is not safe."""
        self._note.write(ServedUpTo(up_to, self._note.value.safe if self._doubtful else up_to))

    def maintain(self, time: int) -> None:
        """Every second or so: stop while the disk is nearly full, end segments that are old, trim."""
        try:
            free = self._disk.free(self.folder)
        except OSError as error:
            self._stop(error.strerror or str(error), time)
            return
        if free < self.policy.min_free:
            self._stop(f"less than min_free = {self.policy.min_free} bytes are free", time)
            self._retry_at = time + 2 * RETRY_MICROSECONDS  # as long as this is found again in time
        if self._open is not None and time - self._open.began > self.policy.roll_after:
            self._roll()
        self.trim(time)

    def clock_set(self, step: int) -> None:
        """The clock was set by so many microseconds: nothing of this epoch is older, or later, for that."""
        for kept in self._kept:
            if kept.segment.epoch == self.identity.epoch:
                kept.newest += step
        if self._open is not None:
            self._open.began += step
        self._block.time += step
        self._retry_at += step

    def trim(self, time: int) -> None:
        """Delete the oldest segments while the log is too large or they are too old."""
        total = sum(kept.size for kept in self._kept)
        oldest = time - int(self.policy.max_age * 1e6)
        while self._kept and (total > self.policy.max_bytes or self._kept[0].newest < oldest):
            if self._open is not None and self._kept[0] is self._open.kept:
                break
            total -= self._kept[0].size
            if not self._delete_oldest():
                break

    def trim_before(self, position: Position) -> int:
        """Delete the segments all of whose rows are at or before `position`; the number of rows."""
        before = self.counts.trimmed
        while self._kept and (self._open is None or self._kept[0] is not self._open.kept):
            end = self._kept[1].segment.start if len(self._kept) > 1 else Position(*self.last)
            last = Position(self._kept[0].segment.epoch, end.sequence - (len(self._kept) > 1))
            if last > position or not self._delete_oldest():
                break
        return self.counts.trimmed - before

    def _delete_oldest(self) -> bool:
        oldest = self._kept[0]
        end = self._kept[1].segment.first - 1 if len(self._kept) > 1 else self._next - 1
        rows = end - oldest.segment.first + 1
        try:
            oldest.segment.path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"edge log: cannot trim: {error}")
            return False
        try:
            lowest = min(self.readers.all().values(), default=None)
        except BrokerweaveError as error:
            lowest = START  # who knows what it has read
            if str(error) != self._readers_said:
                self._readers_said = str(error)
                self._warn(f"edge log: {error}; trimmed rows count as not read")
        self._kept.pop(0)
        self.counts.trimmed += rows
        unread = 0
        if lowest is not None and lowest < Position(oldest.segment.epoch, end):
            read = lowest.sequence - oldest.segment.first + 1 if lowest.epoch == oldest.segment.epoch else 0
            unread = rows - max(read, 0)
        if unread and not self._unread_series:
            self._warn("edge log: trimmed rows that a reader has not committed; see log readers")
        self._unread_series = bool(unread)
        self.counts.trimmed_unread += unread
        return True

    def close(self) -> None:
        """Write and sync what is left, and let others have the log."""
        self.flush()
        self._roll()  # so that the sync needs no other descriptor
        sync = self.begin_sync()
        if sync is not None:
            self.synced(sync, sync.run(), 0)
        for file in self._unsynced:
            os.close(file)
        self._note.close()
        os.close(self._lock)

    # What went wrong, and how it stands

    def _stop(self, reason: str, time: int) -> None:
        self._retry_at = time + RETRY_MICROSECONDS
        if not self.reason:
            self._warn(f"edge log: recording stops: {reason}; relaying goes on")
        self.reason = reason

    def _sync_failed(self, error: OSError, time: int) -> None:
        """What the kernel failed to write it may take for written: go on in a new file."""
        self.counts.sync_failures += 1
        self._doubtful = True
        self._stop(f"fsync failed: {error.strerror}", time)
        self._roll()

    def _miss(self, rows: int) -> None:
        self._missed += rows
        self.counts.unrecorded += rows

    @property
    def last(self) -> Position:
        """The last row that was written."""
        return Position(self.identity.epoch, self._next - 1)

    @property
    def first(self) -> int:
        """The sequence of the oldest row that is kept."""
        return self._kept[0].segment.first if self._kept else self._next

    def status(self) -> dict[str, Any]:
        return {
            "path": str(self.folder),
            "log_id": self.identity.log_id,
            "epoch": self.identity.epoch,
            "recording": not self.reason,
            "reason": self.reason,
            "fsync": self.policy.fsync,
            "first": self.first,
            "last": self.last.sequence,
            "served": self._note.value.served.sequence,
            "rows": self._next - self.first,
            "bytes": sum(kept.size for kept in self._kept),
            "segments": len(self._kept),
            "damage": self.damage,
        }


def _kept(segment: Segment) -> _Kept:
    found = segment.path.stat()
    return _Kept(segment, found.st_size, found.st_mtime_ns // 1000)
