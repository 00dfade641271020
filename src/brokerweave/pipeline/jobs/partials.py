"""Gold's rows: parts of aggregates that any reader can put together, in any order and grouping.

Owns their columns, how two of them become one (for pyarrow, for DuckDB; `gold` has it for Spark), and what
is read from them: silence and outliers of a sensor. A sensor is one field of one topic at one site.
Invariants: `merge` gives the same whatever the order and grouping of its rows (sums of doubles: but for
rounding), and merging what is merged changes nothing. Must not know: Spark, batches, who writes.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

MESSAGES = "_messages"
"""The field that counts a topic's messages, whatever they hold; it has no sums."""
_TIME = pa.timestamp("us", tz="UTC")
KEY = ("window_start", "site", "topic", "field")
SENSOR = ("site", "topic", "field")
SCHEMA = pa.schema(
    [
        ("window_start", _TIME),
        ("site", pa.string()),
        ("topic", pa.string()),
        ("field", pa.string()),
        ("count", pa.int64()),
        ("sum", pa.float64()),
        ("sum_squares", pa.float64()),
        ("min", pa.float64()),
        ("max", pa.float64()),
        ("first_time", _TIME),
        ("last_time", _TIME),
        ("last_received", _TIME),
        ("last", pa.float64()),
        ("received_until", _TIME),
        ("late", pa.int64()),
    ]
)
MERGED_BY = {
    "count": "sum",
    "sum": "sum",
    "sum_squares": "sum",
    "min": "min",
    "max": "max",
    "first_time": "min",
    "last_time": "max",
    "received_until": "max",
    "late": "sum",
}
"""`last` and `last_received` are those of the greatest (last_time, last_received, last)."""


def merge(partials: pa.Table) -> pa.Table:
    """One row for each window, site, topic and field. Compaction folds gold with it."""
    table = partials.select(SCHEMA.names).cast(SCHEMA)
    ordered = table.sort_by([(name, "ascending") for name in (*KEY, "last_time", "last_received", "last")])
    # Threads would lose the order, which says what is last.
    merged = ordered.group_by(list(KEY), use_threads=False).aggregate(
        [*MERGED_BY.items(), ("last", "last"), ("last_received", "last")]
    )
    names = {f"{name}_{how}": name for name, how in MERGED_BY.items()} | {
        "last_last": "last",
        "last_received_last": "last_received",
    }
    renamed = merged.rename_columns([names.get(name, name) for name in merged.column_names])
    return renamed.select(SCHEMA.names).cast(SCHEMA)


def listed(folder: Path | str) -> list[str] | None:
    """The files that a Delta table's log lists now; None for plain files: all of them count."""
    if not (Path(folder) / "_delta_log").is_dir():
        return None
    from deltalake import DeltaTable

    return list(DeltaTable(str(folder)).file_uris())


def read(folder: Path | str) -> pa.Table:
    """The merged gold of a lake, as it is now."""
    files = ds.dataset(listed(folder) or folder, schema=SCHEMA, format="parquet", partitioning=None)
    return merge(files.to_table())


def duckdb_view(folder: Path | str) -> str:
    """A query for DuckDB that gives the merged gold, with mean and standard deviation.

    It stays good while batches come; of a Delta table it reads the version of the moment it was made.
    """
    paths = listed(folder) or [str(Path(folder) / "**" / "*.parquet")]
    files = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    aggregates = ", ".join(f'{how}("{name}") AS "{name}"' for name, how in MERGED_BY.items())
    order = "ORDER BY last_time, last_received, last"
    return (
        f"SELECT *, sum / count AS mean, "
        f"sqrt(CASE WHEN sum IS NOT NULL THEN greatest(sum_squares / count - (sum / count) ** 2, 0) END) "
        f"AS stddev "
        f"FROM (SELECT {', '.join(KEY)}, {aggregates}, last(last_received {order}) AS last_received, "
        f'last("last" {order}) AS "last" FROM read_parquet([{files}], hive_partitioning = false) '
        f"GROUP BY {', '.join(KEY)})"
    )


def silence(merged: pa.Table, now: datetime, intervals: float = 3.0, every: float | None = None) -> pa.Table:
    """Sensors without a reading for more than so many intervals, and for how many seconds.

    `every`: seconds between two readings; None: each sensor's own mean in `merged`, so it needs two readings.
    """
    sensors = _totals(merged)
    spread = _seconds(sensors["first_time"], sensors["last_time"])
    readings = pc.subtract(sensors["count"], 1).cast(pa.float64())
    own = pc.if_else(pc.greater(readings, 0), pc.divide(spread, readings), None)
    interval = own if every is None else pa.chunked_array([pa.repeat(pa.scalar(float(every)), len(sensors))])
    silent = _seconds(sensors["last_time"], pa.scalar(now, _TIME))
    table = sensors.select([*SENSOR, "last_time"])
    table = table.append_column("interval", interval).append_column("silent", silent)
    return table.filter(pc.greater(silent, pc.multiply(interval, float(intervals))))


def outliers(merged: pa.Table, z: float = 4.0) -> pa.Table:
    """Windows whose lowest or highest reading is far from what its sensor gives in all the other windows.

    The distance `z` is in standard deviations. A window does not vouch for itself: its own readings are taken
    out of mean and deviation first, which sums allow.
    """
    measured = merged.filter(pc.field("field") != MESSAGES)
    totals = _totals(measured).select([*SENSOR, "count", "sum", "sum_squares"])
    totals = totals.rename_columns([*SENSOR, "all_count", "all_sum", "all_squares"])
    table = measured.join(totals, list(SENSOR))
    count = pc.subtract(table["all_count"], table["count"]).cast(pa.float64())
    others = pc.if_else(pc.greater(count, 1), count, None)
    mean = pc.divide(pc.subtract(table["all_sum"], table["sum"]), others)
    squares = pc.divide(pc.subtract(table["all_squares"], table["sum_squares"]), others)
    deviation = pc.sqrt(pc.max_element_wise(pc.subtract(squares, pc.multiply(mean, mean)), 0.0))
    low, high = pc.abs(pc.subtract(table["min"], mean)), pc.abs(pc.subtract(table["max"], mean))
    value = pc.if_else(pc.greater(low, high), table["min"], table["max"])
    # Readings that never changed have no deviation: any other value is infinitely far, the same one is not.
    distance = pc.divide(pc.max_element_wise(low, high), deviation)
    found = table.select(list(KEY))
    for name, column in (("value", value), ("mean", mean), ("stddev", deviation), ("z", distance)):
        found = found.append_column(name, column)
    return found.filter(pc.greater_equal(distance, z)).sort_by([(name, "ascending") for name in KEY])


def _totals(merged: pa.Table) -> pa.Table:
    """One row for each sensor, over all its windows."""
    names = ("count", "sum", "sum_squares", "first_time", "last_time")
    found = merged.group_by(list(SENSOR)).aggregate([(name, MERGED_BY[name]) for name in names])
    short = {f"{name}_{MERGED_BY[name]}": name for name in names}
    return found.rename_columns([short.get(name, name) for name in found.column_names])


def _seconds(start: pa.ChunkedArray, end: pa.ChunkedArray | pa.Scalar) -> pa.ChunkedArray:
    return pc.divide(pc.subtract(end, start).cast(pa.int64()).cast(pa.float64()), 1e6)
