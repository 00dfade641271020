"""Reads the edge log by position, while a node writes it or when none does.

Owns where in which segment a position lies. Invariants: rows come in order, each once, and only what is
served; a row that was trimmed, damaged or is missing is an error or, if asked for, a count, never a silence;
the folder is not changed. Must not know: who reads, MQTT inside a run.

A reader for Flight or Spark: `end()` for the latest position, `blocks(start, end)` for a range, `Readers` to
commit. It keeps no file open between calls, so it may be copied to another process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from brokerweave.edgelog import folder as files
from brokerweave.edgelog.blocks import whole_blocks
from brokerweave.edgelog.folder import LogIdentity, Segment
from brokerweave.edgelog.layout import (
    START,
    Block,
    Damage,
    DamagedLog,
    Position,
    first_time,
    run_fields,
    scan,
)
from brokerweave.errors import BrokerweaveError, Unavailable


class TrimmedRows(BrokerweaveError):
    """Rows that were asked for are not kept any more."""

    def __init__(self, after: Position, first: Position) -> None:
        super().__init__(f"rows after {after} were trimmed; the oldest row that is kept is {first}")
        self.after = after
        self.first = first


@dataclass(slots=True)
class Skipped:
    """What a reader that goes on regardless went over, in one pass over a log, of one call or many."""

    trimmed: int = 0
    damaged: int = 0
    up_to: Position = START
    """The last row that was skipped: it is neither read nor counted again."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment as `log ls` shows it."""

    name: str
    epoch: int
    first: int
    last: int
    bytes: int
    created: int
    """Microseconds since 1970; 0 if its header is damaged."""


class LogReader:
    def __init__(self, folder: Path) -> None:
        """Raises `Unavailable` if there is no log."""
        self.folder = folder
        if not files.segments(folder) and not (folder / "log.json").exists():
            raise Unavailable(f"{folder} holds no edge log: there is no log.json")
        self._cursor: tuple[Position, Path, int] | None = None

    def identity(self) -> LogIdentity:
        found = files.read_identity(self.folder)
        if found is None:
            raise Unavailable(f"{self.folder} holds no edge log: there is no log.json")
        return found

    def end(self) -> Position:
        """The last row that may be read."""
        return files.read_served(self.folder).served

    def first(self) -> Position:
        """The oldest row that is kept, or the next one where none is."""
        found = files.segments(self.folder)
        end = self.end()
        return found[0].start if found else Position(max(end.epoch, 1), end.sequence + 1)

    def starts(self) -> tuple[Position, ...]:
        """The first row of each epoch of which something is kept."""
        found: dict[int, Position] = {}
        for segment in files.segments(self.folder):
            found.setdefault(segment.epoch, segment.start)
        return tuple(found.values())

    def lag(self, position: Position) -> int:
        """Rows after `position` that may be read, the trimmed ones not among them."""
        end = self.end()  # before the segments: or a newer one could be missing among them
        found, read = files.segments(self.folder), position.sequence
        for segment in found:
            if segment.epoch > position.epoch:  # what its own epoch had beyond is lost
                read = min(read, segment.first - 1)
                break
        if found:
            read = max(read, found[0].first - 1)
        return max(end.sequence - read, 0)

    def received(self, position: Position) -> int:
        """When a row came, in microseconds since 1970; 0 if it is not there."""
        before = Position(position.epoch, position.sequence - 1)
        for block in self.blocks(before, position, Skipped()):
            for last, came in block_times(block):
                if last >= position:
                    return came
        return 0

    def age(self, position: Position, now: int) -> float:
        """Seconds since the first row after `position` that is kept; 0.0 if there is none."""
        for block in self.blocks(position, skipped=Skipped()):
            for last, came in block_times(block):
                if last > position:
                    return max(now - came, 0) / 1e6
        return 0.0

    def position_at(self, time: int) -> Position:
        """The last row before the first one that came at `time` or later (microseconds since 1970).

        Reads the one or two segments in question. Where the clock was set back while rows were recorded,
        there may be several such rows: it is one of them.
        """
        first = self.first()
        before = self._segment_before(time) or Position(first.epoch, first.sequence - 1)
        doubtful: Block | None = None
        for block in self.blocks(before, skipped=Skipped()):
            if first_time(block.body) >= time:
                break
            doubtful = block
        if doubtful is None:
            return before
        for last, came in block_times(doubtful):
            if came >= time:
                break
            before = last
        return before

    def _segment_before(self, time: int) -> Position | None:
        """Where the newest segment begins whose first block was there before `time`."""
        for segment in reversed(files.segments(self.folder)):
            with contextlib.suppress(ValueError, OSError):  # damaged or trimmed: an older one does, too
                if segment.header()[0].created < time:
                    return Position(segment.epoch, segment.first - 1)
        return None

    def segments(self) -> list[SegmentInfo]:
        end = self.end()
        found = files.segments(self.folder)
        infos = []
        for segment, last in zip(found, _lasts(found, end), strict=True):
            with contextlib.suppress(FileNotFoundError):  # trimmed just now
                infos.append(_info(segment, last))
        return infos

    def blocks(
        self, after: Position = START, up_to: Position | None = None, skipped: Skipped | None = None
    ) -> Iterator[Block]:
        """The blocks with rows after `after`, up to the one with `up_to` (by default: all that is served).

        The first and the last may hold rows beside those asked for. With `skipped`, trimmed
        and damaged rows are counted there; else they raise `TrimmedRows` or `DamagedLog`.
        """
        end = min(up_to or self.end(), self.end())
        found = files.segments(self.folder)
        if skipped is not None:
            after = max(after, skipped.up_to)
        self._check_trimmed(after, found, end, skipped)
        for segment, last in zip(found, _lasts(found, end), strict=True):
            if segment.start > end:
                return
            if Position(segment.epoch, last) > after:
                try:
                    yield from self._segment_blocks(segment, after, last, skipped)
                except TrimmedRows:
                    if skipped is None:
                        raise
                    read = after.sequence if after.epoch == segment.epoch else 0
                    skipped.trimmed += last - max(segment.first - 1, read)
                    skipped.up_to = Position(segment.epoch, last)

    def verify(self) -> Iterator[SegmentInfo | Damage]:
        """Read everything: each segment, after the damage that was found in it."""
        end = self.end()
        found = files.segments(self.folder)
        if found and end == START:  # a start writes it before the first segment
            yield Damage("served", 0, 0, found[0].epoch, found[0].first, None, "nothing in it is whole")
        for segment, last in zip(found, _lasts(found, end), strict=True):
            if last < segment.first:
                continue  # just begun: none of it is served
            try:
                info = _info(segment, last)
                yield from (each for each in self._scan(segment, START, last) if isinstance(each, Damage))
            except (FileNotFoundError, TrimmedRows):
                continue  # just now
            yield info

    def _check_trimmed(
        self, after: Position, found: list[Segment], end: Position, skipped: Skipped | None
    ) -> None:
        first = found[0].start if found else Position(end.epoch, end.sequence + 1)
        if after == START or after.sequence + 1 >= first.sequence or end <= after:
            return
        if skipped is None:
            raise TrimmedRows(after, first)
        skipped.trimmed += first.sequence - 1 - after.sequence
        skipped.up_to = Position(after.epoch, first.sequence - 1)

    def _segment_blocks(
        self, segment: Segment, after: Position, last: int, skipped: Skipped | None
    ) -> Iterator[Block]:
        for each in self._scan(segment, after, last):
            if isinstance(each, Block):
                if Position(each.epoch, each.last) > after:
                    self._cursor = Position(each.epoch, each.first - 1), segment.path, each.offset
                    yield each
                    self._cursor = Position(each.epoch, each.last), segment.path, each.end
            elif each.last is not None and Position(each.epoch, each.last) <= after:
                continue
            elif skipped is None:
                raise DamagedLog(each)
            else:
                # Damage may reach beyond what is asked for, on both sides: another call counts that.
                high = min(each.first + each.rows - 1, last)
                read = after.sequence if after.epoch == each.epoch else 0
                skipped.damaged += max(high - max(each.first - 1, read), 0)
                skipped.up_to = Position(each.epoch, high)

    def _scan(self, segment: Segment, after: Position, last: int) -> Iterator[Block | Damage]:
        """A segment's blocks and damage; also what its end lacks up to the row `last`."""
        name = segment.path.name
        try:
            with segment.path.open("rb") as file:
                try:
                    header, at = segment.header_in(file)
                except ValueError as error:
                    size = os.fstat(file.fileno()).st_size
                    yield Damage(name, 0, size, segment.epoch, segment.first, last, str(error))
                    return
                expected = segment.first
                if self._cursor is not None and self._cursor[1] == segment.path and self._cursor[0] <= after:
                    at, expected = self._cursor[2], self._cursor[0].sequence + 1
                read = after.sequence if after.epoch == segment.epoch else 0
                at, expected = yield from whole_blocks(file.fileno(), header, at, expected, read, last)
                file.seek(at)
                data = file.read() if expected <= last else b""
        except FileNotFoundError:
            raise TrimmedRows(after, Position(segment.epoch, segment.first)) from None
        except OSError as error:
            raise Unavailable(f"{segment.path} cannot be read: {error.strerror}") from error
        for each in scan(name, data, header, at, expected, last):
            yield each
            expected = (last if each.last is None else each.last) + 1
        if expected <= last:
            size = at + len(data)
            yield Damage(name, size, size, segment.epoch, expected, last, "it ends too early")


def block_times(block: Block) -> Iterator[tuple[Position, int]]:
    """The last row of each run of a block, and when the run came."""
    last = block.first - 1
    for came, _, _, count, _, _ in run_fields(block.body):
        last += count
        yield Position(block.epoch, last), came


def _info(segment: Segment, last: int) -> SegmentInfo:
    size = segment.path.stat().st_size
    try:
        created = segment.header()[0].created
    except ValueError:
        created = 0
    return SegmentInfo(segment.path.name, segment.epoch, segment.first, last, size, created)


def _lasts(found: list[Segment], end: Position) -> list[int]:
    """Each segment's last row up to `end`: it ends where the next begins."""
    nexts = [segment.first - 1 for segment in found[1:]]
    lasts = [*nexts, end.sequence] if found else []
    return [
        min(last, end.sequence) if segment.epoch == end.epoch else last
        for segment, last in zip(found, lasts, strict=True)
    ]
