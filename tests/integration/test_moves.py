"""Clients that move between sites of a mesh as planned, under load: nothing is lost, and nothing comes twice.

A message may change its place where a client, or its publisher, is new: docs/guarantees.md says when.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Connect
from brokerweave.session import proxy_header
from brokerweave.session.move_ticket import NUMBER_BYTES, PlannedMove, make
from tests.support.mover import Mover
from tests.support.raw import HOST, RawClient
from tests.support.sites import QUICK, Network, Settings, merged, network
from tests.support.verdicts import keeps, once_each
from tests.support.waiting import LIMIT, wait_until

NAMES = "abc"
EDGES = [(a, b) for number, a in enumerate(NAMES) for b in NAMES[:number]]
MESH: Settings = merged(QUICK, {"mesh": {"copies": 2, "window": 60.0}})
KEY = b"a key that all nodes share"
PAUSE = 0.004
"""Seconds between two publications of one publisher: some are in flight at each move."""
SHORT, LONG = 5, 250
"""Moves of a run; there are four runs."""
CLIENTS = [(4, 1), (4, 2), (5, 1), (5, 2)]
FROM_C = "to/mover"
FROM_MOVER = "from/mover"


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with mesh(tmp_path_factory.mktemp("moves")) as net:
        yield net


@contextmanager
def mesh(folder: Path) -> Iterator[Network]:
    key = folder / "key"
    key.write_bytes(KEY)
    settings = merged(MESH, {"node": {"key_file": str(key)}})
    with network(EDGES, strategy="mesh", settings=settings) as net:
        yield net


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 (many things change it)
            await asyncio.sleep(0.005)


def arrived(client: Mover, topic: str, count: int) -> Callable[[], bool]:
    return lambda: len(client.payloads(topic)) >= count


def out_of_order(client: Mover, topic: str) -> int:
    numbers = [int(payload) for payload in client.payloads(topic)]
    return sum(number < max(numbers[:at]) for at, number in enumerate(numbers) if at)


async def publishing(client: Mover, topic: str, qos: int, sent: list[bytes]) -> None:
    while True:
        payload = b"%d" % len(sent)
        sent.append(payload)
        client.publish(topic, payload, qos)
        await asyncio.sleep(PAUSE)


async def run(net: Network, moves: int, version: int, qos: int, persistent: bool) -> tuple[list[float], int]:
    """Move a client that publishes and subscribes; the gaps that it saw, and what changed its place."""
    name = f"mover-{version}-{qos}-{persistent}"
    mover = Mover(name, version, persistent, KEY)
    publisher, watcher = Mover(f"{name}-publisher", version), Mover(f"{name}-watcher", version)
    down, up = f"{name}/{FROM_C}", f"{name}/{FROM_MOVER}"
    to_mover: list[bytes] = []
    from_mover: list[bytes] = []
    await publisher.connect(net.port("c"))
    await watcher.connect(net.port("c"), {up: qos})
    await mover.connect(net.port("a"), {down: qos})
    load = [
        asyncio.create_task(publishing(publisher, down, qos, to_mover)),
        asyncio.create_task(publishing(mover, up, qos, from_mover)),
    ]
    for number in range(moves):
        await until(arrived(mover, down, len(mover.payloads(down)) + 3))
        old, new = NAMES[number % 3], NAMES[(number + 1) % 3]
        await mover.move(old, new, net.port(new))
    for task in load:
        task.cancel()
    await asyncio.gather(*load, return_exceptions=True)
    await until(lambda: not publisher.pending + mover.pending)
    await until(arrived(mover, down, len(to_mover)))
    await until(arrived(watcher, up, len(from_mover)))
    once_each(mover.payloads(down), to_mover, f"the client that moved, MQTT {version}, QoS {qos}")
    once_each(watcher.payloads(up), from_mover, f"who watched it, MQTT {version}, QoS {qos}")
    keeps(mover.resumed == 0, f"{mover.resumed} sessions were left where it came again")
    for client in (mover, publisher, watcher):
        client.close()
    return mover.gaps(), out_of_order(mover, down) + out_of_order(watcher, up)


def counted(net: Network, counter: str) -> int:
    return sum(site.node.status()["counters"].get(counter, 0) for site in net.sites.values())


def moved(net: Network, moves: int, persistent: bool) -> None:
    before = {each: counted(net, each) for each in ("moves_drained", "moves_late", "moves_nothing")}
    gaps: list[float] = []
    places = 0
    for version, qos in CLIENTS:
        seen, changed = asyncio.run(run(net, moves, version, qos, persistent))
        gaps += seen
        places += changed
    total = len(CLIENTS) * moves
    after = {each: counted(net, each) - count for each, count in before.items()}
    ends = statistics.quantiles(gaps, n=100)
    print(
        f"{total} moves: 0 lost, 0 doubled, {places} out of order; gap "
        f"{1000 * statistics.median(gaps):.1f} ms at the median, {1000 * ends[98]:.1f} ms at 99 %, "
        f"{1000 * max(gaps):.1f} ms at most; {after}"
    )
    assert after == {"moves_drained": total, "moves_late": 0, "moves_nothing": 0}
    assert len(gaps) == total


@pytest.mark.parametrize("persistent", [False, True])
def test_a_client_that_moves_as_planned_misses_nothing_and_gets_nothing_twice(
    sites: Network, persistent: bool
) -> None:
    moved(sites, SHORT, persistent)


@pytest.mark.slow
def test_a_thousand_planned_moves(sites: Network) -> None:
    moved(sites, LONG, persistent=True)


def header(ticket: bytes | None) -> bytes:
    tlvs = () if ticket is None else ((proxy_header.TICKET, ticket),)
    return proxy_header.encode((HOST, 1), (HOST, 2), *tlvs)


def refused(net: Network, said: bytes) -> None:
    before = net.node("b").status()["counters"].get("refused_headers", 0)
    with RawClient(net.port("b")) as client:
        client.socket.sendall(said + codec.encode(Connect("c", 4), 4))
        assert client.read_to_end() == b""
    wait_until(lambda: counted(net, "refused_headers") == before + 1, "the count")


def test_a_header_without_a_good_ticket_is_refused_and_says_why(sites: Network) -> None:
    move = PlannedMove("c", "a", "b", bytes(NUMBER_BYTES))
    refused(sites, header(None))
    refused(sites, header(make(b"another key", move, time.time() + 60)))
    refused(sites, header(make(KEY, move, time.time() - 60)))
    refused(
        sites, header(make(KEY, PlannedMove("c", "a", "elsewhere", bytes(NUMBER_BYTES)), time.time() + 60))
    )
    log = sites.node("b").log_tail(200)
    for reason in ("without a ticket", "not made with this cluster's key", "expired", "for site 'elsewhere'"):
        assert reason in log


def test_a_ticket_is_taken_once(sites: Network) -> None:
    move = PlannedMove("once", "a", "b", bytes(range(NUMBER_BYTES)))
    said = header(make(KEY, move, time.time() + 60))
    with RawClient(sites.port("b")) as client:
        client.socket.sendall(said + codec.encode(Connect("once", 4), 4))
        assert client.read_packets(1)
    refused(sites, said)
    assert "used before" in sites.node("b").log_tail(200)
