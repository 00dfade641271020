"""Spark's `format("brokerweave")` on a real Spark, against real Flight services.

Each query costs seconds, so what needs no Spark is tested in test_stream_reader.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from brokerweave.edgelog.arrow import SCHEMA
from tests.support.edgelogs import SECOND, Site, numbered

MOST_SECONDS = 90


@dataclass
class Run:
    """What one AvailableNow run of a query read."""

    batches: list[list[Row]] = field(default_factory=list)
    end: dict[str, list[int]] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    @property
    def payloads(self) -> list[bytes]:
        return sorted((bytes(row["payload"]) for row in self.rows), key=int)


class Query:
    """A query with its checkpoint, run again and again until it has read what there is."""

    def __init__(self, spark: SparkSession, folder: Path, *sites: Site, **options: object) -> None:
        self._spark = spark
        self._checkpoint = folder / "checkpoint"
        self.options = {"nodes": ",".join(site.address for site in sites), "nodeTimeout": "10"}
        self.options |= {name: str(value) for name, value in options.items()}

    def run(self) -> Run:
        found = Run()

        def keep(batch: DataFrame, number: int) -> None:
            found.batches.append(batch.collect())

        stream = self._spark.readStream.format("brokerweave").options(**self.options).load()
        query = (
            stream.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(MOST_SECONDS), "the query does not end"
        finally:
            query.stop()
        newest = max((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        found.end = json.loads(newest.read_text().splitlines()[2])
        return found


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[list[Site]]:
    """Two nodes' logs, served."""
    with ExitStack() as stack:
        yield [stack.enter_context(Site(tmp_path / name, name)) for name in ("one", "two")]


def test_every_row_comes_once_with_all_that_the_log_knows(
    spark: SparkSession, sites: list[Site], tmp_path: Path
) -> None:
    one, two = sites
    one.write(numbered(0, 300), "s/a", 5 * SECOND)
    one.restart_epoch()
    one.write(numbered(300, 200), "s/b", 6 * SECOND)
    two.write(numbered(500, 100), "s/c", 7 * SECOND)
    run = Query(spark, tmp_path, *sites, rowsPerPartition=150).run()
    assert run.payloads == numbered(0, 600)
    assert list(run.rows[0].asDict()) == SCHEMA.names
    (row,) = [row for row in run.rows if bytes(row["payload"]) == b"300"]
    assert (row["log_id"], row["epoch"], row["sequence"]) == (one.log_id, 2, 301)
    assert (row["site"], row["client"], row["topic"]) == ("one", "client", "s/b")
    assert row["received"].timestamp() == 6
    assert (row["qos"], row["retain"], row["dup"], row["properties"]) == (0, False, False, [])
    assert run.end == {one.log_id: [2, 500], two.log_id: [1, 100]}


def test_a_query_goes_on_where_its_checkpoint_is_and_takes_in_a_node_that_joined(
    spark: SparkSession, sites: list[Site], tmp_path: Path
) -> None:
    one, two = sites
    one.write(numbered(0, 10))
    assert Query(spark, tmp_path, one).run().payloads == numbered(0, 10)
    one.write(numbered(10, 5))
    two.write(numbered(15, 5))
    both = Query(spark, tmp_path, two, one)
    assert both.run().payloads == numbered(10, 10)
    assert both.run().rows == []


def test_a_batch_is_bounded_and_shared_fairly(spark: SparkSession, sites: list[Site], tmp_path: Path) -> None:
    one, two = sites
    one.write(numbered(0, 100))
    two.write(numbered(100, 10))
    run = Query(spark, tmp_path, *sites, maxRowsPerBatch=40).run()
    assert [len(batch) for batch in run.batches] == [40, 40, 30]
    assert sum(row["log_id"] == two.log_id for row in run.batches[0]) == 10
    assert run.payloads == numbered(0, 110)


def test_trimmed_rows_stop_the_query_or_are_counted(
    spark: SparkSession, sites: list[Site], tmp_path: Path
) -> None:
    one, _ = sites
    one.write(numbered(0, 3))
    query = Query(spark, tmp_path, one)
    query.run()
    one.write(numbered(3, 4))
    one.restart_epoch()
    one.write(numbered(7, 2))
    one.trim_oldest()
    with pytest.raises(PySparkException, match=r"4 rows after 1:3 .* were trimmed.* onTrimmed = skip"):
        query.run()
    query.options["onTrimmed"] = "skip"
    run = query.run()
    assert run.payloads == numbered(7, 2)
    assert run.end == {one.log_id: [2, 9, 4]}


def test_a_wrong_token_is_one_clear_line(spark: SparkSession, tmp_path: Path) -> None:
    with Site(tmp_path / "secret", token="right") as site:
        site.write(numbered(0, 3))
        with pytest.raises(PySparkException, match="wants another token than the one given"):
            Query(spark, tmp_path, site, token="wrong").run()
        assert Query(spark, tmp_path / "other", site, token="right").run().payloads == numbered(0, 3)
        file = tmp_path / "token"
        file.write_text("right\n")
        assert Query(spark, tmp_path / "file", site, tokenFile=file).run().payloads == numbered(0, 3)


def test_an_option_that_is_not_known_is_refused(spark: SparkSession, sites: list[Site]) -> None:
    with pytest.raises(PySparkException, match="there is no option startingoffset; known are"):
        spark.read.format("brokerweave").options(nodes=sites[0].address, startingOffset="latest").load()


def batch(spark: SparkSession, site: Site, **options: str) -> DataFrame:
    return spark.read.format("brokerweave").options(nodes=site.address, **options).load()


def payloads_of(frame: DataFrame) -> list[bytes]:
    return sorted((bytes(row["payload"]) for row in frame.collect()), key=int)


def test_a_batch_reads_a_range_of_positions_or_times(spark: SparkSession, sites: list[Site]) -> None:
    one, _ = sites
    one.write(numbered(0, 3), "a", 10 * SECOND)
    one.write(numbered(3, 3), "b", 20 * SECOND)
    one.write(numbered(6, 3), "c", 30 * SECOND)
    assert payloads_of(batch(spark, one)) == numbered(0, 9)
    times = batch(spark, one, startingTime="1970-01-01T00:00:20Z", endingTime="1970-01-01T00:00:30Z")
    assert payloads_of(times) == numbered(3, 3)
    positions = batch(
        spark, one, startingOffsets=f'{{"{one.log_id}": [1, 2]}}', endingOffsets=f'{{"{one.log_id}": [1, 7]}}'
    )
    assert payloads_of(positions) == numbered(2, 5)
    assert payloads_of(batch(spark, one, startingOffsets="latest")) == []


def test_a_batch_filters_topics_and_logs_like_spark_would(spark: SparkSession, sites: list[Site]) -> None:
    one, two = sites
    one.write(numbered(0, 3), "a/b")
    one.write(numbered(3, 3), "c")
    two.write(numbered(6, 3), "a/b")
    both = spark.read.format("brokerweave").option("nodes", f"{one.address},{two.address}").load()
    assert payloads_of(both.where("topic = 'a/b'")) == [*numbered(0, 3), *numbered(6, 3)]
    assert payloads_of(both.where("topic in ('c', 'd') and qos = 0")) == numbered(3, 3)
    assert payloads_of(both.where("topic = 'a/+'")) == []
    assert payloads_of(both.where(f"log_id = '{two.log_id}'")) == numbered(6, 3)


def test_a_batch_needs_all_nodes(spark: SparkSession, sites: list[Site]) -> None:
    one, two = sites
    two.stop()
    both = spark.read.format("brokerweave").option("nodes", f"{one.address},{two.address}").load()
    with pytest.raises(PySparkException, match=r"a batch needs all nodes: .*cannot be reached"):
        both.collect()


def test_a_log_that_nobody_serves_is_named(spark: SparkSession, sites: list[Site]) -> None:
    with pytest.raises(PySparkException, match=f"log {'f' * 32} is served by none of {sites[0].address}"):
        batch(spark, sites[0], startingOffsets=f'{{"{"f" * 32}": [1, 2]}}').collect()
