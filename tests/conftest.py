"""For all tests: machines are shared and noisy, so no example of a property may fail for having been slow.

`make test` spreads files over three processes, since many wait, in the order given here; what shares the
Spark session stays together. Tests with real processes are marked `real` here, by their folder: such a test
gets a second try (`tests/support/run_tests.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support import java_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("brokerweave", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("brokerweave")

os.environ.setdefault("SPARK_SUBMIT_OPTS", java_archive.options())

DETERMINISTIC = ("tests/unit/", "tests/chaos/", "tests/fuzz/")
"""Folders whose tests depend on nothing but their code. A module there that does not says so with `real`."""
LONGEST = ("tests/pipeline/test_exactly_once.py", "tests/pipeline/test_away.py")
"""Begun first, so that no process is left with one of them at the end."""


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def group(item: pytest.Item) -> str:
        uses_spark = "spark" in getattr(item, "fixturenames", ())
        return "spark" if uses_spark else item.nodeid.partition("::")[0]

    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
        if not item.nodeid.startswith(DETERMINISTIC):
            item.add_marker(pytest.mark.real)
    first = {name: rank for rank, name in enumerate((LONGEST[0], "spark", *LONGEST[1:]))}
    items.sort(key=lambda item: first.get(group(item), len(first)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """xdist names a test's group behind its id; with pytest 9.2 that got lost, and nobody noticed."""
    grouped = getattr(session.config.option, "loadgroup", False)
    if grouped and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("this pytest and this xdist do not keep groups of tests together")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One for all tests, since starting one takes longer than most of them. Two threads and partitions."""
    from brokerweave.pipeline.spark.session import open_session

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
