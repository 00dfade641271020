"""The driver's half of a file sink: staged files become visible, all of them, once.

Owns `_tmp/` and `_commits/` of a table's folder. Each query has a note of the newest batch it publishes, with
the names of all its files, written before the first of them is moved to its place. Invariants:
- what is visible is never changed and never removed by a sink, so a stream that has read it was right to;
- a batch of which the note was written is finished from the note after a crash, not written again;
- a batch of which no note was written has nothing visible, and starts anew;
- a query's batches only go up: an older one comes from another checkpoint, and is refused.
Must not know: Spark, how rows are laid out in files.

    FOLDER/date=2026-01-31/batch-QUERY-BATCH-PARTITION.parquet
           _tmp/QUERY/BATCH-RANDOM/*.part     staged by one attempt
           _commits/QUERY.json  QUERY.lock    the newest batch of a query; one writer at a time
           _commits/folder.lock               shared by sinks that move files in, exclusive to compaction
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from brokerweave.errors import ConfigError
from brokerweave.pipeline.lake import durable, switching
from brokerweave.pipeline.sinks import Written
from brokerweave.pipeline.sinks.staging import Staged

TEMPORARY = "_tmp"
COMMITS = switching.COMMITS
_QUERY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
BATCH_FILE = re.compile(r"batch-(?P<query>.+)-(?P<batch>\d+)-(?P<partition>\d+)\.parquet")

Staging = Callable[[Path], Sequence[Staged]]
"""Writes the rows of a batch into the folder it is given."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A query's newest batch: where it was staged, and its files."""

    query: str
    batch_id: int
    place: str
    files: tuple[Staged, ...]

    def target(self, staged: Staged) -> str:
        """The path of a file below the table's folder."""
        name = f"batch-{self.query}-{self.batch_id}-{staged.partition}.parquet"
        return f"{staged.folder}/{name}" if staged.folder else name

    def written(self, *, replayed: bool) -> Written:
        rows = sum(file.rows for file in self.files)
        return Written(rows, len(self.files), sum(file.size for file in self.files), replayed)


class BatchPublisher:
    """Publishes the batches of any query into one folder."""

    def __init__(self, folder: Path, listed: Callable[[Commit], None] | None = None) -> None:
        """`listed` is told of each batch when its files are in place, perhaps more than once."""
        self._folder = folder
        self._listed = listed

    def publish(self, query: str, batch_id: int, stage: Staging) -> Written:
        """Stages and publishes a batch, unless it is there. Raises `ConfigError` for one that is too old."""
        if not _QUERY.fullmatch(query):
            raise ConfigError(f"{query!r} cannot name a query: letters, digits, '.', '_' and '-' only")
        staging = self._folder / TEMPORARY / query
        durable.make_folder(staging)
        durable.make_folder(self._folder / COMMITS)
        with durable.locked(self._folder / COMMITS / f"{query}.lock"):
            last = self._last(query)
            if last is not None:
                self._finish(last)
                if batch_id <= last.batch_id:
                    return self._again(last, batch_id)
            else:
                self._remove_unknown(query, batch_id)
            for leftover in staging.iterdir():
                durable.remove_folder(leftover)
            place = staging / f"{batch_id}-{uuid.uuid4().hex[:12]}"
            place.mkdir()
            return self._new(query, batch_id, place, stage(place))

    def knows(self, query: str) -> bool:
        """Has this query published anything here?"""
        return self._note(query).exists()

    def _new(self, query: str, batch_id: int, place: Path, staged: Sequence[Staged]) -> Written:
        commit = Commit(query, batch_id, str(place.relative_to(self._folder)), tuple(staged))
        if staged:
            durable.step("before staged files are synced")
            durable.sync_folder(place)
            durable.sync_folder(place.parent)
            durable.write_note(self._note(query), asdict(commit))
            self._finish(commit)
        else:
            durable.remove_folder(place)
        return commit.written(replayed=False)

    def _again(self, last: Commit, batch_id: int) -> Written:
        if batch_id < last.batch_id:
            raise ConfigError(
                f"query {last.query} has written batch {last.batch_id} into {self._folder} already, "
                f"and now comes with batch {batch_id}: its checkpoint is another or older one; "
                f"give the query a new name"
            )
        return last.written(replayed=True)

    def _finish(self, commit: Commit) -> None:
        """Moves what is still staged to its place. Safe to repeat, also when compaction took files since."""
        place = self._folder / commit.place
        if place.is_dir():
            with switching.shared(self._folder):
                self._move(commit, place)
        if self._listed is not None:
            self._listed(commit)
        if place.is_dir():
            durable.remove_folder(place)

    def _move(self, commit: Commit, place: Path) -> None:
        folders = {self._folder / file.folder for file in commit.files}
        for folder in folders:
            durable.make_folder(folder)
        for file in commit.files:
            durable.move(place / file.name, self._folder / commit.target(file))
        for folder in folders:
            durable.sync_folder(folder)

    def _remove_unknown(self, query: str, batch_id: int) -> None:
        """Files of this very batch without a note (somebody removed it): whole or not, nobody can tell."""
        for path in self._folder.rglob(f"batch-{query}-*.parquet"):
            named = BATCH_FILE.fullmatch(path.name)
            if named is None or named["query"] != query:
                continue
            found = int(named["batch"])
            if found > batch_id:
                raise ConfigError(
                    f"{path} is of a later batch than {batch_id} of query {query}: "
                    f"its checkpoint is another or older one; give the query a new name"
                )
            if found == batch_id:
                path.unlink()

    def _last(self, query: str) -> Commit | None:
        note = durable.read_note(self._note(query))
        if note is None:
            return None
        files = tuple(Staged(**file) for file in note["files"])
        return Commit(note["query"], note["batch_id"], note["place"], files)

    def _note(self, query: str) -> Path:
        return self._folder / COMMITS / f"{query}.json"
