"""Offsets of the Spark source: how far each log was read, how much more a batch takes, and its parts.

Owns the form in which offsets lie in Spark's checkpoint: `{log id: [epoch, sequence]}`, with the rows that
were skipped as a third number once there are any. Invariants: an offset only moves forward; a log that is not
heard of keeps its offset; parts cover a range exactly and are a pure function of it, since a replay must ask
for the same rows. Pure. Must not know: Spark, nodes, addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from brokerweave.edgelog.layout import START, Position
from brokerweave.errors import BrokerweaveError, ConfigError


class RowsGone(BrokerweaveError):
    """A checkpoint needs rows that no node has any more."""


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """How far one log was read."""

    position: Position
    skipped: int = 0
    """Rows that a reader which goes on regardless did not get, since the query's beginning."""


Offsets = dict[str, ReadPosition]
"""By log id, never by address: an address may change hands."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What there is of a log to read."""

    end: Position
    """The last row."""
    starts: tuple[Position, ...]
    """The first row of each epoch of which something is kept, in order."""

    @property
    def begin(self) -> Position:
        """Before the oldest row that is kept."""
        if not self.starts:
            return self.end
        return Position(self.starts[0].epoch, self.starts[0].sequence - 1)

    def rows_after(self, after: Position) -> int:
        """Rows that there are after a position, the trimmed ones not among them."""
        return sum(last - first + 1 for _, first, last in self._stretches(after))

    def forward(self, after: Position, rows: int) -> Position:
        """The position so many rows on, or the end."""
        for epoch, first, last in self._stretches(after):
            if rows <= last - first + 1:
                return Position(epoch, first + rows - 1) if rows else after
            rows -= last - first + 1
        return self.end

    def trimmed_after(self, after: Position) -> int:
        """Rows after a position that were trimmed before anyone read them here."""
        if after == START or self.end <= after or not self.rows_after(after):
            return 0
        return max(self.begin.sequence - after.sequence, 0)

    def _stretches(self, after: Position) -> Iterable[tuple[int, int, int]]:
        """Epoch, first and last sequence of what comes after a position. Sequences count on over epochs."""
        lasts = [start.sequence - 1 for start in self.starts[1:]] + [self.end.sequence]
        for (epoch, first), last in zip(self.starts, lasts, strict=False):
            low = max(first, after.sequence + 1) if epoch == after.epoch else first
            if epoch >= after.epoch and low <= last:
                yield epoch, low, last


@dataclass(frozen=True, slots=True)
class Range:
    """Rows of one log: after one position, up to another."""

    log_id: str
    after: Position
    up_to: Position


def decode(stored: Mapping[str, Any]) -> Offsets:
    """Offsets from a checkpoint's or an option's JSON. Raises `ConfigError`."""
    return {str(log_id): _mark(log_id, value) for log_id, value in stored.items()}


def _mark(log_id: str, value: Any) -> ReadPosition:
    try:
        if isinstance(value, str):
            return ReadPosition(Position.parse(value))
        epoch, sequence, *rest = (int(number) for number in value)
        (skipped,) = rest or (0,)
    except (TypeError, ValueError):
        raise ConfigError(f"the offset of log {log_id} is [EPOCH, SEQUENCE], not {value!r}") from None
    return ReadPosition(Position(epoch, sequence), skipped)


def encode(offsets: Offsets) -> dict[str, list[int]]:
    """The form for Spark, which compares offsets as text: hence sorted."""
    return {
        log_id: [*mark.position, mark.skipped] if mark.skipped else [*mark.position]
        for log_id, mark in sorted(offsets.items())
    }


def fair_shares(limit: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Share `limit` rows: all get the same, what some do not need goes to the others.

    What does not divide goes to who wants most, so that even a limit of one row starves nobody.
    """
    shares: dict[str, int] = {}
    left = max(limit, 0)
    by_need = sorted(wanted.items(), key=lambda item: (item[1], item[0]))
    for number, (log_id, rows) in enumerate(by_need):
        shares[log_id] = min(rows, left // (len(by_need) - number))
        left -= shares[log_id]
    return shares


def next_offsets(
    start: Offsets, extents: Mapping[str, Extent], limit: int | None = None, skip: bool = False
) -> Offsets:
    """Where a batch that begins at `start` ends, with at most `limit` rows.

    Logs that are not in `start` are left to the caller. Raises `RowsGone` if rows that come next were
    trimmed, unless `skip` says to go on and count them.
    """
    known = {log_id: extent for log_id, extent in extents.items() if log_id in start}
    wanted = {log_id: extent.rows_after(start[log_id].position) for log_id, extent in known.items()}
    shares = dict(wanted) if limit is None else fair_shares(limit, wanted)
    end = dict(start)
    for log_id, rows in shares.items():
        if not rows:
            continue
        mark, extent = start[log_id], known[log_id]
        gone = extent.trimmed_after(mark.position)
        if gone and not skip:
            raise RowsGone(trimmed_line(log_id, gone, mark.position))
        end[log_id] = ReadPosition(extent.forward(mark.position, rows), mark.skipped + gone)
    return end


def trimmed_line(log_id: str, rows: int, after: Position) -> str:
    return (
        f"{rows} rows after {after} of log {log_id} were trimmed before this query read them; "
        "the option onTrimmed = skip goes on without them, and counts them"
    )


def ranges(start: Offsets, end: Offsets, rows_in_part: int) -> list[Range]:
    """The parts of a batch. A log that `start` does not have joins with its offset in `end`, and no rows."""
    return [
        part
        for log_id, mark in sorted(end.items())
        if log_id in start
        for part in _split(log_id, start[log_id].position, mark.position, rows_in_part)
    ]


def _split(log_id: str, after: Position, up_to: Position, rows_in_part: int) -> list[Range]:
    if up_to <= after:
        return []
    count = max(-(-abs(up_to.sequence - after.sequence) // rows_in_part), 1)
    low, high = sorted((after.sequence, up_to.sequence))
    steps = [low + (high - low) * number // count for number in range(1, count)]
    # Where one epoch ends and the next begins is not known here. Cuts in the first and in the last one
    # balance both; a part behind the end of its epoch is empty, and that is all.
    epochs = sorted({after.epoch, up_to.epoch})
    cuts = [Position(epoch, step) for epoch in epochs for step in steps]
    inner = [cut for cut in cuts if after < cut < up_to]
    bounds = [after, *inner, up_to]
    return [Range(log_id, one, two) for one, two in pairwise(bounds)]
