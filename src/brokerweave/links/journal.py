"""What an outbox needs of a disk, and a journal in memory for tests and simulations.

Owns the `Journal` protocol: records with growing numbers, appended at the end, read in order, trimmed at
the front. Must not know: what a record means. The journal on a real disk is `runtime/journal.py`.
"""

from __future__ import annotations

from typing import Protocol

from brokerweave.errors import Unavailable


class StorageError(Unavailable):
    """The disk is full or failed. What was asked for did not happen; later it may."""


class Journal(Protocol):
    """Every method may raise `StorageError`. Numbers may have gaps, but only ever grow."""

    @property
    def records(self) -> int:
        """Records that `read` can still return."""

    @property
    def last(self) -> int:
        """The highest number ever appended or trimmed; 0 if none."""

    @property
    def size(self) -> int:
        """Bytes taken."""

    def append(self, sequence: int, record: bytes) -> None: ...

    def read(self, sequence_from: int, limit_bytes: int) -> list[tuple[int, bytes]]:
        """The records from this number on: as many as fit the limit, but one at least if there is one."""

    def trim(self, up_to: int) -> None:
        """Forget the records up to and including this number."""


class MemoryJournal:
    """Keeps its records in memory; full above `capacity` bytes, and raises whenever `failing` is set."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.failing = False
        self.last = 0
        self.size = 0
        self._records: dict[int, bytes] = {}

    @property
    def records(self) -> int:
        return len(self._records)

    def append(self, sequence: int, record: bytes) -> None:
        self._check()
        if sequence <= self.last:
            raise ValueError(f"record {sequence} after {self.last}")
        if self.capacity is not None and self.size + len(record) > self.capacity:
            raise StorageError("the journal is full")
        self._records[sequence] = record
        self.last = sequence
        self.size += len(record)

    def read(self, sequence_from: int, limit_bytes: int) -> list[tuple[int, bytes]]:
        self._check()
        found: list[tuple[int, bytes]] = []
        for sequence, record in self._records.items():
            if sequence < sequence_from:
                continue
            limit_bytes -= len(record)
            if limit_bytes < 0 and found:
                break
            found.append((sequence, record))
        return found

    def trim(self, up_to: int) -> None:
        self._check()
        self.last = max(self.last, up_to)
        while self._records and (oldest := next(iter(self._records))) <= up_to:
            self.size -= len(self._records.pop(oldest))

    def _check(self) -> None:
        if self.failing:
            raise StorageError("the disk does not answer")
