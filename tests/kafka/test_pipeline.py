"""Spark and a real Kafka: what nodes fed is read back as their logs have it; batches go into Kafka once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from brokerweave.edgelog.arrow import SCHEMA, batch
from brokerweave.edgelog.reader import LogReader
from brokerweave.lab.kafka import Kafka
from brokerweave.lab.makers import tools
from brokerweave.pipeline import kafka as source
from brokerweave.pipeline.sinks.kafka import KafkaSink
from brokerweave.pipeline.spark.session import open_session
from tests.integration.conftest import Connect
from tests.kafka.test_feeding import feeding, wait_until_fed
from tests.support.kafka import everything

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    jars = tools() / "spark-kafka"
    if not (jars / "VERSION").exists():
        pytest.skip("Spark's connector is not installed (scripts/install-brokers spark-kafka)")
    settings = {"spark.driver.memory": "1g", "spark.log.level": "ERROR", **source.connector(jars)}
    session = open_session("local[2]", "brokerweave-kafka-tests", settings)
    yield session
    session.stop()


def test_what_a_node_fed_is_read_as_its_log_has_it_and_streamed_once(
    kafka: Kafka, connect: Connect, spark: SparkSession, tmp_path: Path
) -> None:
    with feeding(kafka, "rows.{1}") as node:
        client = connect(node.port, "sensor", version=5)
        for number in range(50):
            client.publish(
                f"s/{number % 7}", b"%d" % number, qos=number % 2, UserProperty=[("n", str(number))]
            )
        client.publish("s/bytes", bytes(range(256)), qos=1, retain=True)
        client.publish("s/empty", b"", qos=1)
        wait_until_fed(node, 52)
        log = LogReader(Path(node.status()["edge_log"]["path"]))
        wanted = batch(log.identity(), log.blocks()).to_pylist()
    frame = source.read_batch(spark, kafka.address, ["rows.s"])
    assert frame.columns == SCHEMA.names
    assert frame.schema.simpleString() == from_arrow_schema(SCHEMA).simpleString()
    table = frame.toArrow().select(SCHEMA.names).cast(SCHEMA)
    assert sorted(table.to_pylist(), key=lambda row: row["sequence"]) == wanted

    streamed: list[int] = []
    for _ in range(2):  # the second finds nothing new in its checkpoint
        query = (
            source.read_stream(spark, kafka.address, r"rows\..*", rows_per_batch=20)
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .foreachBatch(lambda rows, _: streamed.extend(row.sequence for row in rows.collect()))
            .start()
        )
        assert query.awaitTermination(120)
    assert sorted(streamed) == [row["sequence"] for row in wanted]


def test_a_batch_that_is_handed_over_again_is_in_kafka_once(kafka: Kafka, spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("s/1", 1.5, None), ("s/2", 2.5, "x")], "topic string, mean double, note string"
    )
    sink = KafkaSink(kafka.address, "gold", key="topic")
    first = sink.write(rows, "gold-1", 0)
    assert (first.rows, first.replayed) == (2, False)
    assert sink.write(rows, "gold-1", 0).replayed
    assert not sink.write(rows, "gold-1", 1).replayed
    assert not sink.write(rows, "gold-2", 0).replayed, "another checkpoint has batches of its own"
    found = everything(kafka.address, "gold")
    assert Counter((each.headers["query"], each.headers["batch"]) for each in found) == {
        ("gold-1", "0"): 2,
        ("gold-1", "1"): 2,
        ("gold-2", "0"): 2,
    }
    values = {each.key: json.loads(each.value) for each in found}
    assert values["s/1"] == {"topic": "s/1", "mean": 1.5, "note": None}
