"""The Delta sink: each batch is in the table once, at whatever step the driver is killed."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from brokerweave.edgelog.arrow import SCHEMA
from brokerweave.errors import ConfigError
from brokerweave.pipeline.lake import durable
from brokerweave.pipeline.lake.compaction import compact
from brokerweave.pipeline.lake.delta_compaction import compact_delta
from brokerweave.pipeline.sinks import Written
from brokerweave.pipeline.sinks.delta import DeltaSink, table_schema
from brokerweave.pipeline.sinks.parquet import ParquetSink
from brokerweave.pipeline.sinks.staging import Layout
from tests.pipeline.killing import killed_at_every_step, recovered
from tests.pipeline.lake import Row, rows, seen, staged, visible
from tests.pipeline.test_parquet_sink import frame
from tests.pipeline.test_publishing import QUERY, expected
from tests.support.verdicts import all_arrived, once_each

SCENARIO = "tests.pipeline.test_delta_sink:two_batches"


def publish(folder: Path, batch_id: int, *parts: Iterable[int], days: int = 2, query: str = QUERY) -> Written:
    return DeltaSink(folder).publish(
        query,
        batch_id,
        table_schema(Schema.from_arrow(SCHEMA).to_json(), Layout()),
        lambda place: staged(place, [rows(part, days=days) for part in parts]),
    )


def by_delta(folder: Path) -> list[Row]:
    if not DeltaTable.is_deltatable(str(folder)):
        return []
    table = DeltaTable(str(folder)).to_pyarrow_table(columns=["topic", "sequence"])
    return sorted(zip(table["topic"].to_pylist(), table["sequence"].to_pylist(), strict=True))


def two_batches(folder: Path) -> None:
    again = (folder / "t" / "_delta_log").exists()
    for batch_id in range(2):
        if batch_id < _next(folder):
            continue
        first = 10 * batch_id
        cuts = (first, first + 10) if again else (first, first + 3, first + 10)
        publish(folder / "t", batch_id, *(range(low, high) for low, high in itertools.pairwise(cuts)))
        durable.step(f"before Spark commits {batch_id}")
        (folder / "spark-commits").write_text(str(batch_id))
        durable.step(f"after Spark commits {batch_id}")


def _next(folder: Path) -> int:
    mark = folder / "spark-commits"
    return int(mark.read_text()) + 1 if mark.exists() else 0


def test_a_batch_is_exact_for_delta_and_for_plain_readers_wherever_the_driver_is_killed(
    tmp_path: Path,
) -> None:
    left = killed_at_every_step(SCENARIO, tmp_path)
    assert sum(name == "after the Delta commit" for name, _ in left) == 2
    for name, folder in left:
        for found in (by_delta(folder / "t"), seen(folder / "t")):
            once_each(found, list(set(found)), f"a kill {name}")
            all_arrived(found, expected(range(10 * _next(folder))), f"a kill {name}")
    recovered(SCENARIO, tmp_path)
    for name, folder in left:
        assert by_delta(folder / "t") == expected(range(20)), f"not recovered from a kill {name}"
        assert seen(folder / "t") == expected(range(20)), f"not recovered from a kill {name}"


def test_delta_itself_accepts_a_stale_transaction_which_is_why_the_sink_checks(tmp_path: Path) -> None:
    once = pa.table({"topic": ["a/b"], "sequence": [1]})
    for version in (5, 5, 3):
        known = CommitProperties(app_transactions=[Transaction("q", version)])
        write_deltalake(tmp_path / "bare", once, mode="append", commit_properties=known)
    assert len(by_delta(tmp_path / "bare")) == 3
    for _ in range(2):
        publish(tmp_path / "ours", 5, [1])
    assert by_delta(tmp_path / "ours") == expected([1])


def test_delta_refuses_the_slower_of_two_commits_with_the_same_transaction(tmp_path: Path) -> None:
    publish(tmp_path, 0, [1])
    tables = [DeltaTable(str(tmp_path)) for _ in range(2)]
    same = CommitProperties(app_transactions=[Transaction(QUERY, 1)])
    tables[0].create_write_transaction([], "append", tables[0].schema(), ["date"], commit_properties=same)
    with pytest.raises(CommitFailedError):
        tables[1].create_write_transaction([], "append", tables[1].schema(), ["date"], commit_properties=same)


def test_a_replay_adds_nothing_also_without_the_notes_of_the_folder(tmp_path: Path) -> None:
    publish(tmp_path, 0, range(10))
    publish(tmp_path, 1, range(10, 20))
    assert publish(tmp_path, 1, range(10, 20)).replayed
    shutil.rmtree(tmp_path / "_commits")
    assert publish(tmp_path, 1, range(10, 20)).replayed
    assert by_delta(tmp_path) == expected(range(20))
    with pytest.raises(ConfigError, match="give the query a new name"):
        publish(tmp_path, 0, range(10))


def test_two_queries_write_one_table(tmp_path: Path) -> None:
    for batch in range(2):
        publish(tmp_path, batch, [batch], query="north")
        publish(tmp_path, batch, [10 + batch], query="south")
    assert by_delta(tmp_path) == expected([0, 1, 10, 11])


def test_parquet_and_delta_do_not_share_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    ParquetSink(tmp_path / "plain").write(frame(spark, range(3)), "q", 0)
    with pytest.raises(ConfigError, match="plain Parquet"):
        DeltaSink(tmp_path / "plain").write(frame(spark, range(3)), "q", 0)
    DeltaSink(tmp_path / "delta").write(frame(spark, range(3)), "q", 0)
    with pytest.raises(ConfigError, match="is a Delta table"):
        ParquetSink(tmp_path / "delta").write(frame(spark, range(3)), "q", 1)


def test_spark_rows_arrive_with_every_column_and_value(spark: SparkSession, tmp_path: Path) -> None:
    assert DeltaSink(tmp_path).write(frame(spark, range(20), days=2), "q", 0).rows == 20
    table = DeltaTable(str(tmp_path))
    assert table.metadata().partition_columns == ["date"]
    stored = table.to_pyarrow_table(columns=SCHEMA.names).cast(SCHEMA).sort_by("sequence")
    assert stored.to_pylist() == rows(range(20), days=2).to_pylist()
    assert DeltaTable(str(tmp_path)).count() == 20


def test_a_batch_with_other_columns_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    DeltaSink(tmp_path).write(frame(spark, range(3)), "q", 0)
    other = frame(spark, range(3)).selectExpr("* except (qos)", "string(qos) as qos")
    with pytest.raises(ConfigError, match="differ in column qos"):
        DeltaSink(tmp_path).write(other, "q", 1)


def test_optimize_and_vacuum_keep_the_rows_and_what_a_stream_has_not_read(tmp_path: Path) -> None:
    for batch in range(4):
        publish(tmp_path / "t", batch, range(10 * batch, 10 * batch + 10), days=1)
    files = sorted(tmp_path / "t" / path for path in visible(tmp_path / "t"))
    done = compact(tmp_path / "t", min_files=2)
    assert (done.files_before, done.files_after) == (4, 1)
    assert all(file.exists() for file in files), "readers of the version before still need them"

    waiting = compact_delta(
        tmp_path / "t", [files[:3], files], fold=None, sort_by=(), min_files=2, keep_hours=0
    ).waiting
    assert waiting == 1
    assert [file.exists() for file in files] == [False, False, False, True]
    assert by_delta(tmp_path / "t") == expected(range(40))
    publish(tmp_path / "t", 4, range(40, 50))
    assert by_delta(tmp_path / "t") == expected(range(50))


def newest(table: pa.Table) -> pa.Table:
    order = table.sort_by("sequence")
    return order.slice(order.num_rows - 1)


def folded(folder: Path) -> None:
    if not folder.exists():
        hook, durable.at_step = durable.at_step, None
        for batch in range(3):
            publish(folder / "t", batch, range(10 * batch, 10 * batch + 10), days=1)
        durable.at_step = hook
    compact(folder / "t", fold=newest, min_files=2)


def test_a_fold_takes_the_place_of_its_files_in_one_commit_wherever_it_is_killed(tmp_path: Path) -> None:
    scenario = "tests.pipeline.test_delta_sink:folded"
    left = killed_at_every_step(scenario, tmp_path)
    for name, folder in left:
        assert by_delta(folder / "t") in (expected(range(30)), expected([29])), f"after a kill {name}"
    recovered(scenario, tmp_path)
    for name, folder in left:
        assert by_delta(folder / "t") == expected([29]), f"not recovered from a kill {name}"
        assert DeltaTable(str(folder / "t")).count() == 1
