"""What nodes said of themselves, as tables and plots."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from brokerweave.errors import Unavailable
from brokerweave.lab.broker import free_port
from brokerweave.lab.node import LabNode
from brokerweave.pipeline import telemetry
from tests.support.sites import start_broker
from tests.support.waiting import LIMIT

Said = dict[str, Any]


def said(node: str, time: float, messages: int, *, start: int = 1, **others: Any) -> Said:
    return {
        "v": 1,
        "node": node,
        "time": time,
        "start": start,
        "strategy": "sf",
        "messages_in": messages,
        "messages_out": 3 * messages,
        "bytes_in": 100 * messages,
        "bytes_out": 300 * messages,
        "sessions": 4,
        "filters": 2,
        "subscribers": 3,
        "topics": 7,
        "roles": {"coordinator": 2, "shadow": 5},
        "timed": messages,
        "latency_seconds": messages / 50,
        "links_up": 1,
        "drops": 0,
        "backlog_messages": 0,
        "lag_seconds": 0.0,
        "cpu_seconds": time / 10,
        "memory_bytes": 50_000_000,
        **others,
    }


def rows(spark: SparkSession, messages: Iterable[Said | bytes]) -> DataFrame:
    found = [
        ("brokerweave/telemetry/x", each if isinstance(each, bytes) else json.dumps(each).encode())
        for each in messages
    ]
    return spark.createDataFrame(found, "topic string, payload binary")


def test_each_node_has_a_row_with_its_totals_and_mean_rates_and_the_cluster_their_sums(
    spark: SparkSession, tmp_path: Path
) -> None:
    messages: list[Said | bytes] = [said("a", 100 + n, 50 * n) for n in range(0, 21, 2)]
    messages += [
        said("b", 100.5 + n, 10 * n, memory_bytes=70_000_000, latency_seconds=2.6 * n)
        for n in range(0, 21, 2)
    ]
    messages += [b"no telemetry", b'{"other": 1}']
    found = telemetry.tables(rows(spark, messages), seconds=10.0)
    a, b = (row.asDict() for row in found.nodes.collect())
    assert (a["node"], a["messages_in"], a["samples"], a["starts"]) == ("a", 1000, 11, 1)
    assert (a["messages_in_rate"], a["bytes_out_rate"]) == pytest.approx((50, 15_000))
    assert a["cpu"] == pytest.approx(0.1)
    assert (b["messages_in_rate"], b["latency"]) == pytest.approx((10, 0.26))
    assert (a["latency"], a["subscribers"], a["topics"]) == (pytest.approx(0.02), 3, 7)
    assert json.loads(a["roles"]) == {"coordinator": 2, "shadow": 5}
    total, average = (row.asDict() for row in found.cluster.collect())
    assert (total["cluster"], total["nodes"]) == ("total", 2)
    assert (total["messages_in"], total["messages_in_rate"]) == pytest.approx((1200, 60))
    assert (average["cluster"], average["memory_bytes"]) == ("average", 60_000_000)
    assert total["latency"] == average["latency"] == pytest.approx(0.06), "by messages, not by nodes"
    assert total["subscribers"] == 6
    assert found.unreadable == 2
    over_time = found.over_time.collect()
    assert [(row["node"], row["from"]) for row in over_time if row["node"] == "a"] == [
        ("a", 100),
        ("a", 110),
        ("a", 120),
    ]
    assert all(row["messages_in_rate"] == pytest.approx(50) for row in over_time if row["node"] == "a")

    written = {path.name for path in telemetry.write(found, tmp_path / "out")}
    tables = {"nodes.csv", "cluster.csv", "over_time.csv"}
    assert written == tables | {"messages.svg", "bytes.svg", "latency.svg", "cpu.svg", "memory.svg"}
    with (tmp_path / "out" / "nodes.csv").open() as file:
        assert [row["messages_in"] for row in csv.DictReader(file)] == ["1000", "200"]
    svg = ElementTree.parse(tmp_path / "out" / "messages.svg").getroot()
    assert len(svg.findall("{http://www.w3.org/2000/svg}circle")) == len(over_time)


def test_a_restart_and_a_repeated_message_never_make_a_wrong_rate(spark: SparkSession) -> None:
    messages = [said("a", 100, 1000), said("a", 110, 2000), said("a", 110, 2000)]
    messages += [said("a", 120, 10, start=2), said("a", 130, 1010, start=2)]
    (row,) = telemetry.tables(rows(spark, messages)).nodes.collect()
    assert row["starts"] == 2
    assert row["samples"] == 4
    assert row["messages_in"] == 1010, "since its last start"
    assert row["messages_in_rate"] == pytest.approx(100)
    assert row["messages_in_peak"] == pytest.approx(100)


def test_a_lost_message_costs_no_messages(spark: SparkSession) -> None:
    (row,) = telemetry.tables(rows(spark, [said("a", 100, 0), said("a", 130, 300)])).nodes.collect()
    assert row["messages_in_rate"] == pytest.approx(10)


def test_in_a_lake_telemetry_is_found_by_its_filter(spark: SparkSession) -> None:
    topics = ["brokerweave/telemetry/a", "brokerweave/telemetry", "brokerweave/telemetryx/a", "s/1"]
    bronze = spark.createDataFrame([(topic,) for topic in topics], "topic string")

    def found(topic: str) -> list[str]:
        return [row["topic"] for row in telemetry.in_lake(bronze, topic).collect()]

    assert found(telemetry.TOPIC) == topics[:2]
    assert found("brokerweave/+/a") == ["brokerweave/telemetry/a", "brokerweave/telemetryx/a"]
    assert found("s/1") == ["s/1"]


def test_a_lake_without_bronze_is_said_to_be_one(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no Parquet files of bronze"):
        telemetry.from_lake(spark, tmp_path)


def test_in_a_lake_all_of_bronze_is_looked_through(spark: SparkSession, tmp_path: Path) -> None:
    for day, time in (("2026-01-01", 100), ("2026-01-02", 200)):
        folder = tmp_path / "bronze" / f"date={day}"
        folder.mkdir(parents=True)
        found = rows(spark, [said("a", time, 10 * time)]).toArrow()
        pq.write_table(found, folder / "batch-q-0-0.parquet")
    (row,) = telemetry.tables(telemetry.from_lake(spark, tmp_path)).nodes.collect()
    assert (row["samples"], row["messages_in"]) == (2, 2000)


def test_what_a_running_node_says_of_itself_is_read_from_its_log(spark: SparkSession) -> None:
    port = free_port()
    settings: dict[str, dict[str, Any]] = {
        "telemetry": {"interval": 0.1},
        "edge_log": {"fsync": "never"},
        "flight": {"listen": f"127.0.0.1:{port}"},
    }
    with (
        start_broker("mosquitto") as broker,
        LabNode("a", broker.port, settings=settings, taps=(telemetry.TOPIC,)) as node,
    ):
        node.wait_for(lambda status: status["flight"]["state"] == "running", "the Flight service", LIMIT)
        node.wait_for(lambda status: status["counters"]["edge_log_recorded"] >= 10, "ten messages", LIMIT)
        found = telemetry.tables(telemetry.from_nodes(spark, f"grpc://127.0.0.1:{port}"))
        (row,) = found.nodes.collect()
    assert found.unreadable == 0
    assert row["node"] == "a"
    assert row["samples"] >= 10
    assert row["sessions"] == 1, "its own"
    assert row["messages_in_rate"] > 0
    assert row["topics"] == 1, "its own"
    assert row["latency"] is None, "nothing comes from other sites"
    assert row["cpu"] > 0
