"""Real nodes that answer pings: sealed, or in EMMA's own packets; strangers are counted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from random import Random

import pytest

from brokerweave.config import Address
from brokerweave.lab.broker import HOST, free_port
from brokerweave.lab.node import LabNode
from brokerweave.membership.meta import Meta
from brokerweave.placement import table_one
from brokerweave.placement.followed import KnownSite
from brokerweave.placement.gateway_agent import GatewayAgent
from brokerweave.placement.prober import ProbeSettings
from brokerweave.runtime.datagram_port import DatagramPort
from brokerweave.runtime.monitoring import draw_boot, monitoring_key
from tests.support.waiting import LIMIT, wait_until

KEY = b"the key of the cluster"


class Measurer:
    """A gateway without clients. Implements `AgentHost`."""

    def __init__(self, port: DatagramPort) -> None:
        self.send = port.send

    def sites_changed(self, sites: object) -> None: ...

    def move(self, number: int, client: str, target: str) -> None:
        raise AssertionError("nobody asked for it")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabNode]:
    key = tmp_path_factory.mktemp("keys") / "key"
    key.write_bytes(KEY)
    settings = {
        "membership": {"bind": f"{HOST}:{free_port()}", "key_file": str(key), "preset": "local"},
        "monitoring": {"listen": f"{HOST}:{free_port()}"},
    }
    made = LabNode("a", free_port(), settings=settings)
    try:
        made.start()
        yield made
    finally:
        made.close()


def monitor_of(node: LabNode) -> tuple[str, int]:
    address = Address.parse(node.status()["monitoring"]["listen"])
    return address.host, address.port


async def measured(node: LabNode, key: bytes, counter: str, many: int) -> dict[str, float]:
    """What an agent with this key found out when the node's counter has grown by so many."""
    port = DatagramPort()
    await port.open(Address(HOST, 0), "test")
    sites = [KnownSite("a", (HOST, node.port), monitor_of(node))]
    now, host = asyncio.get_running_loop().time(), Measurer(port)
    sealed = monitoring_key(key)
    agent = GatewayAgent("g", sealed, draw_boot(), [], sites, ProbeSettings(), Random(1), host, now)
    before = node.status()["counters"][counter]
    port.serve_timed(agent)

    async def done() -> bool:
        counters = (await asyncio.to_thread(node.status))["counters"]
        return counters[counter] >= before + many and (key != KEY or bool(agent.prober.estimates()))

    while not await done():  # noqa: ASYNC110 (no one event ends it)
        await asyncio.sleep(0.05)
    port.close()
    return agent.prober.estimates()


async def test_a_node_answers_the_pings_of_who_has_the_key(node: LabNode) -> None:
    (trip,) = (await measured(node, KEY, "monitoring_answered", 10)).values()
    assert 0 < trip < LIMIT


async def test_a_node_does_not_answer_strangers_and_counts_them(node: LabNode) -> None:
    assert await measured(node, b"another key altogether", "monitoring_unauthentic", 2) == {}
    random, before = Random(1), refusals(node)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for size in (0, 5, 60, 1500):
            stranger.sendto(random.randbytes(size), monitor_of(node))
        stranger.sendto(table_one.encode(table_one.PingRequest(1)), monitor_of(node))
        wait_until(lambda: sum(refusals(node).values()) == sum(before.values()) + 5, "all five refused")
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.recv(100)
    assert refusals(node)["monitoring_too_long"] == before["monitoring_too_long"] + 1


def refusals(node: LabNode) -> dict[str, int]:
    counters = node.status()["counters"]
    names = [name for name in counters if name.startswith("monitoring_")]
    return {name: counters[name] for name in names if name != "monitoring_answered"}


def test_members_hear_where_a_node_answers_pings(node: LabNode) -> None:
    wait_until(lambda: node.status()["members"][0]["meta"] != "", "its metadata")
    (row,) = node.status()["members"]
    meta = Meta.decode(bytes.fromhex(row["meta"]))
    assert meta.monitor == monitor_of(node)
    assert not meta.observer


def test_without_a_seal_a_node_answers_emmas_pings() -> None:
    settings = {"monitoring": {"listen": f"{HOST}:{free_port()}", "sealed": False}}
    node = LabNode("a", free_port(), settings=settings)
    try:
        node.start()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gateway:
            gateway.settimeout(LIMIT)
            gateway.sendto(table_one.encode(table_one.PingRequest(7)), monitor_of(node))
            assert table_one.decode(gateway.recv(100)) == table_one.PingResponse(7)
    finally:
        node.close()
