"""A mesh of real nodes with real brokers: a site dies, and its clients miss nothing and get nothing twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.conftest import Connect
from tests.support.sites import Network, Settings, merged, network
from tests.support.sites import QUICK
from tests.support.waiting import wait_until

NAMES = "deph"
EDGES = [(a, b) for number, a in enumerate(NAMES) for b in NAMES[:number]]
MESH: Settings = merged(QUICK, {"mesh": {"copies": 2, "window": 60.0}})


@pytest.fixture
def mesh() -> Iterator[Network]:
    with network(EDGES, strategy="mesh", settings=MESH) as net:
        yield net


def kill(net: Network, name: str) -> None:
    net[name].node.stop(kill=True)
    net[name].broker.stop(kill=True)


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
    payloads = [b"%d" % number for number in range(60)]
    for payload in payloads[:20]:
        publisher.publish("t/1", payload, qos)
    subscriber.wait_for(lambda received: len(received) == 20)
    kill(mesh, "d")
    for payload in payloads[20:40]:
        publisher.publish("t/1", payload, qos)
    back = connect(mesh.port("e"), "c", version=version)
    back.subscribe("t/#", qos)
    for payload in payloads[40:]:
        publisher.publish("t/1", payload, qos)
    back.wait_for_payload(payloads[-1])
    assert back.payloads() == payloads[20:]
    for other in others:
        other.wait_for_payload(payloads[-1])
        assert other.payloads() == payloads
