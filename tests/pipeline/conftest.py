"""One Spark session for all tests of the pipeline: starting one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from brokerweave.pipeline.spark.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two threads, two shuffle partitions, no web interface."""
    session = open_session(
        "local[2]",
        "brokerweave-tests",
        {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "ERROR",
            # A hive metastore or a warehouse folder would be left where the tests are run.
            "spark.sql.catalogImplementation": "in-memory",
        },
    )
    yield session
    session.stop()
