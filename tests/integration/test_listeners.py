"""Listeners inside real nodes: every callback of ILDM's Table 1, changed packets, and what they publish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from brokerweave.edgelog.reader import LogReader
from brokerweave.edgelog.rows import rows
from brokerweave.mqtt import packets as mqtt
from tests.integration.conftest import Connect
from tests.support.raw import RawClient
from tests.support.sites import QUICK, Network, merged, network
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
NO_LENGTH = b"\x30\xff\xff\xff\xff\xff"
"""A frame whose length goes on for too long: nobody could say where the next one begins."""


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """Nodes find the listeners of tests and examples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
        yield


def with_listeners(*names: str) -> dict[str, dict[str, object]]:
    return {"node": {"listeners": list(names)}}


class Notes:
    def __init__(self, file: Path) -> None:
        self._file = file

    def of(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        notes = [json.loads(line) for line in lines]
        return [note for note in notes if note["event"] == event and fields.items() <= note.items()]

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        wait_until(lambda: bool(self.of(event, **fields)), f"{event} {fields}")
        return self.of(event, **fields)[-1]

    def wait_for_both_halves(self, event: str, client: str, **fields: Any) -> None:
        for side in ("client", "broker"):
            self.wait_for(event, client=client, side=side, **fields)


def test_every_callback_of_table_1_is_called_in_a_running_node(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIARY_FILE", str(tmp_path / "diary"))
    notes = Notes(tmp_path / "diary")
    special = {"a": with_listeners("tests.support.recorder:Diary")}
    with network([("a", "b")], alone=["c"], settings=QUICK, special=special) as net:
        a = net.node("a")
        notes.wait_for("made", node="stopped")
        notes.wait_for("neighbour_adding", neighbour="b", node="ildm_adding")
        a.wait_for(lambda status: status["node"]["state"] == "running", "the state running")

        leaving = connect(net.port("a"), "leaving")
        notes.wait_for("session_established", client="", side="client", state="established", node="running")
        notes.wait_for("session_established", client="leaving", side="broker", state="established")
        notes.wait_for("packet_arrived", side="client", packet="CONNECT")
        notes.wait_for("packet_arrived", side="broker", packet="CONNACK", client="leaving")
        leaving.close()
        notes.wait_for_both_halves("session_closed", "leaving", state="closed", paired="closed")
        assert not notes.of("tcp_down")

        dropped = RawClient(net.port("a"))
        dropped.send(mqtt.Connect("dropped"))
        dropped.read_packets(1)
        dropped.socket.close()
        notes.wait_for_both_halves("tcp_down", "dropped", state="established")
        notes.wait_for_both_halves("session_closed", "dropped", state="closed")

        with RawClient(net.port("a")) as garbled:
            garbled.send(mqtt.Connect("garbled"))
            garbled.read_packets(1)
            garbled.socket.sendall(NO_LENGTH)
            notes.wait_for("receive_failed", client="garbled", side="client")

        net.link("a", "c")
        notes.wait_for("neighbour_adding", neighbour="c", node="ildm_adding")
        a.wait_for(lambda status: status["node"]["state"] == "running", "the state running")
        a.ask("remove_neighbour", id="c")
        notes.wait_for("neighbour_removing", neighbour="c", node="ildm_removing")
        a.wait_for(lambda status: status["node"]["state"] == "running", "the state running")

        hearing = connect(net.port("b"))
        hearing.subscribe("diary/last", 1)
        staying = connect(net.port("a"), "staying")
        a.stop()
        notes.wait_for("node_stopping", node="running")
        notes.wait_for_both_halves("session_closed", "staying", state="closed")
        hearing.wait_for_payload(b"a")
        assert staying.ended.is_set()
        net.links.remove(("a", "c"))


def test_a_node_is_adding_a_neighbour_until_it_is_there() -> None:
    with network([], alone=["a", "b"]) as net:
        a, b = net.node("a"), net.node("b")
        b.stop()
        a.ask("add_neighbour", id="b", address=f"127.0.0.1:{b.link_port}")
        assert a.status()["node"]["state"] == "ildm_adding"
        b.start()
        a.wait_for(lambda status: status["node"]["state"] == "running", "the state running")
        assert a.link("b")["state"] == "up"


@pytest.fixture(scope="module")
def alarmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Network, Path]]:
    """Two sites; at `a` readings get their unit, and high ones are repeated as alarms. Both are recorded."""
    folder: Path = tmp_path_factory.mktemp("listeners")
    acl = folder / "acl"
    acl.write_text("topic readwrite #\ntopic deny alarms/secret/#\n")
    settings = merged(with_listeners("examples.alarms:Alarms"), {"alarms": {"limit": 50.0}})
    settings = merged(settings, {"acl": {"file": str(acl)}, "edge_log": {"path": str(folder / "log")}})
    with network([("a", "b")], settings=QUICK, special={"a": settings}, taps={"a": ("#",)}) as made:
        yield made, folder / "log"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_a_listener_changes_or_publishes_comes_once_to_subscribers_at_every_site(
    alarmed: tuple[Network, Path], connect: Connect, qos: int
) -> None:
    net, _ = alarmed
    topic = f"hall{qos}/temperature"
    subscribers = [connect(net.port(name)) for name in ("a", "b")]
    for subscriber in subscribers:
        subscriber.subscribe(topic, 2)
        subscriber.subscribe(f"alarms/{topic}", 2)
    publisher = connect(net.port("a"))
    for payload in (b"20", b"60", b"30"):
        publisher.publish(topic, payload, qos)
    for subscriber in subscribers:
        subscriber.wait_for(lambda received: len(received) >= 4)
        got = [(message.topic, message.payload) for message in subscriber.received]
        assert sorted(got) == sorted(
            [(topic, b"20 C"), (topic, b"60 C"), (topic, b"30 C"), (f"alarms/{topic}", b"60")]
        )


def test_taps_record_what_listeners_make_and_the_access_list_counts_for_it(
    alarmed: tuple[Network, Path], connect: Connect
) -> None:
    net, log = alarmed
    here, there = (connect(net.port(name)) for name in ("a", "b"))
    for subscriber in (here, there):
        subscriber.subscribe("alarms/#", 1)
    publisher = connect(net.port("a"))
    publisher.publish("secret/temperature", b"99", 1)
    publisher.publish("open/temperature", b"98", 1)
    there.wait_for_payload(b"98")
    here.wait_for_payload(b"99")
    assert [message.payload for message in there.received] == [b"98"]
    assert net.counted("denied_topics")["a"] == 1

    def recorded() -> set[tuple[str, bytes]]:
        return {(row.topic, row.payload) for block in LogReader(log).blocks() for row in rows(block)}

    wanted = {("open/temperature", b"98 C"), ("alarms/open/temperature", b"98")}
    wait_until(lambda: wanted <= recorded(), "both in the edge log")


def test_a_listener_that_publishes_more_than_fits_is_refused_and_it_is_counted(connect: Connect) -> None:
    settings = merged(QUICK, with_listeners("tests.support.recorder:Flood"))
    with network([], alone=["a"], settings=merged(settings, {"limits": {"client_queue": 4096}})) as net:
        client = connect(net.port("a"))
        client.subscribe("flood/#", 1)
        client.publish("do/flood", b"100")

        def refused() -> int:
            return net.counted("listener_publications_refused")["a"]

        wait_until(lambda: len(client.received) + refused() == 100, "each of 100 delivered or refused")
        assert 0 < refused() < 100
        numbers = [int(message.payload) for message in client.received]
        assert numbers == list(range(len(numbers))), "in order, and the last ones refused"


def test_a_retained_publication_of_a_listener_is_there_for_who_comes_later_at_any_site(
    connect: Connect,
) -> None:
    settings = merged(QUICK, with_listeners("tests.support.recorder:Flood"))
    with network([("a", "b")], settings=settings) as net:
        connect(net.port("a")).publish("do/retain", b"kept")

        def kept(site: str) -> bool:
            late = connect(net.port(site))
            late.subscribe("flood/kept", 2)
            late.subscribe("fence", 2)
            late.publish("fence", b"", 1)  # comes behind what is retained
            late.wait_for_payload(b"")
            return any(message.payload == b"kept" and message.retain for message in late.received)

        for site in ("a", "b"):
            wait_until(partial(kept, site), f"the retained message at {site}")
