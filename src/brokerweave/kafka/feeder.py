"""Reads the edge log as a named reader and puts it into Kafka, for as long as both are there.

Owns the position and what is counted. Invariants: the log's reader commits a position only after Kafka has
acknowledged all rows up to it; after any error, feeding goes on from the position that Kafka itself names;
memory holds one batch; rows that cannot be fed (trimmed, damaged, too large) are counted and said, never left
out silently. Must not know: the client library, processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from brokerweave.edgelog.layout import START, Position
from brokerweave.edgelog.reader import LogReader, Skipped
from brokerweave.edgelog.readers import DamagedPosition, Readers
from brokerweave.edgelog.rows import LogRow, rows
from brokerweave.errors import BrokerweaveError, Unavailable
from brokerweave.kafka.records import KafkaRecord, TopicPattern, maker

log = logging.getLogger("brokerweave.kafka")

BATCH_ROWS = 5_000
BATCH_BYTES = 4 * 1024 * 1024
IDLE_SECONDS = 0.05
PAUSE_MIN = 0.5
PAUSE_MAX = 15.0


class TooLarge(BrokerweaveError):
    """One or more of these records are larger than Kafka takes; none of the batch is there."""

    def __init__(self, positions: frozenset[Position]) -> None:
        super().__init__(f"Kafka refuses one of {len(positions)} records as too large")
        self.positions = positions


class RecordTarget(Protocol):
    """One connection to where records go; of no more use after an error."""

    def begin(self) -> Position:
        """How far the target has it; START if it does not know. Raises `Unavailable`."""

    def send(self, records: Sequence[KafkaRecord], reached: Position) -> None:
        """All of them and the position, or nothing. Raises `Unavailable`, `TooLarge`."""


Connect = Callable[[str], AbstractContextManager[RecordTarget]]
"""Opens a target under a name that is the same for the same log and reader."""


@dataclass(slots=True)
class FeederCounts:
    sent: int = 0
    bytes: int = 0
    """Of topics and payloads."""
    batches: int = 0
    failures: int = 0
    trimmed: int = 0
    damaged: int = 0
    too_large: int = 0


class Feeder:
    """`stopped(seconds)` waits that long at most, and says whether to end."""

    def __init__(
        self,
        folder: Path,
        reader: str,
        topic: str,
        connect: Connect,
        stopped: Callable[[float], bool],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called often, also while nothing is to be fed."""
        Readers.check(reader)
        self.counts = FeederCounts()
        self.reason = "not connected yet"
        self.position = START
        self._folder, self._name, self._topic = folder, reader, topic
        self._connect, self._stopped, self._changed = connect, stopped, changed
        self._refused: frozenset[Position] = frozenset()
        self._careful = START
        """Up to here rows go one by one."""

    def run(self) -> None:
        """Until `stopped`. Raises only what trying again does not mend: `ConfigError`."""
        pause = PAUSE_MIN
        while not self._stopped(0):
            sent = self.counts.sent
            try:
                self._feed()
                return
            except TooLarge as error:
                self._refuse(error)
                continue
            except Unavailable as error:
                self.counts.failures += 1
                if self.reason != str(error):
                    log.warning("%s; recorded rows wait in the edge log", error)
                self.reason = str(error)
            self._changed()
            pause = PAUSE_MIN if self.counts.sent > sent else min(2 * pause, PAUSE_MAX)
            if self._stopped(pause):
                return

    def _feed(self) -> None:
        log_reader, readers = LogReader(self._folder), Readers(self._folder)
        identity = log_reader.identity()
        with self._connect(f"brokerweave-{self._name}-{identity.log_id}") as target:
            at = max(target.begin(), self._committed(readers))
            self.position = readers.commit(self._name, at)
            self._said_connected()
            make = maker(identity, TopicPattern(self._topic, identity.node))
            while not self._stopped(0):
                found, reached, skipped = self._batch(log_reader, at)
                if reached == at:
                    self._changed()
                    if self._stopped(IDLE_SECONDS):
                        return
                    continue
                records = [make(row) for row in found if row.position not in self._refused]
                if records:
                    target.send(records, reached)
                self._sent(found, records, skipped)
                at = self.position = readers.commit(self._name, reached)
                self._changed()

    def _committed(self, readers: Readers) -> Position:
        try:
            return readers.position(self._name) or START
        except DamagedPosition as error:
            log.warning("%s", error)
            return START

    def _batch(self, log_reader: LogReader, at: Position) -> tuple[list[LogRow], Position, Skipped]:
        """Some rows, the position that they reach, and what was gone over on the way."""
        found: list[LogRow] = []
        # Its own each time: were it kept, a batch that failed would begin anew behind what it skipped.
        size, reached, skipped = 0, at, Skipped()
        for block in log_reader.blocks(at, skipped=skipped):
            for row in rows(block, at):
                found.append(row)
                size += len(row.topic) + len(row.payload)
                if at < self._careful:
                    return found, row.position, skipped
            reached = Position(block.epoch, block.last)
            if len(found) >= BATCH_ROWS or size >= BATCH_BYTES:
                break
        return found, max(reached, skipped.up_to), skipped

    def _refuse(self, error: TooLarge) -> None:
        """Leave it out. A broker does not say which of several it was: then look closer."""
        if len(error.positions) > 1:
            self._careful = max(error.positions)
            return
        self._refused |= error.positions
        log.warning("a record is too large for Kafka and was skipped: %s", *error.positions)

    def _sent(self, found: Sequence[LogRow], records: Sequence[KafkaRecord], skipped: Skipped) -> None:
        counts = self.counts
        counts.sent += len(records)
        counts.bytes += sum(len(record.key) + len(record.value) for record in records)
        counts.batches += bool(records)
        counts.too_large += len(found) - len(records)
        counts.trimmed += skipped.trimmed
        counts.damaged += skipped.damaged
        if skipped.trimmed or skipped.damaged:
            log.warning(
                "rows not sent to Kafka: %d were trimmed, %d are damaged",
                skipped.trimmed,
                skipped.damaged,
            )
        self._refused = frozenset()

    def _said_connected(self) -> None:
        if self.reason:
            log.info("feeding Kafka from %s on", self.position)
        self.reason = ""
        self._changed()

    def status(self) -> dict[str, Any]:
        return {
            "feeding": not self.reason,
            "reason": self.reason,
            "reader": self._name,
            "position": str(self.position),
            **asdict(self.counts),
        }
