"""Makes few large files of the many small ones that batches leave.

Owns the choice of files, and what a compacted file looks like. Invariants: a file that a downstream stream
has not read stays as it is; without a fold the rows after are the rows before; a reader never sees a row
twice, nor misses one (`switching`). Memory is bounded by MEMORY and a sorted copy of it. Must not know:
what the rows mean.

Streams read `batch-*` only. What they have read becomes `compact-*`, which also keeps the folders short
that Spark lists for every batch.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from brokerweave.errors import BrokerweaveError
from brokerweave.pipeline.lake import durable, switching
from brokerweave.pipeline.lake.consumed import consumed
from brokerweave.pipeline.sinks.staging import open_writer

Fold = Callable[[pa.Table], pa.Table]
"""Merges rows that stand for the same thing. Called with the rows of one folder, or with a part of them."""

MEMORY = 512 << 20
"""Bytes of rows that are sorted at once, and so the most that go into one file."""
TARGET = 128 << 20
"""Bytes of a file that is large enough. A compacted one that has half of it is left alone."""
LEVEL = 6
"""Of zstd: compacted files are written once and read often."""
ROW_GROUP = 256 << 10
"""Rows. Sorted by topic, a row group holds few topics, and readers that ask for one skip the others."""
SORT_BY = ("topic", "received")


@dataclass(frozen=True, slots=True)
class Compacted:
    folders: int = 0
    files_before: int = 0
    files_after: int = 0
    rows_before: int = 0
    rows_after: int = 0
    waiting: int = 0
    """Files left alone because a stream has not read them yet."""


def compact(
    folder: Path | str,
    read_by: Sequence[Path | str] = (),
    *,
    fold: Fold | None = None,
    sort_by: Sequence[str] = SORT_BY,
    min_files: int = 10,
) -> Compacted:
    """Compacts each folder of a Parquet table that has at least `min_files` files to put together.

    `read_by`: the checkpoint of every stream that reads this table, also of one that has not started yet.
    A Delta table is compacted by its own means (`delta_compaction`).
    """
    table = Path(folder).absolute()
    if not table.is_dir():
        return Compacted()
    finished = [consumed(Path(checkpoint)) for checkpoint in read_by]
    if (table / "_delta_log").exists():
        from brokerweave.pipeline.lake.delta_compaction import compact_delta

        return compact_delta(table, finished, fold=fold, sort_by=sort_by, min_files=min_files)
    durable.make_folder(table / switching.COMMITS)
    results = []
    with durable.locked(table / switching.COMMITS / "compaction.lock"):
        switching.clean(table)
        for each in sorted(_leaves(table)):
            free, waiting = _choose(each, finished, fold is not None)
            if len(free) < max(min_files, 1):
                results.append(Compacted(waiting=waiting))
                continue
            fresh, before, after = rewrite(free, switching.workshop(table), fold, sort_by)
            switching.switch(table, str(each.relative_to(table)), {path.name for path in free}, fresh)
            results.append(Compacted(1, len(free), len(fresh), before, after, waiting))
        switching.finish(table)
    return total(results)


def _leaves(table: Path) -> Iterator[Path]:
    """Folders that hold files and no folders; a table without any is too small to need this."""
    for path, folders, files in os.walk(table):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        if not folders and Path(path) != table and any(name.endswith(".parquet") for name in files):
            yield Path(path)


def _choose(folder: Path, finished: Iterable[Collection[Path]], folding: bool) -> tuple[list[Path], int]:
    """The files to put together, and how many of a folder's must wait."""
    batches = sorted(folder.glob("batch-*.parquet"))
    free = [path for path in batches if all(path in files for files in finished)]
    waiting = len(batches) - len(free)
    done = list(folder.glob("compact-*.parquet"))
    if not folding:
        free = [path for path in free if path.stat().st_size < TARGET]
        done = [path for path in done if path.stat().st_size < TARGET // 2]
    return (free + done if free or len(done) > 1 else []), waiting


def rewrite(
    files: Sequence[Path], place: Path, fold: Fold | None, sort_by: Sequence[str]
) -> tuple[list[Path], int, int]:
    """New files with the same rows, or with what the fold makes of them; how many rows before and after."""
    fresh, before, after = [], 0, 0
    for rows in _portions(files):
        before += rows.num_rows
        if fold is not None:
            rows = fold(rows)
        keys = [(name, "ascending") for name in sort_by if name in rows.column_names]
        path = place / f"compact-{uuid.uuid4().hex[:16]}.parquet"
        after += write_file(path, rows.sort_by(keys) if keys else rows)
        fresh.append(path)
    if fold is None and after != before:
        told = f"compacting {files[0].parent} made {after} rows of {before}: nothing is changed"
        raise BrokerweaveError(told)
    return fresh, before, after


def _portions(files: Iterable[Path]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    size = 0
    for path in files:
        rows = pq.ParquetFile(path).read()
        if held and size + rows.nbytes > MEMORY:
            yield pa.concat_tables(held, promote_options="permissive")
            held, size = [], 0
        held.append(rows)
        size += rows.nbytes
    if held:
        yield pa.concat_tables(held, promote_options="permissive")


def write_file(path: Path, rows: pa.Table) -> int:
    """One compacted file, synced; how many rows it says it has."""
    with open(path, "xb") as file:
        writer = open_writer(file, rows.schema, LEVEL)
        writer.write_table(rows, row_group_size=ROW_GROUP)
        writer.close()
        file.flush()
        os.fsync(file.fileno())
    durable.step(f"after a compacted file is written into {path.parent.name}")
    return int(pq.read_metadata(path).num_rows)


def total(results: Iterable[Compacted]) -> Compacted:
    return Compacted(*(sum(column) for column in zip(*map(astuple, results), strict=True)))
