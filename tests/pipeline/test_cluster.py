"""The source on a real standalone cluster: one master and two workers, started from the installed pyspark.

The workers are processes of their own, with their own interpreter, and find the package where its wheel was
installed, not in the sources; so what only works inside the driver, or is missing in the wheel, fails here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from brokerweave.lab.broker import HOST, free_port
from brokerweave.pipeline.spark.java import java_environment
from tests.support.edgelogs import Site, numbered
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent / "bin"
JOB = """
import json, os, sys
from brokerweave.pipeline.spark.session import open_session

master, nodes, checkpoint = sys.argv[1:]
spark = open_session(master, "cluster-test", {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m", "spark.cores.max": "2", "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
})
def place(_):
    import brokerweave
    yield brokerweave.__file__
places = spark.sparkContext.parallelize(range(8), 8).mapPartitions(place).distinct().collect()
seen = []
def keep(batch, number):
    seen.extend(int(row["payload"]) for row in batch.collect())
options = {"nodes": nodes, "rowsPerPartition": 100, "reader": "lake"}
stream = spark.readStream.format("brokerweave").options(**options).load()
query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print("RESULT", json.dumps({"rows": sorted(seen), "executors": executors, "places": places}))
spark.stop()
"""


@contextmanager
def cluster(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A master and two workers of one core each; the master's address."""
    environment = {
        **environment,
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        command = [str(SPARK / "spark-class"), *arguments]
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


def installed_wheel(folder: Path) -> Path:
    """Where our wheel, built for this, is installed: alone, its dependencies are the interpreter's."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)],
        check=True,
        timeout=200,
    )
    (wheel,) = folder.glob("brokerweave-*.whl")
    place = folder / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(place), str(wheel)], check=True, timeout=60)
    return place


def test_a_job_given_to_a_cluster_by_spark_submit_is_read_by_its_workers(tmp_path: Path) -> None:
    package = installed_wheel(tmp_path)
    environment = {
        **os.environ,
        **java_environment(os.environ),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(package),
    }
    with Site(tmp_path / "one", "one") as one, Site(tmp_path / "two", "two") as two:
        one.write(numbered(0, 1000))
        two.write(numbered(1000, 500))
        job = tmp_path / "job.py"
        job.write_text(JOB)
        with cluster(tmp_path, environment) as master:
            nodes = f"{one.address},{two.address}"
            submit = [str(SPARK / "spark-submit"), "--master", master, str(job)]
            told = subprocess.run(
                [*submit, master, nodes, str(tmp_path / "checkpoint")],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
                env=environment,
                cwd=tmp_path,
            )
    assert "RESULT" in told.stdout, told.stderr[-4000:]
    result = json.loads(told.stdout.split("RESULT", 1)[1].splitlines()[0])
    assert result["rows"] == list(range(1500))
    assert result["executors"] == 2
    assert result["places"] == [str(package / "brokerweave" / "__init__.py")]
