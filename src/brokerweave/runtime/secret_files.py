"""Passwords, tokens and keys, each in a file of its own: the first line is it.

Raises `ConfigError` for a file that cannot be read, an empty token, and a key that is too short to be one.
Must not know: what is opened with them.
"""

from __future__ import annotations

from pathlib import Path

from brokerweave.errors import ConfigError

SHORTEST_KEY = 16


def read_password(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return next(iter(path.read_bytes().splitlines()), b"")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def read_token(path: Path | None) -> bytes | None:
    token = read_password(path)
    if token == b"":
        raise ConfigError(f"the first line of {path} should be a token, and is empty")
    return token


def read_key(path: Path | None) -> bytes | None:
    key = read_password(path)
    if key is not None and len(key) < SHORTEST_KEY:
        raise ConfigError(f"the key in {path} is shorter than {SHORTEST_KEY} bytes; make a longer one")
    return key
