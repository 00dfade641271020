"""The executors' half of a file sink: rows into Parquet files that nobody sees yet.

Owns how a file is laid out (columns, compression, row groups) and which folder its rows belong to.
Invariants: a file is whole and synced before it is named to the driver; every attempt of a task writes
under its own name, so a retried or speculative task disturbs nobody, and only the attempt whose result
Spark took is named. Must not know: batches, commits, what the rows mean.

Spark's `mapInArrow` runs it, not a Python data source writer: the rows come as the same Arrow batches, while
the names come back to the driver's own process as the result of one job. A data source would be planned, and
its commit run, in further Python processes for every batch.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from brokerweave.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUFFER = 64 << 20
"""Bytes of rows that a task holds before it writes a row group (for each folder it has rows of)."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder's value where the column is null, as Hive and all its readers have it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows spread over folders."""

    partition_by: tuple[str, ...] = ("date",)
    """One level of folders each. They are not stored in the files."""
    date_from: str = "received"
    """`date`, if the rows have no such column, is the UTC day of this one."""


@dataclass(frozen=True, slots=True)
class Staged:
    """One finished file: `name` in the staging folder, and the `folder` its rows belong to."""

    name: str
    folder: str
    partition: int
    rows: int
    size: int


def stage(batch: DataFrame, place: Path, layout: Layout) -> list[Staged]:
    """Runs the batch. The executors write into `place`, which all of them and the driver must see."""
    from pyspark import TaskContext

    _check(batch.columns, layout)
    where = str(place)

    def write(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        staged = write_partition(rows, Path(where), layout, partition)
        yield pa.RecordBatch.from_pylist([_as_row(each) for each in staged], schema=_RESULT)

    found = batch.mapInArrow(write, _RESULT_DDL).collect()
    return [Staged(row.name, row.folder, row.partition, row.rows, row.size) for row in found]


_RESULT_DDL = "name string, folder string, partition int, rows long, size long"
_RESULT = pa.schema(
    [
        ("name", pa.string()),
        ("folder", pa.string()),
        ("partition", pa.int32()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
    ]
)


def _as_row(staged: Staged) -> dict[str, Any]:
    return {name: getattr(staged, name) for name in _RESULT.names}


def _check(columns: Iterable[str], layout: Layout) -> None:
    known = set(columns)
    if layout.date_from in known:
        known.add("date")
    missing = [name for name in layout.partition_by if name not in known]
    if missing:
        raise ConfigError(f"the batch has no column {missing[0]} to lay its files out by")


def write_partition(
    batches: Iterable[pa.RecordBatch], place: Path, layout: Layout, partition: int
) -> list[Staged]:
    """Writes the rows of one task, a file for each folder, and syncs them."""
    attempt = uuid.uuid4().hex[:12]
    files: dict[str, _File] = {}
    for batch in batches:
        for folder, rows in _by_folder(batch, layout):
            if folder not in files:
                # Not `.parquet`: a reader that takes every such file below the folder must not find it.
                files[folder] = _File(place / f"{partition}-{attempt}-{len(files)}.part", rows.schema)
            files[folder].add(rows)
        if sum(file.buffered for file in files.values()) >= BUFFER:
            for file in files.values():
                file.flush()
    return [
        Staged(file.path.name, folder, partition, file.rows, file.close()) for folder, file in files.items()
    ]


def _by_folder(batch: pa.RecordBatch, layout: Layout) -> Iterator[tuple[str, pa.Table]]:
    if not batch.num_rows:
        return
    rows = pa.Table.from_batches([batch]).cast(_in_utc(batch.schema))
    if not layout.partition_by:
        yield "", rows
        return
    if "date" in layout.partition_by and "date" not in rows.column_names:
        day = rows[layout.date_from].cast(pa.timestamp("us")).cast(pa.date32())
        rows = rows.append_column("date", day)
    folders = _folders(rows, layout.partition_by)
    rows = rows.drop_columns(list(layout.partition_by))
    different = folders.unique().to_pylist()
    for folder in different:
        yield folder, rows if len(different) == 1 else rows.filter(pa.compute.equal(folders, folder))


def _folders(rows: pa.Table, partition_by: tuple[str, ...]) -> pa.Array:
    """For each row its folder: `date=2026-01-31/site=north`."""
    levels = []
    for name in partition_by:
        texts = rows[name].cast(pa.string()).combine_chunks().fill_null(NO_VALUE).dictionary_encode()
        names = [f"{name}={quote(text, safe='')}" for text in texts.dictionary.to_pylist()]
        levels.append(pa.array(names, pa.string()).take(texts.indices))
    return pa.compute.binary_join_element_wise(*levels, "/")


def _in_utc(schema: pa.Schema) -> pa.Schema:
    """Spark labels times with its session's time zone; stored, they are all UTC."""
    fields = [
        field.with_type(pa.timestamp(field.type.unit, "UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz not in (None, "UTC")
        else field
        for field in schema
    ]
    return pa.schema(fields)


class _File:
    """One Parquet file in the making."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self.buffered = 0
        self._tables: list[pa.Table] = []
        self._file = open(path, "xb")  # noqa: SIM115 (closed by `close`, or with the task's process)
        self._writer = open_writer(self._file, schema)

    def add(self, rows: pa.Table) -> None:
        self._tables.append(rows)
        self.rows += rows.num_rows
        self.buffered += rows.nbytes

    def flush(self) -> None:
        if self._tables:
            self._writer.write_table(pa.concat_tables(self._tables))
            self._tables.clear()
            self.buffered = 0

    def close(self) -> int:
        """Whole and on the disk; how many bytes."""
        self.flush()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self.path.stat().st_size


def open_writer(file: IO[bytes], schema: pa.Schema, level: int = 1) -> pq.ParquetWriter:
    """zstd; texts that repeat as dictionaries, numbers that grow as differences, payloads as they are."""
    rising = {
        field.name: "DELTA_BINARY_PACKED"
        for field in schema
        if pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type)
    }
    repeated = [field.name for field in schema if pa.types.is_string(field.type)]
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=level,
        use_dictionary=repeated or False,
        column_encoding=rising or None,
    )
