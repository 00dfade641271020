"""A mesh of real nodes with real brokers: a site dies, and its clients miss nothing and get nothing twice."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from brokerweave import lab
from brokerweave.lab.broker import HOST, free_port
from brokerweave.mqtt import codec, packets
from tests.integration.conftest import Connect
from tests.support.clients import Message
from tests.support.raw import FakeBroker
from tests.support.sites import QUICK, Network, Settings, merged, network
from tests.support.verdicts import in_order, keeps
from tests.support.waiting import LIMIT, wait_until

NAMES = "deph"
EDGES = [(a, b) for number, a in enumerate(NAMES) for b in NAMES[:number]]
IN_FLIGHT = 20
"""What Mosquitto has on its way to one client at most."""
MESH: Settings = merged(QUICK, {"mesh": {"copies": 2, "window": 60.0}})


@pytest.fixture
def mesh() -> Iterator[Network]:
    with network(EDGES, strategy="mesh", settings=MESH) as net:
        yield net


@contextmanager
def finding_each_other(folder: Path, settings: Settings) -> Iterator[Network]:
    key = folder / "key"
    key.write_text("a key that all nodes share")
    ports = {name: free_port() for name in NAMES}
    special: dict[str, Settings] = {
        name: {
            "node": {"key_file": str(key)},
            "membership": {
                "bind": f"127.0.0.1:{port}",
                "join": [f"127.0.0.1:{ports['p']}"],
                "preset": "local",
            },
        }
        for name, port in ports.items()
    }
    with network([], strategy="mesh", settings=settings, special=special, alone=NAMES) as net:
        for name in NAMES:
            net.node(name).wait_for_links(3)
        yield net


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Network]:
    """The same four, which find each other."""
    with finding_each_other(tmp_path, MESH) as net:
        yield net


@pytest.fixture
def patient_members(tmp_path: Path) -> Iterator[Network]:
    """Links that wait for longer than membership does."""
    with finding_each_other(tmp_path, merged(MESH, {"links": {"ping_interval": 10.0}})) as net:
        yield net


def kill(net: Network, name: str) -> None:
    net[name].node.stop(kill=True)
    broker = net[name].broker
    assert isinstance(broker, lab.Broker)
    broker.stop(kill=True)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [4, 5])
def test_a_client_of_a_killed_site_gets_what_it_missed_at_another_once_and_in_order(
    mesh: Network, connect: Connect, qos: int, version: int
) -> None:
    subscriber = connect(mesh.port("d"), "c", version=version)
    subscriber.subscribe("t/#", qos)
    others = [connect(mesh.port(name), f"other-{name}", version=version) for name in "eph"]
    for other in others:
        other.subscribe("t/#", qos)
    publisher = connect(mesh.port("p"), "publisher", version=version)
    payloads = [b"%d" % number for number in range(80)]
    for payload in payloads[:40]:
        publisher.publish("t/1", payload, qos)
    subscriber.wait_for(lambda received: len(received) == 40)
    kill(mesh, "d")
    for payload in payloads[40:60]:
        publisher.publish("t/1", payload, qos)
    back = connect(mesh.port("e"), "c", version=version)
    back.subscribe("t/#", qos)
    for payload in payloads[60:]:
        publisher.publish("t/1", payload, qos)
    back.wait_for_payload(payloads[-1])
    got = back.payloads()
    in_order(got[-40:], payloads[40:])
    # What was on its way, or whose receipt was, when d was killed may come again: the last ones.
    again = got[:-40]
    keeps(len(again) <= IN_FLIGHT, f"{len(again)} came again")
    in_order(again, payloads[40 - len(again) : 40])
    for other in others:
        other.wait_for_payload(payloads[-1])
        in_order(other.payloads(), payloads)


def test_publications_of_one_payload_are_told_apart(mesh: Network, connect: Connect) -> None:
    """By a user property here; Mosquitto passes them."""
    subscriber = connect(mesh.port("d"), "c", version=5)
    subscriber.subscribe("t", 1)
    publishers = [connect(mesh.port(name), f"publisher-{name}", version=5) for name in "dp"]

    def publish(numbers: range) -> None:
        for number in numbers:
            publisher = publishers[number % len(publishers)]
            publisher.publish("t", b"21.5", 1, UserProperty=("number", str(number)))

    def numbers(received: list[Message]) -> list[int]:
        return [int(message.properties["UserProperty"][0][1]) for message in received]

    publish(range(40))
    subscriber.wait_for(lambda received: len(received) == 40)
    in_order(numbers(subscriber.received), range(40))
    del publishers[0]  # its site dies
    kill(mesh, "d")
    publish(range(40, 60))
    back = connect(mesh.port("e"), "c", version=5)
    back.subscribe("t", 1)
    publish(range(60, 80))
    back.wait_for(lambda received: numbers(received)[-1:] == [79])
    got = numbers(back.received)
    in_order(got[-40:], range(40, 80))
    keeps(len(got) - 40 <= IN_FLIGHT, f"{len(got) - 40} came again")


def test_a_site_that_was_taken_for_dead_before_its_links_failed_gets_what_its_clients_want(
    patient_members: Network, connect: Connect
) -> None:
    members = patient_members

    def state(name: str) -> str:
        rows = members.node("p").ask("members")["members"]
        return next(str(row["state"]) for row in rows if row["member"] == name)

    subscriber = connect(members.port("d"), "c")
    subscriber.subscribe("t/#", 1)
    publisher = connect(members.port("p"), "publisher")
    members.node("d").pause()
    try:
        wait_until(lambda: state("d") == "dead", "the death of d")
        publisher.publish("t/1", b"meanwhile", 1)
    finally:
        members.node("d").resume()
    wait_until(lambda: state("d") == "alive", "the return of d")
    subscriber.wait_for_payload(b"meanwhile")
    publisher.publish("t/1", b"after", 1)
    subscriber.wait_for_payload(b"after")
    in_order(subscriber.payloads(), [b"meanwhile", b"after"])


def test_members_that_find_each_other_keep_what_a_dead_ones_client_missed(
    members: Network, connect: Connect
) -> None:
    connect(members.port("d"), "c").subscribe("t/#", 1)
    publisher = connect(members.port("p"), "publisher")
    publisher.publish("t/1", b"before", 1)
    kill(members, "d")
    publisher.publish("t/1", b"after", 1)

    def dead() -> bool:
        rows = members.node("e").ask("members")["members"]
        return any(row["member"] == "d" and row["state"] == "dead" for row in rows)

    wait_until(dead, "the death of d")
    publisher.publish("t/1", b"later", 1)
    back = connect(members.port("e"), "c")
    back.subscribe("t/#", 1)
    publisher.publish("t/1", b"now", 1)
    back.wait_for_payload(b"now")
    in_order(back.payloads()[-3:], [b"after", b"later", b"now"])
    keeps(len(back.payloads()) <= 4, back.payloads())  # `before` may have been on its way when d was killed


def test_a_connection_that_was_given_up_does_not_call_a_client_away_from_where_it_is(
    connect: Connect,
) -> None:
    arrived, answer = threading.Event(), threading.Event()
    connecting = packets.Connect("c", 4)

    def slowly(packet: packets.Packet) -> None:
        if packet == connecting:
            arrived.set()
            answer.wait(LIMIT)

    with (
        FakeBroker(slowly) as slow,
        network([("d", "e")], strategy="mesh", settings=MESH, brokers={"d": slow}) as net,
    ):
        here = connect(net.port("e"), "c")
        here.subscribe("t", 1)
        forsaken = socket.create_connection((HOST, net.port("d")), timeout=LIMIT)
        forsaken.sendall(codec.encode(connecting, 4))
        assert arrived.wait(LIMIT)
        net.node("d").pause()  # so that CONNACK and the end of the connection are there at once
        answer.set()
        wait_until(lambda: connecting in slow.answered, "CONNACK on its way")
        forsaken.close()
        net.node("d").resume()
        wait_until(lambda: net.counted("forsaken_connects")["d"] == 1, "the end of the connection noticed")
        here.publish("t", b"still here", 1)
        here.wait_for_payload(b"still here")
        assert not here.ended.is_set()
