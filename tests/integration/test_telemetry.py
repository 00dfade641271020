"""Nodes that publish their own numbers: as anybody's messages, and not at all when nobody asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerweave.edgelog.reader import LogReader
from brokerweave.edgelog.rows import rows
from brokerweave.lab.node import LabNode
from tests.integration.conftest import Connect
from tests.support.sites import start_broker
from tests.support.waiting import wait_until

TELEMETRY: dict[str, Any] = {
    "telemetry": {"interval": 0.2, "topic": "brokerweave/telemetry/{node}"},
    "edge_log": {"fsync": "never"},
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[LabNode, LabNode]]:
    """The first tells of itself and keeps it; the second does not."""
    with (
        start_broker("mosquitto") as one,
        start_broker("mosquitto") as other,
        LabNode("a", one.port, settings=TELEMETRY, taps=("brokerweave/telemetry/#",)) as a,
        LabNode("b", other.port, (a,)) as b,
    ):
        b.wait_for_links(1)
        yield a, b


def test_a_node_tells_its_numbers_to_subscribers_at_another_site(
    nodes: tuple[LabNode, LabNode], connect: Connect
) -> None:
    a, b = nodes
    collector = connect(b.port, "collector")
    collector.subscribe("brokerweave/telemetry/+")
    publisher = connect(a.port, "publisher")
    publisher.subscribe("own/#")
    for number in range(20):
        publisher.publish("own/topic", bytes(100), qos=number % 2)
    wait_until(lambda: len(publisher.received) == 20, "the client's own messages")

    def last() -> dict[str, Any]:
        return json.loads(collector.received[-1].payload) if collector.received else {}

    wait_until(lambda: last().get("messages_out", 0) >= 20, "telemetry that counts them")
    said = last()
    assert {each.topic for each in collector.received} == {"brokerweave/telemetry/a"}
    assert said["node"] == "a"
    assert said["messages_in"] >= 20
    assert said["bytes_in"] > 20 * 100
    assert said["sessions"] == 2, "the publisher, and the telemetry's own"
    assert (said["publishers"], said["subscribers"]) == (2, 1)
    assert said["topics"] == 2
    assert (said["timed"], said["latency_seconds"]) == (0, 0), "nothing came from the other site"
    assert (said["links"], said["links_up"]) == (1, 1)
    assert said["memory_bytes"] > 1_000_000
    assert said["cpu_seconds"] > 0
    assert said["recorded"] > 0
    assert said["drops"] == 0


def test_how_long_messages_of_other_sites_took_is_counted_where_they_arrive(
    nodes: tuple[LabNode, LabNode], connect: Connect
) -> None:
    a, b = nodes
    subscriber = connect(a.port, "subscriber")
    subscriber.subscribe("far/#", 1)
    before = b.status()["topics"]["seen"]
    publisher = connect(b.port, "far")
    for number in range(10):
        publisher.publish(f"far/{number}", b"x", qos=1)
    wait_until(lambda: len(subscriber.received) == 10, "messages of the other site")

    def timed(status: dict[str, Any]) -> bool:
        return bool(sum(injector["timed"] for injector in status["injectors"]) == 10)

    a.wait_for(timed, "their acknowledgements")
    assert sum(injector["latency_seconds"] for injector in a.status()["injectors"]) > 0
    assert b.status()["topics"]["seen"] == before + 10


def test_what_status_counts_stays_when_a_client_leaves(
    nodes: tuple[LabNode, LabNode], connect: Connect
) -> None:
    b = nodes[1]
    before = b.status()["traffic"]
    publisher = connect(b.port, "passing")
    for _ in range(5):
        publisher.publish("passing/by", bytes(1000), qos=1)
    publisher.close()
    b.wait_for(lambda status: status["traffic"]["messages_in"] == before["messages_in"] + 5, "five messages")
    after = b.status()["traffic"]
    assert after["messages_in"] == before["messages_in"] + 5
    assert after["bytes_in"] - before["bytes_in"] > 5000


def test_telemetry_is_recorded_like_any_clients_messages(nodes: tuple[LabNode, LabNode]) -> None:
    a = nodes[0]
    folder = Path(a.status()["edge_log"]["path"])

    def kept() -> list[bytes]:
        return [row.payload for block in LogReader(folder).blocks() for row in rows(block)]

    wait_until(lambda: len(kept()) >= 3, "three rows")
    times = [json.loads(each)["time"] for each in kept()]
    assert times == sorted(times)


def test_without_an_interval_a_node_has_no_session_of_its_own(
    nodes: tuple[LabNode, LabNode], connect: Connect
) -> None:
    b = nodes[1]
    listener = connect(b.port, "listener")
    listener.subscribe("#")
    wait_until(lambda: len(listener.received) >= 3, "the other node's telemetry")
    assert {each.topic for each in listener.received} == {"brokerweave/telemetry/a"}


def test_telemetry_goes_on_when_the_broker_is_back(connect: Connect) -> None:
    with start_broker("mosquitto") as broker, LabNode("c", broker.port, settings=TELEMETRY) as node:
        node.wait_for(lambda status: status["traffic"]["messages_in"] >= 1, "a first message")
        broker.stop()
        node.wait_for(lambda status: status["sessions"]["open"] == 0, "the session's end")
        counted = node.status()["traffic"]["messages_in"]
        broker.start()
        node.wait_for(lambda status: status["traffic"]["messages_in"] > counted, "another message")
        assert node.status()["counters"]["internal_errors"] == 0
        assert "Traceback" not in node.log_tail(10_000)
