"""What a lake remembers of itself: how far it is with each log, whom it gave up, which checkpoint feeds it.

Owns the files in LAKE/_brokerweave and CHECKPOINT/brokerweave.json. Invariants: a file is replaced as a
whole; a batch is noted before its first file is, and again when all are, so that a reader of the notes knows
for every row of a log whether the lake has it. Must not know: Spark, the tables' format.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from brokerweave.edgelog.folder import replace_file
from brokerweave.edgelog.layout import START, Position
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable

FOLDER = "_brokerweave"


class LakeInUse(ConfigError):
    """Another process writes this lake or this checkpoint."""


@dataclass(frozen=True, slots=True)
class LogNote:
    """The last batch of one log that was begun; everything up to `after` is in the lake."""

    log_id: str
    node: str
    query: str
    """The stream that brings it: unique to a checkpoint."""
    batch_id: int
    after: Position
    up_to: Position
    whole: bool
    """The batch is in the lake too."""
    address: str = ""
    topics: tuple[str, ...] = ()
    skipped: int = 0
    """Rows that were trimmed unread, over all batches."""
    damaged: int = 0
    """Rows of this batch that could not be read, if the stream goes on behind such."""
    damaged_before: int = 0
    """The same of all batches before."""

    @property
    def held(self) -> Position:
        """The last row that is surely in the lake."""
        return self.up_to if self.whole else self.after

    @property
    def lost(self) -> int:
        """Rows that the lake will never have."""
        return self.skipped + self.damaged + self.damaged_before

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> LogNote:
        read = dict(stored)
        read["after"], read["up_to"] = Position(*read["after"]), Position(*read["up_to"])
        read["topics"] = tuple(read.get("topics", ()))
        return cls(**read)


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A node that was given up."""

    node: str
    log_id: str
    since: float
    """Seconds since 1970."""
    position: Position
    rows_lost: int | None
    """Rows that it had and the lake has not; None if it could not be asked."""


class LakeNotes:
    """`lake` need not exist yet."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        self._folder = lake / FOLDER

    def claim(self, table_format: str) -> str:
        """The lake's own id; made with the lake. Raises `ConfigError` if its tables have another format."""
        file = self._folder / "lake.json"
        try:
            known = _read(file)
            if known is None:
                (self._folder / "logs").mkdir(parents=True, exist_ok=True)
                known = {"id": uuid.uuid4().hex, "format": table_format}
                _write(file, known)
        except OSError as error:
            raise Unavailable(f"the lake {self.lake} cannot be written: {error.strerror}") from error
        if known["format"] != table_format:
            raise ConfigError(
                f"the lake {self.lake} holds {known['format']} tables: give --format {known['format']}, or "
                "another --to"
            )
        return str(known["id"])

    def table_format(self) -> str:
        """Raises `ConfigError` if there is no lake."""
        known = _read(self._folder / "lake.json")
        if known is None:
            raise ConfigError(f"{self.lake} is no lake of a pipeline: it has no {FOLDER}/lake.json")
        return str(known["format"])

    def logs(self) -> dict[str, LogNote]:
        """By log id."""
        found = sorted((self._folder / "logs").glob("*.json"))
        notes = (LogNote.from_json(stored) for file in found if (stored := _read(file)) is not None)
        return {note.log_id: note for note in notes}

    def log(self, log_id: str) -> LogNote | None:
        stored = _read(self._folder / "logs" / f"{log_id}.json")
        return None if stored is None else LogNote.from_json(stored)

    def write(self, note: LogNote) -> None:
        try:
            _write(self._folder / "logs" / f"{note.log_id}.json", note.as_json())
        except OSError as error:
            raise Unavailable(f"the lake {self.lake} cannot be written: {error.strerror}") from error

    def finish(self, note: LogNote) -> LogNote:
        """The batch that was begun is in the lake."""
        done = replace(note, whole=True)
        self.write(done)
        return done

    def backfilled(self) -> dict[str, list[tuple[Position, Position]]]:
        """Ranges that backfills brought, by log id."""
        stored = _read(self._folder / "backfills.json") or {}
        return {log: [(Position(*a), Position(*b)) for a, b in pairs] for log, pairs in stored.items()}

    def add_backfill(self, log_id: str, after: Position, up_to: Position) -> None:
        known = self.backfilled()
        if (after, up_to) not in known.setdefault(log_id, []):
            known[log_id].append((after, up_to))
            _write(self._folder / "backfills.json", known)

    def abandoned(self) -> dict[str, Abandoned]:
        """By node."""
        stored = _read(self._folder / "abandoned.json") or {}
        return {
            node: Abandoned(**{**each, "position": Position(*each["position"])})
            for node, each in stored.items()
        }

    def abandon(self, gone: Abandoned) -> None:
        known = {**self.abandoned(), gone.node: gone}
        self._write_abandoned(known)

    def take_back(self, node: str) -> None:
        known = self.abandoned()
        if known.pop(node, None) is None:
            raise ConfigError(f"node '{node}' was not abandoned; abandoned are {', '.join(known) or 'none'}")
        self._write_abandoned(known)

    def _write_abandoned(self, known: Mapping[str, Abandoned]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        _write(self._folder / "abandoned.json", {node: asdict(each) for node, each in known.items()})

    def publish_status(self, status: Mapping[str, Any]) -> None:
        """For `pipeline status`; it need not survive a power cut."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "status.json"
        unfinished = file.with_name(f"status.{os.getpid()}")
        unfinished.write_text(json.dumps(status))
        unfinished.replace(file)

    def status(self) -> dict[str, Any] | None:
        return _read(self._folder / "status.json")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One pipeline at a time writes a lake. Raises `LakeInUse`."""
        with only_one(self._folder, f"the lake {self.lake} is in use by another pipeline"):
            yield


@contextmanager
def only_one(folder: Path, otherwise: str) -> Iterator[None]:
    """A lock that dies with its process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise LakeInUse(otherwise) from None
    try:
        yield
    finally:
        os.close(lock)


class CheckpointNotes:
    """What a checkpoint was made with, so that nobody goes on with something else by mistake."""

    def __init__(self, checkpoint: Path) -> None:
        self.folder = checkpoint
        self._file = checkpoint / "brokerweave.json"

    def check(self, layer: str, options: Mapping[str, Any], *, accept: bool = False) -> None:
        """Remember a layer's options at first, later compare. Raises `ConfigError` for a changed one."""
        known = _read(self._file) or {}
        now = json.loads(json.dumps(options))
        before = known.get(layer)
        if before is not None and before != now and not accept:
            raise ConfigError(self._changed(layer, before, now))
        if before != now:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(self._file, {**known, layer: now})

    def _changed(self, layer: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
        if before.get("lake") != now.get("lake"):
            return (
                f"the checkpoint {self.folder} belongs to another lake: give the --to it was made with, or "
                "another --checkpoint"
            )
        name = next(name for name in sorted({*before, *now}) if before.get(name) != now.get(name))
        was, is_ = (json.dumps(each.get(name)) for each in (before, now))
        return (
            f"'{name}' of {layer} was {was} when the checkpoint {self.folder} began and is {is_} now: "
            "change it back, start a new lake, or give --accept-changes to go on with it from here"
        )


def now() -> float:
    return time.time()


def _read(file: Path) -> dict[str, Any] | None:
    try:
        stored = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{file} cannot be read: {error.strerror}") from error
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        raise BrokerweaveError(f"{file} is damaged: it is not what the pipeline wrote")
    return stored


def _write(file: Path, value: Mapping[str, Any]) -> None:
    replace_file(file, json.dumps(value).encode() + b"\n")


__all__ = ["START", "Abandoned", "CheckpointNotes", "LakeInUse", "LakeNotes", "LogNote", "now", "only_one"]
