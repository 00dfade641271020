"""Which rows are copies that a client resent. A decision over few rows; no Spark, no files.

MQTT clients send a QoS 1 or 2 message again when they heard no acknowledgement, marked `dup`, with the same
packet id [MQTT-3.3.1-1]; after a node's death perhaps to another node, so into another log, which may reach
the lake first. A copy has the same client, packet id, topic and payload hash, within `window` of receive
time.

Invariants:
- a row that is not marked is dropped only for a copy of it that silver has, and one row for each such copy;
- a marked row is dropped only if silver or this batch has another row of the same message;
- so of each message at least one row stays, and exactly one if its rows lie within `window` of each other;
- the decision depends on the batch, on what silver had before it and on the open copies before it: a replay
  decides the same, also if silver has the batch's rows already.

Not covered: a resend later than `window`; the original of a copy, if it comes after more than `OPEN_MOST`
other copies without original or a day (of receive time) after it; clocks of two nodes that differ by more
than `skew`. Two messages that are equal in all of client, packet id, topic and payload within `window` are
one message if the second one was recorded only as a resend: nothing in MQTT tells them apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

OPEN_MOST = 100_000
"""Copies without an original that are remembered."""
OPEN_FOR = 86_400_000_000
"""µs, counted from the newest such copy."""


class SentRow(NamedTuple):
    """One row, so far as the decision needs it; `received` in µs."""

    client: str
    packet_id: int
    topic: str
    payload_hash: int
    log_id: str
    epoch: int
    sequence: int
    received: int
    dup: bool

    @property
    def message(self) -> tuple[str, int, str, int]:
        return self[:4]

    @property
    def position(self) -> tuple[str, int, int]:
        return self[4:7]

    @property
    def order(self) -> tuple[int, str, int]:
        return self.received, self.log_id, self.sequence


@dataclass(frozen=True, slots=True)
class Decision:
    """Positions of the batch that are not to go into silver, and the copies whose original may still come."""

    dropped: frozenset[tuple[str, int, int]]
    open: tuple[SentRow, ...]


@dataclass(frozen=True, slots=True)
class ResendWindow:
    """µs between two rows of one message at most, and µs that two nodes' clocks may differ."""

    length: int = 900_000_000
    skew: int = 5_000_000

    def original(self, one: SentRow, copy: SentRow) -> bool:
        """Whether an unmarked row can be what `copy` repeats."""
        if one.log_id == copy.log_id:
            return one.sequence < copy.sequence and copy.received - one.received <= self.length
        return -self.skew <= copy.received - one.received <= self.length

    def near(self, one: SentRow, other: SentRow) -> bool:
        return abs(one.received - other.received) <= self.length


def decide(
    batch: Iterable[SentRow], silver: Iterable[SentRow], open_before: Sequence[SentRow], window: ResendWindow
) -> Decision:
    """`batch` and `silver`: at least all rows of the messages that marked rows and `open_before` have."""
    rows: dict[tuple[str, int, str, int], list[SentRow]] = defaultdict(list)
    for row in batch:
        rows[row.message].append(row)
    positions = {row.position for each in rows.values() for row in each}
    known: dict[tuple[str, int, str, int], list[SentRow]] = defaultdict(list)
    for row in silver:
        if row.position not in positions:  # a batch that is replayed may be there already
            known[row.message].append(row)
    waiting: dict[tuple[str, int, str, int], list[SentRow]] = defaultdict(list)
    for row in open_before:
        waiting[row.message].append(row)
    dropped: set[tuple[str, int, int]] = set()
    found: set[tuple[str, int, int]] = set()
    opened: list[SentRow] = []
    for message, own in rows.items():
        copies = sorted((row for row in own if row.dup), key=lambda row: row.order)
        originals = [row for row in own if not row.dup]
        for copy in copies:
            if _has_other(copy, copies, originals, known[message], window):
                dropped.add(copy.position)
            else:
                opened.append(copy)
        for copy in waiting[message]:
            late = [row for row in originals if row.position not in dropped and window.original(row, copy)]
            if late:
                dropped.add(max(late, key=lambda row: row.order).position)
                found.add(copy.position)
    return Decision(frozenset(dropped), _still_open(open_before, found, opened))


def _has_other(
    copy: SentRow, copies: list[SentRow], originals: list[SentRow], known: list[SentRow], window: ResendWindow
) -> bool:
    """Whether another row of the same message stays, or has gone for one that did."""
    if any(window.original(row, copy) for row in originals):
        return True
    if any(window.near(row, copy) if row.dup else window.original(row, copy) for row in known):
        return True
    # Among the batch's own copies the first one stays: an order without circles.
    return any(row.order < copy.order and window.near(row, copy) for row in copies)


def _still_open(
    before: Sequence[SentRow], found: set[tuple[str, int, int]], opened: list[SentRow]
) -> tuple[SentRow, ...]:
    made = [row for row in before if row.position not in found] + opened
    if opened:
        newest = max(row.received for row in opened)
        made = [row for row in made if newest - row.received <= OPEN_FOR]
    return tuple(sorted(made, key=lambda row: row.order)[-OPEN_MOST:])
