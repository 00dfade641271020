"""The session that jobs share, on a real Spark."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def test_the_workers_run_our_interpreter(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]


def test_times_are_utc_and_small_shuffles_stay_small(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
