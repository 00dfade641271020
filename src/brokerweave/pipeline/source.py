"""Spark's `format("brokerweave")`."""

from __future__ import annotations

from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("brokerweave")` known to a session."""
