"""A node that feeds a real Kafka: what arrives, what a crash and an absence do."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from brokerweave.edgelog.reader import LogReader
from brokerweave.edgelog.readers import Readers
from brokerweave.edgelog.rows import LogRow, rows
from brokerweave.lab.kafka import Kafka
from brokerweave.lab.node import LabNode
from tests.integration.conftest import Connect
from tests.support.kafka import Found, everything, make_topic
from tests.support.publisher import StrictPublisher
from tests.support.sites import start_broker
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PATIENCE = 90.0


@contextmanager
def feeding(kafka: Kafka, topic: str, **further: object) -> Iterator[LabNode]:
    """A node with a tap on s/#, which feeds a topic."""
    settings: Mapping[str, Mapping[str, object]] = {
        "edge_log": {"fsync": "interval", "fsync_interval": 0.05},
        "kafka": {"servers": [kafka.address], "topic": topic, **further},
    }
    with (
        start_broker("mosquitto") as broker,
        LabNode("a", broker.port, settings=settings, taps=("s/#",)) as node,
    ):
        yield node
        assert "Traceback" not in node.log_tail(10_000)


def recorded(node: LabNode) -> list[LogRow]:
    folder = Path(node.status()["edge_log"]["path"])
    return [row for block in LogReader(folder).blocks() for row in rows(block)]


def wait_until_fed(node: LabNode, count: int) -> None:
    wait_until(lambda: len(recorded(node)) >= count, f"{count} rows in the log", PATIENCE)
    node.wait_for(lambda status: status["kafka"].get("lag") == 0, "Kafka has all rows", PATIENCE)


def positions(found: list[Found]) -> Counter[tuple[int, int]]:
    return Counter(tuple(each.position) for each in found)  # type: ignore[misc]


def test_what_is_recorded_arrives_in_kafka_keyed_by_topic_with_its_position(
    kafka: Kafka, connect: Connect
) -> None:
    with feeding(kafka, "feed.{node}") as node:
        client = connect(node.port, "sensor", version=5)
        client.publish("s/1/t", b"21.5", qos=1, UserProperty=[("unit", "C")])
        client.publish("s/2/t", b"", qos=0, retain=True)
        wait_until_fed(node, 2)
        found = sorted(everything(kafka.address, "feed.a"), key=lambda each: each.position)
        kept = recorded(node)
        folder = Path(node.status()["edge_log"]["path"])
        log_id = LogReader(folder).identity().log_id
        assert [(each.key, each.value) for each in found] == [("s/1/t", b"21.5"), ("s/2/t", b"")]
        assert [each.position for each in found] == [row.position for row in kept]
        assert found[0].headers == {
            "log_id": log_id,
            "site": "a",
            "schema_version": "1",
            "epoch": str(kept[0].epoch),
            "sequence": str(kept[0].sequence),
            "client": "sensor",
            "received": str(kept[0].received),
            "qos": "1",
            "retain": "false",
            "dup": "false",
            "packet_id": str(kept[0].packet_id),
            "properties": '[{"key": "unit", "value": "C"}]',
        }
        assert (found[1].headers["retain"], found[1].headers["qos"]) == ("true", "0")
        assert "properties" not in found[1].headers
        assert Readers(folder).position("kafka") == kept[-1].position


def test_rows_wait_in_the_log_while_kafka_is_away_and_arrive_once_when_it_is_back(
    connect: Connect,
) -> None:
    if reason := Kafka.missing():
        pytest.skip(reason)
    with Kafka() as kafka, feeding(kafka, "away") as node:
        listener = connect(node.port, "listener")
        listener.subscribe("s/#", qos=1)
        StrictPublisher(node.port, "publisher", "s/n", 1).publish(50)
        wait_until_fed(node, 50)
        kafka.stop()
        StrictPublisher(node.port, "publisher", "s/n", 1).publish(500)
        wait_until(lambda: len(listener.received) == 550, "the relay to go on")
        node.wait_for(lambda status: status["kafka"]["lag"] >= 500, "rows to wait")
        node.wait_for(lambda status: not status["kafka"]["feeding"], "status to say it", PATIENCE)
        status = node.status()
        assert "Kafka" in status["kafka"]["reason"]
        assert status["counters"]["kafka_failures"] > 0
        kafka.start()
        wait_until_fed(node, 550)
        found = everything(kafka.address, "away")
        assert positions(found) == Counter(tuple(row.position) for row in recorded(node))
        assert len(found) == 550
        assert node.status()["kafka"]["feeding"]


def test_each_row_is_in_kafka_once_though_the_feeding_process_was_killed(kafka: Kafka) -> None:
    with feeding(kafka, "killed") as node:
        killed: set[int] = set()

        def kill(number: int) -> None:
            if number % 100 == 0:
                feeds = node.status()["kafka"]
                if feeds["feeding"] and feeds["sent"] and feeds["pid"] not in killed:
                    os.kill(feeds["pid"], signal.SIGKILL)
                    killed.add(feeds["pid"])

        publisher = StrictPublisher(node.port, "publisher", "s/n", 1)
        count = len(publisher.publish_until(lambda number: len(killed) == 3 or number > 50_000, kill))
        wait_until_fed(node, count)
        found = everything(kafka.address, "killed")
        assert len(killed) == 3
        assert node.status()["kafka"]["restarts"] >= 1
        assert positions(found) == Counter(tuple(row.position) for row in recorded(node))
        in_order = [each.position for each in found]
        assert in_order == sorted(in_order), "one topic's messages are in one partition, in order"


def test_the_feeding_process_ends_with_a_killed_node_and_a_new_one_goes_on(kafka: Kafka) -> None:
    with feeding(kafka, "restarted") as node:
        StrictPublisher(node.port, "publisher", "s/n", 1).publish(300)
        node.wait_for(lambda status: bool(status["kafka"]["pid"]), "a feeding process")
        child = node.status()["kafka"]["pid"]
        node.stop(kill=True)
        wait_until(lambda: not _alive(child), "the child to end", PATIENCE)
        node.start()
        StrictPublisher(node.port, "publisher", "s/n", 1).publish(300)
        wait_until_fed(node, 600)
        assert positions(everything(kafka.address, "restarted")) == Counter(
            tuple(row.position) for row in recorded(node)
        )


@pytest.mark.parametrize("limit", [None, 2000], ids=["client", "topic"])
def test_a_record_that_kafka_refuses_as_too_large_is_left_out_and_counted(
    kafka: Kafka, connect: Connect, limit: int | None
) -> None:
    topic = f"large-{limit}"
    if limit is not None:
        make_topic(kafka.address, topic, {"max.message.bytes": str(limit)})
    with feeding(kafka, topic, compression="none") as node:
        client = connect(node.port, "sensor")
        client.publish("s/1", b"1", qos=1)
        client.publish("s/1", bytes(1_200_000 if limit is None else 4000), qos=1)
        client.publish("s/1", b"2", qos=1)
        wait_until_fed(node, 3)
        assert [each.value for each in everything(kafka.address, topic)] == [b"1", b"2"]
        node.wait_for(lambda status: status["counters"]["kafka_too_large"] == 1, "it to be counted")


def _alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
