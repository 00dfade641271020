"""Rows back to MQTT, through a node and a real Mosquitto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from brokerweave.errors import ConfigError, Unavailable
from brokerweave.lab.broker import free_port
from brokerweave.lab.node import LabNode
from brokerweave.pipeline.sinks.mqtt import MqttSink
from tests.integration.conftest import Connect, connect
from tests.support.sites import start_broker
from tests.support.waiting import wait_until

__all__ = ["connect"]

ALERTS = "sensor string, mean double, at timestamp"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[LabNode, LabNode]]:
    """Two sites that are linked."""
    with (
        start_broker("mosquitto", acl="topic readwrite #\ntopic deny denied/#\n") as one,
        start_broker("mosquitto") as other,
        LabNode("a", one.port) as a,
        LabNode("b", other.port, (a,)) as b,
    ):
        b.wait_for_links(1)
        yield a, b


def test_each_row_reaches_subscribers_at_any_site_with_its_batch_and_row(
    spark: SparkSession, nodes: tuple[LabNode, LabNode], connect: Connect
) -> None:
    subscribers = [connect(node.port, f"dash-{node.id}") for node in nodes]
    for subscriber in subscribers:
        subscriber.subscribe("alerts/#", qos=1)
    count = 250
    rows = spark.createDataFrame([(f"s{n:03}", n / 2, NOON) for n in range(count)], ALERTS).repartition(3)
    sink = MqttSink("127.0.0.1", nodes[0].port, "alerts/{sensor}/mean")
    assert sink.write(rows, "gold-1", 4).rows == count
    for subscriber in subscribers:
        wait_until(lambda found=subscriber.received: len(found) == count, "all alerts")  # type: ignore[misc]
    assert sink.write(rows, "gold-1", 4).rows == count
    for subscriber in subscribers:
        wait_until(lambda found=subscriber.received: len(found) == 2 * count, "them again")  # type: ignore[misc]
        messages = {(each.topic, each.payload) for each in subscriber.received}
        assert len(messages) == count, "a repetition is the same, byte for byte"
        payload = dict(messages)["alerts/s007/mean"]
        assert {each.qos for each in subscriber.received} == {1}
        said = json.loads(payload)
        assert (said["mean"], said["batch"], said["row"]) == (3.5, "gold-1/4", 7)
        assert said["at"].startswith("2026-01-02T12:00:00")


def test_an_empty_batch_needs_no_broker(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([], ALERTS)
    assert MqttSink("127.0.0.1", free_port(), "alerts").write(nothing, "q", 0).rows == 0


def test_a_batch_is_not_done_while_nobody_is_there_to_acknowledge_it(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("s", 1.0, NOON)], ALERTS)
    with pytest.raises(Unavailable, match="cannot reach a broker"):
        MqttSink("127.0.0.1", free_port(), "alerts").write(rows, "q", 0)


def test_a_message_that_the_broker_refuses_fails_the_batch(
    spark: SparkSession, nodes: tuple[LabNode, LabNode]
) -> None:
    rows = spark.createDataFrame([("s", 1.0, NOON)], ALERTS)
    with pytest.raises(Unavailable, match=r"refuses what is published to denied/s: 0x87"):
        MqttSink("127.0.0.1", nodes[0].port, "denied/{sensor}").write(rows, "q", 0)


def test_a_topic_with_an_unknown_column_is_a_mistake_of_the_configuration(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("s", 1.0, NOON)], ALERTS)
    with pytest.raises(ConfigError, match="no column site"):
        MqttSink("127.0.0.1", 1, "{site}/alerts").write(rows, "q", 0)
