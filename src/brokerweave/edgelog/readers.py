"""Named readers of one log: how far each has committed.

Owns the files in `readers/`. Invariants: a position only moves forward; a file is replaced as a whole. Must
not know: what is trimmed, and when.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from brokerweave.edgelog.folder import replace_file
from brokerweave.edgelog.layout import Position
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")


class DamagedPosition(BrokerweaveError):
    """A reader's file is not what was written."""


class Readers:
    """`folder` is the log's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "readers"

    def all(self) -> dict[str, Position]:
        """Each reader's committed position, its last row that may go. Raises `BrokerweaveError`."""
        try:
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Unavailable(f"{self._folder} cannot be read: {error.strerror}") from error
        paths = [self._folder / name for name in names if name.endswith(".json")]
        return {path.stem: position for path in paths if (position := _read(path)) is not None}

    def position(self, name: str) -> Position | None:
        """What one reader has committed; None if it is not known. Raises `BrokerweaveError`."""
        return _read(self._path(name))

    def commit(self, name: str, position: Position) -> Position:
        """Say that a reader needs nothing up to `position`; what is committed now."""
        path = self._path(name)
        try:
            before = _read(path)
        except DamagedPosition:
            before = None  # this is how it is mended
        if before is not None and before >= position:
            return before
        try:
            self._folder.mkdir(exist_ok=True)
            replace_file(path, json.dumps(position._asdict()).encode() + b"\n")
        except OSError as error:
            raise Unavailable(f"the position of {name} cannot be written: {error.strerror}") from error
        return position

    def forget(self, name: str) -> None:
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            known = ", ".join(self.all()) or "none"
            raise ConfigError(f"there is no reader {name}; known are {known}") from None

    @staticmethod
    def check(name: str) -> None:
        if _NAME.fullmatch(name) is None:
            raise ConfigError(f"a reader's name has 1 to 64 of A-Z a-z 0-9 _ . -; not {name[:80]!r}")

    def _path(self, name: str) -> Path:
        self.check(name)
        return self._folder / f"{name}.json"


def _read(path: Path) -> Position | None:
    try:
        stored = json.loads(path.read_bytes())
        return Position(int(stored["epoch"]), int(stored["sequence"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError):
        raise DamagedPosition(f"{path} is damaged: commit the reader's position anew, or remove it") from None
