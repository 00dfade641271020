"""Rows as Kafka records."""

from __future__ import annotations

import json

import pytest

from brokerweave.edgelog.folder import LogIdentity
from brokerweave.edgelog.rows import LogRow
from brokerweave.errors import ConfigError
from brokerweave.kafka.records import TopicPattern, maker

ROW = LogRow(3, 7, 1_700_000_000_123_456, "c", "s/1/t", b"x", 1, False, True, 9, (("unit", "C"),))


def make(pattern: str, row: LogRow = ROW) -> tuple[str, bytes, bytes]:
    identity = LogIdentity("0" * 32, "north", 3, 8)
    record = maker(identity, TopicPattern(pattern, "north"))(row)
    assert record.position == row.position
    headers = dict(record.headers)
    assert (headers["epoch"], headers["sequence"], headers["dup"]) == (b"3", b"7", b"true")
    assert json.loads(headers["properties"] or "") == [{"key": "unit", "value": "C"}]
    assert (record.timestamp, headers["received"]) == (1_700_000_000_123, b"1700000000123456")
    return record.topic, record.key, record.value


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [
        ("mqtt", "mqtt"),
        ("mqtt.{node}", "mqtt.north"),
        ("{1}-{2}", "s-1"),
        ("all.{4}", "all._"),
        ("{node}.{1}.{3}", "north.s.t"),
    ],
)
def test_a_pattern_names_the_topic_by_node_and_levels(pattern: str, topic: str) -> None:
    assert make(pattern) == (topic, b"s/1/t", b"x")


@pytest.mark.parametrize(
    ("mqtt_topic", "topic"),
    [("ä b/c", "x.__b"), ("/c", "x._"), ("n" * 300, "x." + "n" * 247), ("..", "x...")],
)
def test_a_topic_is_always_one_that_kafka_takes(mqtt_topic: str, topic: str) -> None:
    assert TopicPattern("x.{1}", "n").topic(mqtt_topic) == topic
    assert TopicPattern("{1}", "n").topic("..") == "_"


@pytest.mark.parametrize("pattern", ["", "a b", "{site}", "a/{1}", "{}"])
def test_a_pattern_that_kafka_would_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="a Kafka topic has"):
        TopicPattern(pattern, "n")
