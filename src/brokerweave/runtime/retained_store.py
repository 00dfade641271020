"""The retained index on disk: SQLite in `data_dir/retained.db`.

Crash safety: write-ahead log, `synchronous=NORMAL`. What is committed survives the death of the process at
any moment; the death of the whole machine may take the last commits with it, never the file (neighbours
still have them, and repair them at the next link-up). A damaged file is moved aside and the index begins
anew; a disk that fails is said once and never stops relaying: what it did not take waits in memory, and goes
with the next commit that works, which is tried once a second at most. What waits is bounded by the index's
own `max_bytes`: a row for each topic that the index or the file holds. Must not know: which version wins.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from brokerweave.node.retained import RetainedEntry

_SCHEMA = """
CREATE TABLE IF NOT EXISTS retained (
    topic TEXT PRIMARY KEY, stamp INTEGER, tag INTEGER, origin TEXT, version INTEGER, dead INTEGER,
    born REAL, expires REAL, size INTEGER, frame BLOB
) WITHOUT ROWID
"""
_CHECKPOINT_PAGES = 4_000
"""Pages (of 4 KiB) in the write-ahead log before it is worked in: the only moment that waits for the disk."""
_RETRY_SECONDS = 1.0
"""A commit that fails costs as much as all that waits: too much for each publication."""
_UNSIGNED = 1 << 63
"""SQLite's integers are signed: tags are kept less this."""


class SqliteStore:
    """Implements `node.retained.RetainedStore`."""

    def __init__(
        self, path: Path, warn: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.failures = 0
        """Commits that the disk did not take."""
        self._warn = warn
        self._failing = False
        self._clock = clock
        self._retry_at = 0.0
        """No commit is tried before; 0 if the last one worked."""
        self._pending: dict[str, tuple[Any, ...] | None] = {}
        """Rows that are not committed yet; None: to be removed."""
        self._path = path
        try:
            self._db = _connect(path)
        except sqlite3.DatabaseError as error:
            warn(
                f"{path} cannot be read ({error}); it is kept as retained.damaged, and the index begins anew"
            )
            path.replace(path.with_suffix(".damaged"))
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            self._db = _connect(path)

    @property
    def broker_was_read(self) -> bool:
        """Whether the broker's own retained messages were asked for once; set it by `mark_broker_read`."""
        return bool(self._db.execute("PRAGMA user_version").fetchone()[0])

    def mark_broker_read(self) -> None:
        try:
            self._db.execute("PRAGMA user_version = 1")
        except sqlite3.Error as error:
            self._failed(error)

    def load(self) -> Iterator[tuple[str, RetainedEntry]]:
        columns = "topic, stamp, tag, origin, version, dead, born, expires, size"
        for row in self._db.execute(f"SELECT {columns} FROM retained"):
            topic, stamp, tag, origin, version, dead, born, expires, size = row
            yield (
                topic,
                RetainedEntry(stamp, tag + _UNSIGNED, origin, version, bool(dead), born, expires, size),
            )

    def put(self, topic: str, entry: RetainedEntry, frame: bytes | None) -> None:
        values = (entry.stamp, entry.tag - _UNSIGNED, entry.origin, entry.version, entry.dead)
        self._pending[topic] = (topic, *values, entry.born, entry.expires, entry.size, frame)

    def frame(self, topic: str) -> bytes | None:
        try:
            if topic in self._pending:
                row = self._pending[topic]
                return row[-1] if row else None
            row = self._db.execute("SELECT frame FROM retained WHERE topic = ?", (topic,)).fetchone()
        except sqlite3.Error as error:
            self._failed(error)
            return None
        return row[0] if row else None

    def remove(self, topic: str) -> None:
        if self._retry_at and not self._stored(topic):
            self._pending.pop(topic, None)  # or topics that come and go would pile up here
        else:
            self._pending[topic] = None

    def _stored(self, topic: str) -> bool:
        try:
            found = self._db.execute("SELECT 1 FROM retained WHERE topic = ?", (topic,)).fetchone()
        except sqlite3.Error:
            return True  # perhaps
        return found is not None

    def commit(self) -> None:
        """What waits goes to the disk; not yet, if the disk failed less than a second ago."""
        if self._pending and (not self._retry_at or self._clock() >= self._retry_at):
            self._commit()

    def _commit(self) -> None:
        try:
            self._db.execute("BEGIN")
            for topic, row in self._pending.items():
                if row is None:
                    self._db.execute("DELETE FROM retained WHERE topic = ?", (topic,))
                else:
                    self._db.execute("INSERT OR REPLACE INTO retained VALUES (?,?,?,?,?,?,?,?,?,?)", row)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._failed(error)
            self._roll_back()
            self._retry_at = self._clock() + _RETRY_SECONDS  # after it: it may have taken long
        else:
            self._failing, self._retry_at = False, 0.0
            self._pending.clear()

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._failed(error)

    def close(self) -> None:
        self._commit()
        self._db.close()

    def _failed(self, error: sqlite3.Error) -> None:
        self.failures += 1
        if not self._failing:
            self._failing = True
            self._warn(f"{self._path}: {error}; a crash now would lose messages retained from now on")


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        db.execute(_SCHEMA)
        db.execute("SELECT count(*), max(stamp) FROM retained").fetchone()
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db
