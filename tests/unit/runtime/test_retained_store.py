"""The retained index on disk."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from brokerweave.node.retained import RetainedEntry
from brokerweave.runtime.retained_store import SqliteStore

ENTRY = RetainedEntry(2**57, 2**64 - 1, "a", 5, False, 1.5, 0.0, 7)


def test_what_is_committed_reads_back_equal_and_the_rest_is_not_there(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "retained.db", no_warning)
    store.put("kept", ENTRY, b"frame")
    store.put("gone", ENTRY, None)
    store.remove("gone")
    store.commit()
    store.put("not committed", ENTRY, b"frame")
    other = SqliteStore(tmp_path / "retained.db", no_warning)
    assert list(other.load()) == [("kept", ENTRY)]
    assert (other.frame("kept"), other.frame("gone")) == (b"frame", None)
    other.close()
    store.close()


def test_it_remembers_that_the_broker_was_read(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "retained.db", no_warning)
    assert not store.broker_was_read
    store.mark_broker_read()
    store.close()
    again = SqliteStore(tmp_path / "retained.db", no_warning)
    assert again.broker_was_read
    again.close()


def test_a_damaged_file_is_kept_aside_and_the_index_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "retained.db"
    path.write_bytes(b"this is no database" * 100)
    warnings: list[str] = []
    store = SqliteStore(path, warnings.append)
    assert list(store.load()) == []
    assert not store.broker_was_read
    assert (tmp_path / "retained.damaged").exists()
    assert len(warnings) == 1
    store.close()


def test_a_disk_that_fails_is_a_warning_and_no_error(tmp_path: Path) -> None:
    warnings: list[str] = []
    now = [50.0]
    store = SqliteStore(tmp_path / "retained.db", warnings.append, lambda: now[0])
    locker = sqlite3.connect(tmp_path / "retained.db", isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    store._db.execute("PRAGMA busy_timeout = 0")
    store.put("t", ENTRY, b"frame")
    for _ in range(3):
        store.commit()
    assert (len(warnings), store.failures) == (1, 1), "a commit that fails is not tried for each publication"
    now[0] += 1.0
    store.commit()
    assert (len(warnings), store.failures) == (1, 2)
    assert store.frame("t") == b"frame"
    locker.execute("ROLLBACK")
    now[0] += 1.0
    store.commit()
    assert list(locker.execute("SELECT topic FROM retained")) == [("t",)], "it waited for the disk"
    locker.close()
    store.close()


def test_topics_that_come_and_go_while_the_disk_fails_take_no_memory(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "retained.db", lambda message: None)
    store.put("old", ENTRY, b"frame")
    store.commit()
    locker = sqlite3.connect(tmp_path / "retained.db", isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    store._db.execute("PRAGMA busy_timeout = 0")
    for number in range(10):
        store.put(f"t/{number}", ENTRY, b"frame")
        store.commit()
        store.remove(f"t/{number}")
    store.remove("old")
    assert list(store._pending) == ["old"]
    locker.execute("ROLLBACK")
    store.close()
    assert list(locker.execute("SELECT topic FROM retained")) == [], "a stop tries once more, at once"
    locker.close()


KILLED = """
import sys
from pathlib import Path
from brokerweave.runtime.retained_store import SqliteStore
from brokerweave.node.retained import RetainedEntry
store = SqliteStore(Path(sys.argv[1]), print)
for number in range(1, 1_000_000):
    store.put("t", RetainedEntry(number, number, "a", 4, False, 0.0, 0.0, 1), b"%d" % number)
    store.commit()
    print(number, flush=True)
"""


def test_a_kill_at_any_moment_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "retained.db"
    for count in (1, 7, 400):
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(count):
            last = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        child.stdout.close()
        child.wait()
        store = SqliteStore(path, no_warning)
        [(_, entry)] = store.load()
        assert entry.stamp >= last
        assert store.frame("t") == b"%d" % entry.stamp
        store.remove("t")
        store.close()


def no_warning(message: str) -> None:
    raise AssertionError(message)
