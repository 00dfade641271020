"""Compaction of a Delta table: its own OPTIMIZE, and a vacuum that waits for streams.

Owns what is removed from the disk. Invariants: Delta's readers see a row once at every version; a `batch-*`
file that a downstream stream has not read stays on the disk, listed in the table or not; versions of the
last days can still be read. Must not know: what the rows mean.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from brokerweave.errors import Unavailable
from brokerweave.pipeline.lake import durable, switching
from brokerweave.pipeline.lake.compaction import LEVEL, TARGET, Compacted, Fold, rewrite, total
from brokerweave.pipeline.sinks.delta import add_action

KEEP_HOURS = 24 * 7
"""A file that compaction replaced is kept this long, for readers of older versions."""


def compact_delta(
    folder: Path,
    finished: Sequence[Collection[Path]],
    *,
    fold: Fold | None,
    sort_by: Sequence[str],
    min_files: int,
    keep_hours: int = KEEP_HOURS,
) -> Compacted:
    """`finished`: for each stream that reads this table, the files it needs no more."""
    durable.make_folder(folder / switching.COMMITS)
    results = [Compacted()]
    with durable.locked(folder / switching.COMMITS / "compaction.lock"):
        switching.clean(folder)
        try:
            for files in _folders(DeltaTable(str(folder))).values():
                if len(files) < max(min_files, 2):
                    continue
                if fold is None:
                    results.append(_optimize(folder, files))
                else:
                    results.append(_fold(folder, files, fold, sort_by))
            waiting = _vacuum(folder, finished, keep_hours)
        except DeltaError as error:
            raise Unavailable(f"the Delta table {folder} did not take a compaction: {error}") from error
        switching.finish(folder)
    return total([*results, Compacted(waiting=waiting)])


def _folders(table: DeltaTable) -> dict[str, list[str]]:
    """The files of each folder, by their paths below the table."""
    folders: dict[str, list[str]] = defaultdict(list)
    for encoded in pa.table(table.get_add_actions(flatten=True))["path"].to_pylist():
        path = unquote(encoded)
        folders[os.path.dirname(path)].append(path)
    return folders


def _optimize(folder: Path, files: Sequence[str]) -> Compacted:
    table = DeltaTable(str(folder))
    values = add_action(files[0], 0, 0, 0, changes=False).partition_values
    done = table.optimize.compact(
        [(name, "=", value or "") for name, value in values.items()],
        target_size=TARGET,
        writer_properties=WriterProperties(compression="ZSTD", compression_level=LEVEL),
    )
    durable.step("after OPTIMIZE")
    return Compacted(1, done["numFilesRemoved"], done["numFilesAdded"])


def _fold(folder: Path, files: Sequence[str], fold: Fold, sort_by: Sequence[str]) -> Compacted:
    """What the fold makes of exactly these files takes their place, in one commit; others may be added."""
    paths = [folder / path for path in files]
    fresh, before, after = rewrite(paths, switching.workshop(folder), fold, sort_by)
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = []
    for path in fresh:
        target = os.path.join(os.path.dirname(files[0]), path.name)
        rows = pq.read_metadata(path).num_rows
        actions.append(add_action(target, path.stat().st_size, rows, now, changes=True))
        durable.move(path, folder / target)
    durable.sync_folder(paths[0].parent)
    for old in files:
        values = add_action(old, 0, 0, 0, changes=False).partition_values
        actions.append(RemoveAction(old, True, now, (folder / old).stat().st_size, dict(values)))
    table = DeltaTable(str(folder))
    durable.step("before the Delta commit")
    table.create_write_transaction(actions, "append", table.schema(), table.metadata().partition_columns)
    durable.step("after the Delta commit")
    return Compacted(1, len(files), len(fresh), before, after)


def _vacuum(folder: Path, finished: Sequence[Collection[Path]], keep_hours: int) -> int:
    """Removes what the table needs no more and every stream has read; how many files wait for a stream."""
    table = DeltaTable(str(folder))
    waiting = 0
    for path in table.vacuum(keep_hours, dry_run=True, enforce_retention_duration=False):
        place = folder / unquote(path)
        if place.name.startswith("batch-") and not all(place in files for files in finished):
            waiting += 1
            continue
        place.unlink(missing_ok=True)
    return waiting
