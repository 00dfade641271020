"""Trims a log that no node has open. A node that runs trims its own (`LogWriter.trim_before`).

Must not know: why a position was chosen.
"""

from __future__ import annotations

from pathlib import Path

from brokerweave.edgelog import folder as files
from brokerweave.edgelog.layout import Position
from brokerweave.edgelog.lock import locked
from brokerweave.edgelog.reader import LogReader


def trim_stopped(folder: Path, before: Position) -> int:
    """Delete the segments all of whose rows are at or before a position, but not the newest, whose last rows
    may not be served yet; the number of rows.

    Raises `ConfigError` while a node has the log open, `Unavailable` if there is none.
    """
    rows = 0
    log = LogReader(folder)  # before the lock, which would make a folder
    with locked(folder):
        for info in log.segments()[:-1]:
            if Position(info.epoch, info.last) > before:
                break
            (folder / info.name).unlink(missing_ok=True)
            rows += info.last - info.first + 1
        files.sync_folder(folder)
    return rows
