"""The indexes of a whole run, on Spark: one job, with a task for each measurement.

Owns who computes which measurement. Invariant: no rows pass through the driver. Must not know: how an index
is computed, where it is written.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from brokerweave.bench import run_indexes
from brokerweave.bench.figures import Indexes
from brokerweave.bench.folder import Measurement, RunFolder


def compute(spark: SparkSession, folder: RunFolder) -> list[Indexes]:
    """Compute and write all indexes of a run. Raises `ConfigError` if nothing was measured."""

    def spread(task: run_indexes.Task, measurements: list[Measurement]) -> list[Indexes]:
        return list(spark.sparkContext.parallelize(measurements, len(measurements)).map(task).collect())

    return run_indexes.compute(folder, spread)
