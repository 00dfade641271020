"""The source on a real standalone cluster: one master and two workers, started from the installed pyspark.

The workers are processes of their own, with their own interpreter, and are given the package by its path, so
what only works inside the driver fails here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from brokerweave.lab.broker import HOST, free_port
from brokerweave.pipeline.java import java_environment
from tests.support.edgelogs import Site, numbered
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

JOB = """
import json, os, sys
from brokerweave.pipeline.session import open_session

master, nodes, checkpoint = sys.argv[1:]
spark = open_session(master, "cluster-test", {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m", "spark.cores.max": "2", "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
})
seen = []
def keep(batch, number):
    seen.extend(int(row["payload"]) for row in batch.collect())
options = {"nodes": nodes, "rowsPerPartition": 100, "reader": "lake"}
stream = spark.readStream.format("brokerweave").options(**options).load()
query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print("RESULT", json.dumps({"rows": sorted(seen), "executors": executors}))
spark.stop()
"""


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers of one core each; the master's address."""
    home = Path(pyspark.__file__).parent
    environment = dict(os.environ) | java_environment(os.environ)
    environment |= {
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), *arguments]
        with log.open("wb") as output:
            started.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))
        return log

    port = free_port()
    master = f"spark://{HOST}:{port}"
    kind = "org.apache.spark.deploy"
    try:
        web = "--webui-port", "0"
        start("master", f"{kind}.master.Master", "--host", HOST, "--port", str(port), *web)
        logs = [
            start(name, f"{kind}.worker.Worker", "--host", HOST, "-c", "1", "-m", "700m", *web, master)
            for name in ("one", "two")
        ]
        wait_until(
            lambda: all("Successfully registered" in log.read_text() for log in logs), "two workers", 120
        )
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


def test_a_stream_is_read_by_the_workers_of_a_cluster(tmp_path: Path) -> None:
    with Site(tmp_path / "one", "one") as one, Site(tmp_path / "two", "two") as two:
        one.write(numbered(0, 1000))
        two.write(numbered(1000, 500))
        job = tmp_path / "job.py"
        job.write_text(JOB)
        with cluster(tmp_path) as master:
            nodes = f"{one.address},{two.address}"
            told = subprocess.run(
                [sys.executable, str(job), master, nodes, str(tmp_path / "checkpoint")],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
    assert "RESULT" in told.stdout, told.stderr[-4000:]
    result = told.stdout.split("RESULT", 1)[1]
    assert f'"rows": {list(range(1500))}' in result
    assert '"executors": 2' in result
