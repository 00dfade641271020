"""A node that records, in front of a real Mosquitto, with real clients; and its log, read from its files."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from brokerweave.edgelog.layout import Damage
from brokerweave.edgelog.reader import LogReader
from brokerweave.edgelog.readers import Readers
from brokerweave.edgelog.rows import LogRow, rows
from brokerweave.lab.node import LabNode
from brokerweave.mqtt.packets import Connect, Publish
from tests.integration.conftest import Connect as Connects
from tests.support.publisher import StrictPublisher
from tests.support.raw import RawClient
from tests.support.sites import start_broker
from tests.support.waiting import wait_until

ACL = "topic readwrite #\ntopic deny s/denied\n"
PROMPT = {"edge_log": {"fsync": "interval", "fsync_interval": 0.05}}


@contextmanager
def recording(settings: Mapping[str, Mapping[str, object]] = PROMPT) -> Iterator[LabNode]:
    """A node with a tap on s/#, alone at its site; its broker refuses s/denied."""
    with (
        start_broker("mosquitto", acl=ACL) as broker,
        LabNode("a", broker.port, settings=settings, taps=("s/#",)) as node,
    ):
        yield node
        assert "Traceback" not in node.log_tail(10_000)


@pytest.fixture(scope="module")
def node() -> Iterator[LabNode]:
    with recording() as node:
        yield node


def folder(node: LabNode) -> Path:
    return Path(node.status()["edge_log"]["path"])


def recorded(path: Path, prefix: str = "s/") -> list[LogRow]:
    found = [row for block in LogReader(path).blocks() for row in rows(block)]
    return [row for row in found if row.topic.startswith(prefix)]


def wait_for_rows(node: LabNode, prefix: str, count: int) -> list[LogRow]:
    path = folder(node)
    wait_until(lambda: len(recorded(path, prefix)) >= count, f"{count} rows in the log")
    return recorded(path, prefix)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_a_client_publishes_is_in_the_log_once_with_all_its_fields(
    node: LabNode, connect: Connects, qos: int, version: int
) -> None:
    prefix = f"s/fields/{version}/{qos}/"
    client = connect(node.port, f"sensor-{version}-{qos}", version=version)
    extra = {"UserProperty": ("unit", "°C")} if version == 5 else {}
    before = time.time()
    for number in range(20):
        client.publish(f"{prefix}{number % 2}", b"%d" % number, qos, number == 3, **extra)
        client.publish("not/tapped", b"x", qos)
    found = wait_for_rows(node, prefix, 20)
    assert [int(row.payload) for row in found] == list(range(20))
    assert {row.client for row in found} == {f"sensor-{version}-{qos}"}
    assert {(row.qos, row.dup) for row in found} == {(qos, False)}
    assert [row.retain for row in found] == [number == 3 for number in range(20)]
    assert {row.properties for row in found} == {(("unit", "°C"),) if version == 5 else ()}
    assert all(before - 1 <= row.received / 1e6 <= time.time() + 1 for row in found)
    assert recorded(folder(node), "not/") == []


def test_a_will_is_recorded_when_the_broker_publishes_it(node: LabNode, connect: Connects) -> None:
    connect(node.port, "polite", will=("s/will/polite", b"no", 1, False)).close()
    connect(node.port, "gone", will=("s/will/gone", b"yes", 1, True)).cut()
    (row,) = wait_for_rows(node, "s/will/", 1)
    assert (row.topic, row.payload, row.client, row.qos, row.retain) == (
        "s/will/gone",
        b"yes",
        "gone",
        1,
        True,
    )


def test_what_the_broker_says_it_refuses_is_not_recorded(node: LabNode, connect: Connects) -> None:
    client = connect(node.port, version=5)
    for qos in (1, 2):
        client.publish("s/denied", b"%d" % qos, qos)
    client.publish("s/allowed", b"last", 1)
    wait_for_rows(node, "s/allowed", 1)
    assert recorded(folder(node), "s/denied") == []
    assert node.status()["counters"]["tap_refused"] == 2


def test_a_resent_publication_is_marked(node: LabNode) -> None:
    client = RawClient(node.port)
    client.send(Connect("raw", 4), Publish("s/dup", b"1", 1, dup=True, packet_id=9))
    client.read_packets(2)
    client.close()
    (row,) = wait_for_rows(node, "s/dup", 1)
    assert (row.dup, row.packet_id) == (True, 9)


@pytest.mark.parametrize(("fsync", "qos"), [("always", 1), ("always", 2), ("interval", 1), ("never", 2)])
def test_kill_9_loses_nothing_that_was_acknowledged_and_names_no_row_twice(fsync: str, qos: int) -> None:
    with recording({"edge_log": {"fsync": fsync, "fsync_interval": 0.05}}) as node:
        path = folder(node)
        Readers(path).commit("lake", LogReader(path).end())

        def meanwhile(number: int) -> None:
            if number in (60, 180, 270):
                node.restart(kill=True)

        publisher = StrictPublisher(node.port, "strict", "s/kill", qos)
        sent = publisher.publish(400, meanwhile)
        assert publisher.reconnects >= 3
        node.stop()
        found = recorded(path)
        positions = [row.position for row in found]
        assert len(set(positions)) == len(positions)
        assert positions == sorted(positions)
        assert len({row.epoch for row in found}) == 4
        counts = Counter(row.payload for row in found)
        assert set(counts) == set(sent)
        unmarked = Counter(row.payload for row in found if not row.dup)
        assert max(unmarked.values()) == 1
        assert sum(counts.values()) - len(counts) <= publisher.repeated
        node.start()


def test_a_qos_1_publication_is_in_the_log_when_its_acknowledgement_arrives() -> None:
    with recording({"edge_log": {"fsync": "always"}}) as node:
        path = folder(node)
        for version in (4, 5):
            client = RawClient(node.port)
            client.send(Connect(f"c{version}", version), version=version)
            client.read_packets(1)
            for number in range(1, 20):
                client.send(Publish("s/now", b"%d" % number, 1, packet_id=number), version=version)
                client.read_packets(1)
                assert recorded(path)[-1].payload == b"%d" % number
            client.close()


def test_a_disk_that_takes_no_more_stops_recording_but_not_relaying(connect: Connects) -> None:
    with recording({"edge_log": {"fsync": "never"}}) as node:
        subscriber = connect(node.port)
        subscriber.subscribe("s/#", 1)
        client = connect(node.port)
        client.publish("s/1", b"before", 1)
        wait_for_rows(node, "s/", 1)
        no_limit = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (4096, no_limit[1]))
        for number in range(20):
            client.publish("s/2", b"%d" % number * 500, 1)
        node.wait_for(lambda status: not status["edge_log"]["recording"], "recording to stop")
        status = node.status()
        assert status["edge_log"]["reason"]
        assert any("recording stops" in warning for warning in status["warnings"])
        subscriber.wait_for(lambda received: len(received) == 21)
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, no_limit)

        tries = []

        def records_again() -> bool:
            client.publish("s/3", b"after", 1)
            tries.append(1)
            return bool(node.status()["edge_log"]["recording"])

        wait_until(records_again, "recording to go on")
        found = recorded(folder(node))
        assert found[0].payload == b"before"
        assert found[-1].payload == b"after"
        missed = node.status()["counters"]["edge_log_unrecorded"]
        assert missed > 0
        assert len(found) + missed == 1 + 20 + len(tries)
        assert not any(isinstance(each, Damage) for each in LogReader(folder(node)).verify())


def test_a_node_without_taps_has_no_log(connect: Connects) -> None:
    with start_broker("mosquitto") as broker, LabNode("a", broker.port) as node:
        connect(node.port).publish("s/1", b"x", 1)
        assert node.status()["edge_log"] is None
        assert list(node.directory.rglob("*.seg")) == []


def test_the_command_reads_and_trims_the_log_of_a_running_node(
    node: LabNode, capsys: pytest.CaptureFixture[str]
) -> None:
    from brokerweave.cli import main

    def run(*arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as caught:
            main.main(["log", *arguments, "--config", str(node.config_file)])
        return caught.value.code, capsys.readouterr().out

    raw = RawClient(node.port)
    raw.send(Connect("raw-command", 4), Publish("s/command", b"shown", 1, packet_id=1))
    raw.read_packets(2)
    raw.close()
    wait_for_rows(node, "s/command", 1)
    code, out = run("cat", "--topic", "s/command")
    assert (code, "shown" in out) == (0, True)
    assert run("verify")[0] == 0
    assert run("trim", "--before", "1:1")[0] == 0
