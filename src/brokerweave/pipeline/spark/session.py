"""Opens the Spark session that the pipeline's jobs share.

Owns the settings that our streams need on any master, and those that make a local one quick. Invariants:
what a user sets wins over ours; the Python workers are this interpreter. Must not know: jobs, sinks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from brokerweave.pipeline.source.data_source import register
from brokerweave.pipeline.spark.java import java_environment
from brokerweave.pipeline.spark.planners import keep_warm
from brokerweave.pipeline.spark.shims import worker_python

SPARK_ERRORS = (Py4JError, PySparkException)
"""What Spark raises here, also for what our code raised in a worker."""

ALWAYS = {
    # Times are stored and compared in UTC, whatever the machine's zone is.
    "spark.sql.session.timeZone": "UTC",
    # An empty batch after each one only serves watermarks, which gold does not use.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # The source takes filters in batch reads; Spark refuses such a source unless this is on.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
}
LOCAL = {
    # By far the biggest lever on latency: the default of 200 tasks costs seconds for each small batch.
    "spark.sql.shuffle.partitions": "2",
    # Some 50 ms less for each batch than the default, which starts a process to set permissions. On a local
    # disk its rename is atomic all the same.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Nobody else has to reach a driver whose executors are inside it.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Rows come from Python's workers with less work for both sides than over TCP.
    "spark.python.unix.domain.socket.enabled": "true" if os.name == "posix" else "false",
}


def settings_for(master: str, chosen: Mapping[str, str] = {}) -> dict[str, str]:
    """All settings of a session on `master`; `chosen` wins."""
    return ALWAYS | (LOCAL if master.startswith("local") else {}) | dict(chosen)


def _python_of_workers(master: str) -> str:
    """This Python. Elsewhere there is no shim, and pyspark may be there in Spark's zip files only."""
    here = master.partition("[")[0] == "local" and os.name == "posix"
    installed = ".zip" not in (pyspark.__file__ or "")
    if not (here and installed):
        return sys.executable
    keep_warm(sys.executable)
    return worker_python(sys.executable, os.environ)


def open_session(
    master: str = "local[*]", app: str = "brokerweave", settings: Mapping[str, str] = {}
) -> SparkSession:
    """The session of this process, with `format("brokerweave")` known to it.

    Raises `ConfigError` if there is no Java. Changes this process's environment, since Spark's own starter
    reads it from there.
    """
    os.environ.update(java_environment(os.environ))
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = _python_of_workers(master)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in settings_for(master, settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


@contextmanager
def errors_to(file: Path) -> Iterator[None]:
    """A process that is started meanwhile writes its standard error to a file; Spark writes much."""
    file.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    before = os.dup(2)
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(opened, 2)
    os.close(opened)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
