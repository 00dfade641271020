"""A real Spark stream reads a table while it is compacted: it reads each row once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from brokerweave.pipeline.lake.compaction import compact
from brokerweave.pipeline.lake.consumed import consumed
from tests.pipeline.lake import seen, visible
from tests.pipeline.test_parquet_sink import DDL
from tests.pipeline.test_publishing import expected, publish


@pytest.fixture(autouse=True)
def _spark_puts_its_lists_together_often(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.streaming.fileSource.log.compactInterval"
    spark.conf.set(name, "2")
    yield
    spark.conf.unset(name)


def read_all(spark: SparkSession, table: Path, checkpoint: Path) -> list[int]:
    """The sequences that the stream reads now."""
    found: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend(row.sequence for row in batch.select("sequence").collect())

    rows = spark.readStream.schema(f"{DDL}, date date").option("pathGlobFilter", "batch-*")
    query = (
        rows.option("maxFilesPerTrigger", 3)
        .parquet(str(table))
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return sorted(found)


def test_a_stream_reads_each_row_once_while_its_table_is_compacted(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, checkpoint = tmp_path / "my table", tmp_path / "checkpoint"
    for batch in range(4):
        publish(table, batch, range(10 * batch, 10 * batch + 10))
    assert read_all(spark, table, checkpoint) == list(range(40))
    assert consumed(checkpoint) == {table / path for path in visible(table)}
    publish(table, 4, range(40, 50))

    done = compact(table, [checkpoint], min_files=2)
    assert (done.files_before, done.waiting) == (8, 2)
    assert len(list(table.rglob("batch-*.parquet"))) == 2, "what Spark lists stays short"
    assert read_all(spark, table, checkpoint) == list(range(40, 50))
    publish(table, 5, range(50, 60))
    compact(table, [checkpoint], min_files=2)
    assert read_all(spark, table, checkpoint) == list(range(50, 60))
    assert seen(table) == expected(range(60))


def test_a_batch_that_the_stream_has_planned_but_not_done_keeps_its_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, checkpoint = tmp_path / "t", tmp_path / "checkpoint"
    for batch in range(4):
        publish(table, batch, range(10 * batch, 10 * batch + 10))
    assert read_all(spark, table, checkpoint) == list(range(40))
    # As a driver leaves it that dies before it commits the last batch.
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for path in (checkpoint / "commits" / str(last), checkpoint / "commits" / f".{last}.crc"):
        path.unlink(missing_ok=True)
    done = compact(table, [checkpoint], min_files=2)
    assert done.waiting == 2
    again = read_all(spark, table, checkpoint)
    assert 0 < len(again) < 20
    assert seen(table) == expected(range(40))
