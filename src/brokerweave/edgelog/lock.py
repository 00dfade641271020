"""One writer for each log: a lock that dies with its process.

Owns the lock file, and how an error of the disk is told to whoever opens a log.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from brokerweave.errors import ConfigError, Unavailable

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE)
"""What may be better later, without anybody changing the configuration."""


class LogInUse(ConfigError):
    """Another process writes this log."""


@contextlib.contextmanager
def translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = Unavailable if error.errno in _PASSING else ConfigError
        raise kind(f"the edge log {folder} cannot be used: {error.strerror}") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else writes. Raises `ConfigError` if somebody does."""
    with translated(folder):
        lock = take_lock(folder)
    try:
        yield
    finally:
        os.close(lock)


def take_lock(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise LogInUse(f"the edge log {folder} is in use by another node; give each its own") from None
    return lock
