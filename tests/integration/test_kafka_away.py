"""A node that is to feed a Kafka that is not there. (`make test-kafka` has a real one.)"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from brokerweave.lab.broker import free_port
from brokerweave.lab.node import LabNode
from tests.integration.conftest import Connect
from tests.support.sites import start_broker
from tests.support.waiting import wait_until

pytest.importorskip("confluent_kafka")


@contextmanager
def feeding(**kafka: object) -> Iterator[LabNode]:
    settings: dict[str, dict[str, Any]] = {
        "edge_log": {"fsync": "never"},
        "kafka": {"servers": [f"127.0.0.1:{free_port()}"], **kafka},
    }
    with (
        start_broker("mosquitto") as broker,
        LabNode("a", broker.port, settings=settings, taps=("s/#",)) as node,
    ):
        yield node
        assert "Traceback" not in node.log_tail(10_000)


def test_clients_are_served_while_kafka_is_away_and_status_says_why_and_how_much_waits(
    connect: Connect,
) -> None:
    with feeding() as node:
        client = connect(node.port, "client")
        client.subscribe("s/#", qos=1)
        for number in range(100):
            client.publish("s/1", b"%d" % number, qos=1)
        wait_until(lambda: len(client.received) == 100, "the client's messages")
        node.wait_for(lambda status: status["counters"]["kafka_failures"] >= 1, "a first try", 60)
        feeds = node.status()["kafka"]
        assert (feeds["feeding"], feeds["lag"], feeds["sent"]) == (False, 100, 0)
        assert feeds["state"] == "running"
        assert feeds["reason"].startswith("Kafka")

        os.kill(feeds["pid"], signal.SIGKILL)
        node.wait_for(lambda status: status["kafka"]["restarts"] >= 1, "another process", 60)
        client.publish("s/1", b"still", qos=1)
        wait_until(lambda: len(client.received) == 101, "the relay to go on")


def test_the_feeding_process_ends_with_its_node_however_that_ends() -> None:
    with feeding() as node:
        for kill in (True, False):
            node.wait_for(lambda status: status["kafka"]["state"] == "running", "a process", 60)
            child = psutil.Process(node.status()["kafka"]["pid"])
            node.stop(kill=kill)
            wait_until(lambda child=child: not child.is_running(), "its end", 60)  # type: ignore[misc]
            node.start()


def test_a_mistake_in_the_clients_settings_is_said_in_status(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("no.such.setting=1\n")
    with feeding(client_file=str(file)) as node:
        node.wait_for(lambda status: "no.such.setting" in status["kafka"]["reason"], "the reason", 60)
        assert not node.status()["kafka"]["feeding"]
