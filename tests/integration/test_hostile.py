"""What unauthenticated peers, broken neighbours, dead clients and hanging brokers cannot do to a node."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from typing import Self

import pytest

from brokerweave.lab.node import LabNode
from brokerweave.links.connection import LinkConnection
from brokerweave.links.handshake import Dialer, NodeIdentity
from brokerweave.links.lane import Resume
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Disconnect, PingReq, Subscribe, Subscription
from tests.integration.conftest import Connect as Connects
from tests.support.raw import HOST, RawClient
from tests.support.sites import QUICK, Network, network
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network([], alone=["a"]) as net:
        yield net


class Neighbour:
    """A neighbour that says what a test wants, and reads nothing but the handshake."""

    def __init__(self, node: LabNode, identifier: str) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(5)
        self.socket.connect((HOST, node.link_port))
        resume = Resume(secrets.randbits(60) + 1, 1)
        dialer = Dialer(
            NodeIdentity(identifier, 1, "sf", 2, cycles=True), 0, resume, node.id, secrets.token_bytes
        )
        self._connection = LinkConnection(dialer, 0.0)
        self.socket.sendall(self._connection.data_to_send())
        while not self.established and (data := self._receive()):
            self._connection.receive(data, 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    @property
    def established(self) -> bool:
        return self._connection.established

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(4096)
        except ConnectionError:
            return b""


def test_a_neighbours_id_cannot_name_a_folder_elsewhere(net: Network) -> None:
    node = net.node("a")
    elsewhere = node.directory / "elsewhere"
    elsewhere.mkdir()
    with Neighbour(node, "../../elsewhere") as neighbour:
        if neighbour.established:
            neighbour.socket.sendall(codec.encode(Disconnect(0x98), 5))
            wait_until(lambda: not node.status()["links"], "removal")
    assert elsewhere.exists()
    assert list(elsewhere.iterdir()) == []


def test_the_log_names_the_address_of_a_rejected_link(net: Network) -> None:
    with RawClient(net.node("a").link_port) as peer:
        peer.send(PingReq())
        peer.read_to_end()
    wait_until(lambda: f"rejected link from {HOST}:" in net.node("a").log_tail(), "the line in the log")


def test_a_neighbour_that_sends_but_never_reads_is_dropped(net: Network) -> None:
    """Or the answers to its pings would pile up in this node's memory."""
    node = net.node("a")
    before = node.status()["counters"].get("links_dead", 0)
    pings = codec.encode(PingReq(), 5) * 50_000
    with Neighbour(node, "deaf") as neighbour:
        assert neighbour.established
        neighbour.socket.setblocking(False)

        def dropped() -> bool:
            try:
                neighbour.socket.send(pings)
            except BlockingIOError:
                pass
            except OSError:
                return True
            return False

        wait_until(dropped, "the end of the link", 60)
    assert node.status()["counters"]["links_dead"] > before


def test_a_client_cannot_take_over_the_nodes_own_session(net: Network) -> None:
    with RawClient(net.port("a")) as client:
        client.send(Connect("brokerweave-a-0"))
        assert client.read_to_end() == b""
    net.wait_for_links()


def test_a_client_that_neither_reads_nor_speaks_ends_with_its_keep_alive(
    net: Network, connect: Connects
) -> None:
    """The broker ends it too, but is not read at that time: the node must see for itself."""
    node = net.node("a")
    publisher = connect(net.port("a"))
    wait_until(lambda: node.status()["sessions"]["open"] == 1, "one client")
    with RawClient(net.port("a"), receive_buffer=4096) as client:
        client.send(Connect("dead", keep_alive=1), Subscribe(1, (Subscription("much", 0),)))
        client.read_packets(2)
        for _ in range(200):
            publisher.publish("much", bytes(100_000))
        wait_until(lambda: node.status()["counters"].get("client_pauses", 0) > 0, "a full buffer")
        wait_until(lambda: node.status()["sessions"]["open"] == 1, "the end of the silent client")


def test_a_client_hears_that_the_broker_hangs() -> None:
    with socket.create_server((HOST, 0)) as hanging:
        settings = {**QUICK, "limits": {"broker_timeout": 0.3}}
        with (
            LabNode("a", hanging.getsockname()[1], settings=settings) as node,
            RawClient(node.port) as client,
        ):
            client.send(Connect("c"))
            assert client.read_to_end() == codec.encode(ConnAck(3), 4)
