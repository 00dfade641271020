"""A lake as others read it: with pyarrow and with DuckDB, never with Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable


def files(lake: Path, layer: str) -> list[str]:
    """A table's files: those that lie there, or that a Delta table lists."""
    folder = lake / layer
    if (folder / "_delta_log").is_dir():
        return sorted(DeltaTable(str(folder)).file_uris())
    return sorted(str(path) for path in folder.glob("date=*/*.parquet"))


def read(lake: Path, layer: str) -> pa.Table:
    """With pyarrow."""
    return ds.dataset(files(lake, layer), format="parquet").to_table()


def query(lake: Path, layer: str, sql: str) -> list[tuple[Any, ...]]:
    """With DuckDB; the table is called `rows`."""
    with duckdb.connect() as connection:
        connection.from_parquet(files(lake, layer), union_by_name=True, hive_partitioning=False).create_view(
            "rows"
        )
        return connection.sql(sql).fetchall()
