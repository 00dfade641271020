"""Nodes that reach their Mosquittos by Unix sockets: all that works by TCP works, and a crowd gets in."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

import psutil
import pytest
import uvloop

from brokerweave import lab
from brokerweave.config import UnixSocket
from brokerweave.lab.debian import Mosquitto
from brokerweave.lab.node import LabNode
from brokerweave.mqtt import codec, packets
from brokerweave.runtime.dialing import dial, open_streams
from tests.integration.conftest import Connect
from tests.support.raw import RawClient
from tests.support.sites import QUICK, Network, merged, network, start_all, start_broker
from tests.support.waiting import wait_until

PATIENT = merged(QUICK, {"limits": {"broker_timeout": 30}})
QUEUE = ("max_queued_messages 100000",)
BURST = 50_000
CROWD = 60
"""More than wait to be accepted at a Unix socket: Mosquitto lets ten."""


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    """Two sites whose nodes know no port of their brokers."""
    with ExitStack() as stack:
        brokers = {
            name: start_broker("mosquitto", unix=True, persistence=True, config=QUEUE) for name in "ab"
        }
        for broker in brokers.values():
            stack.callback(broker.close)
        special = {name: {"node": {"broker": str(socket_of(broker))}} for name, broker in brokers.items()}
        yield stack.enter_context(network([("a", "b")], brokers=brokers, settings=PATIENT, special=special))


def socket_of(broker: object) -> UnixSocket:
    assert isinstance(broker, Mosquitto)
    return broker.socket


def connections_by_tcp(net: Network, name: str) -> int:
    """To the site's broker."""
    broker = net[name].broker
    assert isinstance(broker, lab.Broker)
    found = psutil.Process(broker.pid).net_connections("tcp")
    return sum(each.status == psutil.CONN_ESTABLISHED for each in found)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_and_retained_ones_go_from_site_to_site(net: Network, connect: Connect, qos: int) -> None:
    here, there = connect(net.port("a")), connect(net.port("b"))
    for client in (here, there):
        client.subscribe(f"unix/{qos}/#", qos)
    net.settle()
    there.publish(f"unix/{qos}/t", b"from b", qos)
    here.publish(f"unix/{qos}/kept", b"from a", qos, retain=True)
    for client in (here, there):
        client.wait_for_payload(b"from b")
        client.wait_for_payload(b"from a")
    later = connect(net.port("b"))
    later.subscribe(f"unix/{qos}/kept", qos)
    later.wait_for_payload(b"from a")
    assert connections_by_tcp(net, "a") == connections_by_tcp(net, "b") == 0


def test_a_burst_at_qos_0_arrives_where_the_broker_may_queue_it(net: Network) -> None:
    frame = codec.encode(packets.Publish("unix/burst", b"x" * 32), 4)
    with RawClient(net.port("a")) as here, RawClient(net.port("a")) as there:
        for client, name in ((here, "burst-in"), (there, "burst-out")):
            client.send(packets.Connect(client_id=name))
            client.read_packets(1)
        there.send(packets.Subscribe(1, (packets.Subscription("unix/burst"),)))
        there.read_packets(1)
        sending = Thread(target=here.socket.sendall, args=(frame * BURST,))
        sending.start()
        missing = len(frame) * BURST
        while missing:
            piece = there.socket.recv(min(missing, 1 << 20))
            assert piece, f"the connection ended with {missing} bytes missing"
            missing -= len(piece)
        sending.join()


def test_status_names_the_socket(net: Network) -> None:
    address = str(socket_of(net["a"].broker))
    assert net.node("a").status()["node"]["broker"]["address"] == address
    assert address.startswith("unix:/")


def test_a_crowd_that_comes_while_the_broker_accepts_nobody_gets_in(net: Network) -> None:
    broker = net["a"].broker
    assert isinstance(broker, lab.Broker)
    with ExitStack() as stack:
        broker.pause()
        stack.callback(broker.resume)
        before = accepted(net.node("a"))
        crowd = [stack.enter_context(RawClient(net.port("a"))) for _ in range(CROWD)]
        for number, client in enumerate(crowd):
            client.send(packets.Connect(client_id=f"crowd-{number}"))
        wait_until(lambda: accepted(net.node("a")) == before + CROWD, "the crowd at the node")
        broker.resume()
        assert {client.read_packets(1) for client in crowd} == {bytes((0x20, 2, 0, 0))}


def accepted(node: LabNode) -> int:
    return int(node.status()["counters"]["accepted_connections"])


def test_a_broker_that_was_killed_is_found_again_at_its_socket(net: Network, connect: Connect) -> None:
    broker = net["b"].broker
    assert isinstance(broker, lab.Broker)
    broker.restart(kill=True)
    net.node("b").wait_for_links(1)
    here, there = connect(net.port("a")), connect(net.port("b"))
    there.subscribe("unix/after", 1)
    net.settle()
    here.publish("unix/after", b"again", 1)
    there.wait_for_payload(b"again")


def test_a_socket_that_is_not_there_is_a_broker_that_is_away(connect: Connect, tmp_path: Path) -> None:
    often = {"links": {"reconnect_min": 0.01, "reconnect_max": 0.01}}
    settings = merged(QUICK, often | {"node": {"broker": f"unix:{tmp_path}/none.sock", "log_level": "info"}})
    node = LabNode("a", lab.free_port(), settings=settings)

    def tried() -> list[str]:
        lines = node.log_tail(1_000_000).splitlines()
        return [line for line in lines if "cannot reach a broker at unix:/" in line]

    start_all([node.start])
    try:
        assert connect(node.port, expect_refusal=True).code != 0
        assert [row["state"] for row in node.status()["injectors"] if row["state"] == "ready"] == []
        assert "Traceback" not in node.log_tail(1000)
        wait_until(lambda: len(tried()) > 2, "it is tried again")
        assert sum("WARNING" in line for line in tried()) == 1
    finally:
        node.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_would_have_to_wait_at_a_full_socket_gets_in_later(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    address = UnixSocket(f"{tmp_path}/full.sock")

    async def come(listener: socket.socket, waiting: int) -> None:
        plain = asyncio.ensure_future(dial(address, asyncio.Protocol))
        streams = asyncio.ensure_future(open_streams(address))
        done, _ = await asyncio.wait((plain, streams), timeout=0.1)
        assert not done
        for _ in range(waiting + 2):
            (await asyncio.get_running_loop().sock_accept(listener))[0].close()
        await asyncio.wait_for(plain, 10)
        _, writer = await asyncio.wait_for(streams, 10)
        writer.close()

    with ExitStack() as stack, asyncio.Runner(loop_factory=loop) as runner:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(address.path)
        listener.listen(1)
        listener.setblocking(False)
        waiting = 0
        with suppress(BlockingIOError):
            while True:
                sock = stack.enter_context(socket.socket(socket.AF_UNIX))
                sock.setblocking(False)
                sock.connect(address.path)
                waiting += 1
        runner.run(come(listener, waiting))
