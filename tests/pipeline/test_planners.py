"""Planners that are forked from a warm process, as a real Spark has them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from brokerweave.pipeline.spark import planners
from brokerweave.pipeline.spark.shims import ASK_PLANNER

STARTS_AND_WAITS = """
import sys
from brokerweave.pipeline.spark import planners
planners.keep_warm(sys.executable)
print(planners._running.pid, flush=True)
input()
"""


class Telling(DataSource):
    """Its one row tells which process planned the stream, and whose child that is."""

    @classmethod
    def name(cls) -> str:
        return "telling"

    def schema(self) -> str:
        return "pid INT, parent INT"

    def streamReader(self, schema: object) -> TellingReader:
        return TellingReader()


class Told(InputPartition):
    def __init__(self, pid: int, parent: int) -> None:
        self.row = (pid, parent)


class TellingReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [Told(os.getpid(), os.getppid())]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        assert isinstance(partition, Told)
        yield partition.row


def test_a_stream_is_planned_by_a_fork_of_the_warm_process_which_ends_with_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert planners._running is not None
    spark.dataSource.register(Telling)
    stream = spark.readStream.format("telling").load()
    query = (
        stream.writeStream.format("memory")
        .queryName("told")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    (told,) = spark.table("told").collect()
    others = {(task / "comm").read_text().strip() for task in Path(f"/proc/{told.parent}/task").iterdir()}
    assert len(others - {"jemalloc_bg_thd"}) == 1, "threads would be missing in a fork"
    assert told.parent == planners._running.pid
    assert told.pid not in (told.parent, os.getpid())
    for _ in range(100):
        if not Path(f"/proc/{told.pid}").exists():
            break
        signal.sigtimedwait([], 0.1)
    else:
        pytest.fail("the planner outlives its stream")


@pytest.mark.parametrize("address", ["nobody-listens", "refuses"])
def test_without_the_warm_process_what_spark_asked_for_is_started(tmp_path: Path, address: str) -> None:
    environment = dict(os.environ) | {planners.ADDRESS: str(tmp_path / address), "PYTHONPATH": "/elsewhere"}
    if address == "refuses":  # a process whose modules are others
        environment[planners.ADDRESS] = planners.keep_warm(sys.executable)
    told = subprocess.run(
        [sys.executable, "-I", "-S", str(ASK_PLANNER), "-c", "print('started')"],
        env=environment,
        capture_output=True,
        check=True,
    )
    assert told.stdout == b"started\n"


def test_the_warm_process_ends_with_the_one_that_was_killed(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [
            sys.executable,
            "-c",
            STARTS_AND_WAITS,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    with driver.stdin, driver.stdout:
        warm = Path("/proc") / driver.stdout.readline().decode().strip()
        assert warm.exists()
        driver.kill()
        driver.wait()
        for _ in range(300):
            if not warm.exists():
                return
            signal.sigtimedwait([], 0.1)
    pytest.fail("the warm process outlives its driver")
