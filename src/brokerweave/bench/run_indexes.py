"""The indexes of a whole run: one measurement after another, or spread by whoever can.

Owns how RUN/indexes comes to be: a table is a folder of Parquet files, partitioned by measurement.
Invariants: runs after the measurements, never beside one; RUN/indexes is of one computation, whole, before
indexes.json says so. Must not know: how an index is computed, Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from brokerweave.bench import figures, indexes
from brokerweave.bench.figures import Indexes
from brokerweave.bench.folder import RECEIVES, RESOURCES, SENDS, Measurement, RunFolder, read_log
from brokerweave.bench.migration import computing
from brokerweave.errors import ConfigError

Task = Callable[[Measurement], Indexes]


def compute(
    folder: RunFolder, spread: Callable[[Task, list[Measurement]], Iterable[Indexes]] = map
) -> list[Indexes]:
    """Compute and write all indexes of a run. Raises `ConfigError` if nothing was measured."""
    measurements = folder.measurements()
    if not measurements:
        raise ConfigError(f"{folder.path}: no measurement has ended, so there is nothing to compute")
    unfinished = folder.indexes.with_name(folder.indexes.name + ".part").absolute()
    shutil.rmtree(unfinished, ignore_errors=True)
    task = partial(_computed, RunFolder(folder.path.absolute()), unfinished)
    # The biggest first, so that no core is left with one of them at the end.
    ordered = sorted(measurements, key=lambda each: _size(folder, each), reverse=True)
    found = sorted(spread(task, ordered), key=lambda each: each.id)
    folder.indexes_json.unlink(missing_ok=True)
    shutil.rmtree(folder.indexes, ignore_errors=True)
    unfinished.replace(folder.indexes)
    figures.write(folder, found)
    return found


def _size(folder: RunFolder, measurement: Measurement) -> int:
    return sum(log.stat().st_size for log in folder.folder_of(measurement.id).glob("*.arrow"))


def _computed(folder: RunFolder, to: Path, measurement: Measurement) -> Indexes:
    """What a task does. Its files appear whole, for it may be tried again."""
    number = measurement.id
    logs = (read_log(folder.logs(number, schema), schema) for schema in (SENDS, RECEIVES, RESOURCES))
    found, tables = indexes.compute(measurement, *logs)
    if folder.kind == "migration":
        figures_of, more = computing.compute(folder, measurement)
        tables |= more
        computing.write(to, figures_of, number)
    for name, table in tables.items():
        path = to / name / f"measurement={number}" / "rows.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".part")
        pq.write_table(table, unfinished)
        unfinished.replace(path)
    return found
