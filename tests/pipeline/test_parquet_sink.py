"""The Parquet sink in a real Spark session."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from brokerweave.edgelog.arrow import SCHEMA
from brokerweave.errors import ConfigError
from brokerweave.pipeline.sinks.console import ConsoleSink
from brokerweave.pipeline.sinks.parquet import ParquetSink
from tests.pipeline.lake import rows, seen, visible

DDL = (
    "log_id string, epoch long, sequence long, site string, client string, topic string, payload binary, "
    "received timestamp, qos byte, retain boolean, dup boolean, packet_id int, "
    "properties array<struct<key:string,value:string>>, schema_version byte"
)


def frame(spark: SparkSession, numbers: range, *, days: int = 1, parts: int = 2) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([rows(numbers, days=days)]), DDL).repartition(parts)


def test_a_batch_keeps_every_column_and_value(spark: SparkSession, tmp_path: Path) -> None:
    written = ParquetSink(tmp_path).write(frame(spark, range(100), days=3), "q", 0)
    assert written.rows == 100
    assert written.size == sum((tmp_path / path).stat().st_size for path in visible(tmp_path))
    stored = pa.concat_tables(pq.ParquetFile(tmp_path / path).read() for path in visible(tmp_path))
    assert stored.schema.names == SCHEMA.names
    assert stored.schema.field("received").type == SCHEMA.field("received").type
    wanted = pa.Table.from_batches([rows(range(100), days=3)])
    assert stored.cast(SCHEMA).sort_by("sequence").to_pylist() == wanted.to_pylist()


def test_the_folder_is_the_day_in_utc_whatever_the_time_zone_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    try:
        ParquetSink(tmp_path).write(frame(spark, range(10), parts=1), "q", 0)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert visible(tmp_path) == {"date=2024-10-04/batch-q-0-0.parquet"}
    stored = pq.ParquetFile(tmp_path / "date=2024-10-04/batch-q-0-0.parquet").read()
    assert stored.schema.field("received").type == SCHEMA.field("received").type
    assert stored["received"].to_pylist() == rows(range(10))["received"].to_pylist()


def test_a_replay_cut_into_other_partitions_adds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    sink.write(frame(spark, range(50), days=2, parts=3), "q", 0)
    assert ParquetSink(tmp_path).write(frame(spark, range(50), days=2, parts=1), "q", 0).replayed
    assert seen(tmp_path) == [("a/b", number) for number in range(50)]


def test_folders_follow_any_columns_also_without_value(spark: SparkSession, tmp_path: Path) -> None:
    content = spark.createDataFrame(
        [("x/y", 1, "a b"), ("x/y", 2, None)], "topic string, sequence long, site string"
    )
    ParquetSink(tmp_path, partition_by=("site",)).write(content.coalesce(1), "q", 0)
    assert visible(tmp_path) == {
        "site=a%20b/batch-q-0-0.parquet",
        "site=__HIVE_DEFAULT_PARTITION__/batch-q-0-0.parquet",
    }
    assert seen(tmp_path) == [("x/y", 1), ("x/y", 2)]


def test_a_table_without_folders_is_possible(spark: SparkSession, tmp_path: Path) -> None:
    ParquetSink(tmp_path, partition_by=()).write(frame(spark, range(10), parts=1), "q", 0)
    assert visible(tmp_path) == {"batch-q-0-0.parquet"}


def test_a_column_that_is_not_there_is_told_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no column date"):
        ParquetSink(tmp_path).write(spark.range(3), "q", 0)
    assert not visible(tmp_path)


def test_a_failed_task_leaves_nothing_visible(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    broken = frame(spark, range(50)).selectExpr(
        "* except (epoch)", "if(sequence = 30, raise_error('no'), epoch) as epoch"
    )
    with pytest.raises(Exception, match="no"):
        sink.write(broken, "q", 0)
    assert not visible(tmp_path)
    sink.write(frame(spark, range(50)), "q", 0)
    assert seen(tmp_path) == [("a/b", number) for number in range(50)]
    assert not list((tmp_path / "_tmp").rglob("*.part"))


def test_the_console_shows_some_rows_and_lets_no_payload_steer_the_terminal(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    content = spark.createDataFrame(
        [("a", b"\x1b[2J"), ("b", b"x"), ("c", b"y")], "topic string, payload binary"
    )
    written = ConsoleSink(rows=2).write(content, "q", 4)
    shown = capsys.readouterr().out
    assert written.rows == 2
    assert "q batch 4: 2 rows, and more" in shown
    assert "\x1b" not in shown
