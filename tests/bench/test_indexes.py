"""What Spark computes from a run's logs is what was counted, delivery by delivery, when they were made."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from brokerweave.bench import figures, spark_job
from brokerweave.bench.figures import Indexes
from brokerweave.bench.folder import RunFolder
from brokerweave.errors import ConfigError
from tests.support.bench_runs import Recipe, truth, write_run

WITHIN = 0.001
pytestmark = pytest.mark.timeout(900)


def test_every_quick_counter_agrees_with_spark_within_a_thousandth(
    computed: list[Indexes], folder: RunFolder
) -> None:
    """Of five measurements that never ran, with faults, and of two by the load tool on a real broker."""
    pairs = [each for each in zip(computed, truth(folder), strict=True) if each[0].name != "jitter"]
    assert [found.name for found, _ in pairs[5:]] == ["real load", "real pairs"]
    for found, counted in pairs:
        latency = {
            f"latency_{name}_ms": getattr(found.latency, name) for name in ("mean", "p50", "p99", "worst")
        }
        same = asdict(found) | latency
        for name, value in asdict(counted).items():
            assert same[name] == pytest.approx(value, rel=WITHIN), (found.name, name)


def test_faults_are_seen_where_they_were_made_and_nowhere_else(
    computed: list[Indexes], folder: RunFolder
) -> None:
    clean, faulty, over, pairs, *_ = computed
    for each in (clean, over, pairs):
        assert (each.lost, each.doubled, each.disordered, each.late_sends) == (0, 0, 0, 0)
    assert min(faulty.lost, faulty.doubled, faulty.disordered, faulty.late_sends) > 0
    assert all((each.surplus, each.strays) == (0, 0) for each in computed)


def test_definition_1_tells_what_is_over_the_limit(computed: list[Indexes]) -> None:
    clean, _, over, pairs, *_ = computed
    assert (clean.sp_ratio, pairs.sp_ratio) == (2.0, 1.0)
    assert clean.under_limit
    assert not over.under_limit
    assert over.delivered == pytest.approx(700 / 900, rel=0.05)


def test_jitter_is_what_equation_5_3_makes_of_the_receives(computed: list[Indexes]) -> None:
    """One message each 100 ms; the fourth comes 30 ms late: off by 30 once, and by 30 again after it."""
    found = computed[5]
    assert found.jitter.count == 9
    assert (found.jitter.least, found.jitter.worst) == (0.0, 30.0)
    assert found.jitter.mean == pytest.approx(60 / 9)
    assert found.latency.worst == 31.0


def test_a_second_without_any_delivery_is_the_least(computed: list[Indexes]) -> None:
    clean, silent = computed[0], computed[4]
    assert silent.egress_least == 0
    assert 0 < clean.egress_least <= clean.egress_per_s
    assert silent.latency.worst > 1000


def test_what_others_used_is_what_the_machine_used_beyond_our_processes(computed: list[Indexes]) -> None:
    usage = {each.role: each for each in computed[0].usage}
    assert set(usage) == {"machine", "site1/broker", "site1/node", "load/0"}
    assert usage["site1/broker"].cpu == pytest.approx(0.1)
    assert computed[0].noise == pytest.approx(0.02)


def test_tables_are_partitioned_by_measurement_and_hold_what_was_counted(
    computed: list[Indexes], folder: RunFolder
) -> None:
    latencies = pq.read_table(figures.table(folder, "latencies")).to_pandas()
    counts = latencies.groupby("measurement", observed=True)["count"].sum()
    assert [counts.get(each.id, 0) for each in computed] == [each.latency.count for each in computed]
    timeline = pq.read_table(figures.table(folder, "timeline"), filters=[("measurement", "=", 1)]).to_pandas()
    inside = timeline[(timeline["bin"] >= 0) & (timeline["bin"] < 20)]
    assert inside["egress"].sum() == computed[0].received


def test_what_was_computed_comes_back_and_nothing_is_computed_of_nothing(
    computed: list[Indexes], folder: RunFolder, spark: SparkSession, tmp_path: Path
) -> None:
    assert figures.read(folder) == computed
    assert figures.up_to_date(folder)
    with pytest.raises(ConfigError, match="no measurement"):
        spark_job.compute(spark, RunFolder(tmp_path))


def test_nothing_is_left_of_an_earlier_computation(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_run(tmp_path, [Recipe(rate=20.0)])
    earlier = figures.table(folder, "timeline") / "measurement=2"
    earlier.mkdir(parents=True)
    spark_job.compute(spark, folder)
    assert [path.name for path in earlier.parent.iterdir()] == ["measurement=1"]
    assert {path.name for path in folder.indexes.iterdir()} == {"timeline", "latencies", "resources"}
    assert {path.name for path in tmp_path.iterdir()} == {
        "run.json",
        "measurements",
        "indexes",
        "indexes.json",
    }


def test_a_measurement_without_logs_has_nothing_rather_than_an_error(computed: list[Indexes]) -> None:
    found = computed[6]
    assert (found.sent, found.latency.count, found.noise) == (0, 0, None)
    assert not found.under_limit
