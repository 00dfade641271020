"""Rows for a lake, and what readers that are not Spark see of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from brokerweave.edgelog.arrow import SCHEMA
from brokerweave.pipeline.sinks.staging import Layout, Staged, write_partition

DAY = 86_400_000_000
Row = tuple[str, int]
"""A topic and a sequence: what tells the tests' rows apart."""


def rows(sequences: Iterable[int], *, days: int = 1, topic: str = "a/b") -> pa.RecordBatch:
    """Rows as an edge log serves them, spread over some days."""
    numbers = list(sequences)
    content = [
        {
            "log_id": "L",
            "epoch": 1,
            "sequence": number,
            "site": "north",
            "client": "c",
            "topic": topic,
            "payload": f"value {number}".encode(),
            "received": 20_000 * DAY + number % days * DAY + number,
            "qos": 1,
            "retain": False,
            "dup": False,
            "packet_id": number % 65_535,
            "properties": [{"key": "k", "value": "v"}],
            "schema_version": 1,
        }
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(content, schema=SCHEMA)


def staged(place: Path, parts: Sequence[pa.RecordBatch]) -> list[Staged]:
    """What the tasks of a batch do, without Spark: one task for each part."""
    done = (write_partition([part], place, Layout(), index) for index, part in enumerate(parts))
    return [file for files in done for file in files]


def by_pyarrow(folder: Path) -> list[Row]:
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table(["topic", "sequence"])
    return sorted(zip(table["topic"].to_pylist(), table["sequence"].to_pylist(), strict=True))


def by_duckdb(folder: Path) -> list[Row]:
    if not any(folder.rglob("*.parquet")):
        return []
    found = duckdb.sql(f"select topic, sequence from read_parquet('{folder}/**/*.parquet') order by all")
    assert found is not None
    return [(str(topic), int(sequence)) for topic, sequence in found.fetchall()]


def seen(folder: Path) -> list[Row]:
    """The rows, as both readers agree on."""
    if not folder.exists():
        return []
    found = by_duckdb(folder)
    if found:
        assert by_pyarrow(folder) == found
    return found


def visible(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
