"""One run with every kind of fault, and its indexes, for all tests of indexes and reports."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from brokerweave import lab
from brokerweave.bench import spark_job
from brokerweave.bench.figures import Indexes
from brokerweave.bench.folder import RECEIVES, SENDS, EdgeServer, RunEvent, RunFolder, Times
from brokerweave.bench.load.driver import LoadTarget, measure
from brokerweave.bench.scenario import ClientGroup, Place, Scenario
from tests.support.bench_runs import BEGIN, SECOND, Recipe, write_log, write_run

CLEAN = Recipe("A sf")
FAULTY = Recipe("B sf", rate=600.0, lose=0.01, double=0.02, swap=0.02, late=0.05, seed=2)
OVER_LIMIT = Recipe("B sf", rate=900.0, limit=700.0, seed=3)
PAIRS = Recipe("pairs", topics=4, publishers=1, subscribers=1, l_clients=False, seed=4)
ONE_PAIR = Recipe("jitter", rate=10.0, topics=1, publishers=1, subscribers=1, l_clients=False)
KILLED = (RunEvent(BEGIN + 4 * SECOND // 10, "killed site1/broker"),)
SILENT = Recipe("D sf", outage_s=(0.4, 2.0), l_clients=False, seed=5, events=KILLED)
REAL = Scenario(
    "real load",
    (Place("a"),),
    (ClientGroup("a", "topic1", 4, 3), ClientGroup("a", "topic6", 1, 2, latency=True)),
    Times(0.3, 1, 0.2),
    interval=0.01,
    latency_interval=0.05,
)
REAL_PAIRS = Scenario(
    "real pairs",
    (Place("a"),),
    tuple(ClientGroup("a", f"pair{number}", 1, 1) for number in range(10)),
    Times(0.3, 1, 0.2),
    interval=0.02,
    qos=2,
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """One run for all, since a computation takes seconds, however little there is to compute."""
    path = tmp_path_factory.mktemp("run")
    folder = write_run(path, [CLEAN, FAULTY, OVER_LIMIT, PAIRS, SILENT, ONE_PAIR, ONE_PAIR])
    for number in (6, 7):
        for log in folder.folder_of(number).glob("*.arrow"):
            log.unlink()
    due = [BEGIN + 100_000_000 * each for each in range(10)]
    sends = [(1, n, 0, 0, at, at, 0, 1) for n, at in enumerate(due)]
    receives = [(2, 1, n, 0, 0, at + 1_000_000 + (30_000_000 if n == 3 else 0)) for n, at in enumerate(due)]
    write_log(folder.folder_of(6) / "sends-0.arrow", SENDS, sends)
    write_log(folder.folder_of(6) / "receives-0.arrow", RECEIVES, receives)
    with lab.start("mosquitto") as broker:
        target = LoadTarget(
            {"a": (broker.host, broker.port)}, (EdgeServer("a", None, {"broker": broker.pid}),)
        )
        for scenario in (REAL, REAL_PAIRS):
            measure(scenario, target, folder)
    return folder


@pytest.fixture(scope="session")
def computed(spark: SparkSession, folder: RunFolder) -> list[Indexes]:
    return spark_job.compute(spark, folder)
