"""Gives a folder of a table other files in one step, while sinks go on adding to the table.

Owns the lock between those who add files (shared) and whoever switches (alone), and what a kill amid a
switch leaves. Invariant: for a reader that lists the folder, a file is replaced by its successor in no
time: never both, never neither. Where the file system cannot swap two folders (NFS), the folder is missing
for the moment between two renames; a kill just then is mended by the next sink or compaction that comes.
Must not know: what the files hold.

The fresh folder is made beside the table, not below it: its files have their final names, and a reader that
takes every file below the table would count them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

from brokerweave.errors import ConfigError
from brokerweave.pipeline.lake import durable

COMMITS = "_commits"
_NOTE = "switch.json"
_LOCK = "folder.lock"
LINGER = 1.0
"""Seconds for which replaced folders stay, so that whoever is listing one comes to its end."""


def workshop(table: Path) -> Path:
    """Where a table's fresh folders are made."""
    return table.with_name(f".{table.name}.compaction")


@contextlib.contextmanager
def shared(table: Path) -> Iterator[None]:
    """Nobody switches a folder of this table meanwhile, and no switch is half done.

    For sinks; and for a reader that wants to list and open a table's files without any change between.
    """
    lock = table / COMMITS / _LOCK
    with durable.locked(lock, shared=True):
        if not (table / COMMITS / _NOTE).exists():
            yield
            return
    with durable.locked(lock):
        recover(table)
        yield


def clean(table: Path) -> None:
    """Removes what a dead compaction left. For the one process that compacts this table."""
    durable.make_folder(table / COMMITS)
    with durable.locked(table / COMMITS / _LOCK):
        recover(table)
    durable.remove_folder(workshop(table))
    durable.make_folder(workshop(table))


def switch(table: Path, folder: str, gone: Collection[str], added: Collection[Path]) -> None:
    """In this folder, the files named `gone` give way to the ones `added` (from the workshop, synced).

    What was replaced stays in the workshop until `finish`.
    """
    fresh = workshop(table) / "fresh"
    with durable.locked(table / COMMITS / _LOCK):
        fresh.mkdir()
        for path in added:
            os.replace(path, fresh / path.name)
        _link_others(table / folder, fresh, gone)
        durable.sync_folder(fresh)
        durable.step("before the switch")
        if durable.exchange(fresh, table / folder):
            durable.sync_folder((table / folder).parent)
            os.rename(fresh, _replaced(table))
            durable.sync_folder(workshop(table))
        else:
            durable.write_note(table / COMMITS / _NOTE, {"folder": folder})
            recover(table)


def finish(table: Path) -> None:
    """Removes what was replaced, after a while, and the workshop."""
    if any(workshop(table).iterdir()):
        time.sleep(LINGER)
    durable.remove_folder(workshop(table))


def _replaced(table: Path) -> Path:
    return workshop(table) / f"old-{uuid.uuid4().hex[:12]}"


def _link_others(source: Path, target: Path, gone: Collection[str]) -> None:
    try:
        for name in os.listdir(source):
            if name not in gone:
                os.link(source / name, target / name)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        raise ConfigError(
            f"{source} cannot be compacted: its file system has no hard links, or is not that of its parent"
        ) from error


def recover(table: Path) -> None:
    """Finishes a switch by two renames: from each state that it can have been killed in."""
    note = durable.read_note(table / COMMITS / _NOTE)
    if note is None:
        return
    folder, fresh = table / note["folder"], workshop(table) / "fresh"
    if fresh.is_dir():
        if folder.is_dir():
            os.rename(folder, _replaced(table))
            durable.step("between the renames")
        os.rename(fresh, folder)
        durable.sync_folder(folder.parent)
        durable.sync_folder(workshop(table))
    durable.step("before the note of the switch is removed")
    (table / COMMITS / _NOTE).unlink()
    durable.sync_folder(table / COMMITS)
