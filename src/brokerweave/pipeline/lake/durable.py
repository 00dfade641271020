"""Changes to files that survive a kill at any moment: written whole, moved, swapped, locked.

Owns the order of write, fsync and rename, and `at_step`, which is told of every change just before and just
after it: a test kills the process there. Invariants: a note is either the old or the new one, never a part; a
lock dies with its process. Must not know: what the files hold.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from brokerweave.errors import Unavailable

at_step: Callable[[str], None] | None = None
"""Called with the name of each step. Only tests set it."""

LOCK_WAIT = 30.0
"""Seconds to wait for a lock that others hold for milliseconds."""
_LOCK_PAUSE = 0.005
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CANNOT_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV, errno.EPERM)


def step(name: str) -> None:
    if at_step is not None:
        at_step(name)


def sync_folder(folder: Path) -> None:
    """The names in a folder survive a loss of power."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(folder: Path) -> None:
    """The folder and what is missing above it, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def write_note(path: Path, content: dict[str, Any]) -> None:
    """Puts a small JSON file in the place of the old one."""
    fresh = path.with_name(f".{path.name}.new")
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    step(f"before note {path.name}")
    os.replace(fresh, path)
    sync_folder(path.parent)
    step(f"after note {path.name}")


def read_note(path: Path) -> dict[str, Any] | None:
    try:
        note: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    return note


def move(source: Path, target: Path) -> bool:
    """Renames a file; False if it is not there (any more). The caller syncs the folders.

    Its time becomes now: Spark's file stream ignores a file that is days older than the newest it has read.
    """
    step(f"before move {target.name}")
    try:
        os.utime(source)
        os.replace(source, target)
    except FileNotFoundError:
        return False
    step(f"after move {target.name}")
    return True


def remove_folder(folder: Path) -> None:
    step(f"before remove {folder.name}")
    shutil.rmtree(folder, ignore_errors=True)


def exchange(one: Path, other: Path) -> bool:
    """Swaps two folders in one step (Linux's RENAME_EXCHANGE). False where the file system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    step(f"before exchange {other.name}")
    done = libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if done != 0:
        code = ctypes.get_errno()
        if code in _CANNOT_EXCHANGE:
            return False
        raise OSError(code, os.strerror(code), str(other))
    step(f"after exchange {other.name}")
    return True


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Holds a lock file, alone or with other sharers. Raises `Unavailable` if it is not free in time."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + LOCK_WAIT
        while not _try(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                raise Unavailable(f"{path} is held by another process; it is tried again")
            time.sleep(_LOCK_PAUSE)
        yield
    finally:
        os.close(lock)


def _try(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
