"""`python -m benchmarks.churn`: what a node still holds after many filters and clients have come and gone.

Owns the coming and going, at one of two linked sites, so that every filter also crosses to a neighbour and
back. No two filters and no two clients have the same name: whatever is kept of one is seen. A smaller round
goes first, so that what a node needs once is not taken for what it keeps.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.relay.meter import resident_bytes
from brokerweave import lab
from brokerweave.lab.broker import HOST
from brokerweave.lab.node import Node
from brokerweave.mqtt.packets import UnsubAck, Unsubscribe
from brokerweave.runtime.client import Client

AT_ONCE = 10  # clients at a time
BATCH = 200  # filters in one SUBSCRIBE
WARM_UP = 0.05  # of everything, before memory is looked at
PATIENCE = 60.0  # seconds to wait for any answer
BACK = 1.05  # of what it was: this counts as back


@dataclass(frozen=True, slots=True)
class Rest:
    """What a node has of clients: all zero when none is there."""

    clients: int
    sessions: int
    filters: int
    told: int
    heard: int

    @classmethod
    def of(cls, node: Node) -> Rest:
        status = node.status()
        return cls(
            status["sessions"]["open"],
            status["sessions"]["remembered"],
            status["filters"]["local"],
            sum(row["filters_to"] for row in status["links"]),
            sum(row["filters_from"] for row in status["links"]),
        )


NOTHING = Rest(0, 0, 0, 0, 0)


async def filters(port: int, count: int, name: str) -> None:
    """Subscribe to and unsubscribe from that many filters, by several clients."""

    async def one(number: int) -> None:
        client_id = f"{name}-{number}"
        async with await Client.connect(HOST, port, client_id=client_id, timeout=PATIENCE) as client:
            for begin in range(number * BATCH, count, AT_ONCE * BATCH):
                batch = range(begin, min(begin + BATCH, count))
                wanted = tuple(f"site/{name}/filter/{each}/with/+/levels" for each in batch)
                granted = await client.subscribe(*wanted, qos=1)
                assert granted == (1,) * len(wanted), "the broker refused a filter"
                packet_id = client.next_id()
                client.send(Unsubscribe(packet_id, wanted))
                await client.answer(UnsubAck, packet_id)

    await _all(one)


async def clients(port: int, count: int, name: str) -> None:
    """That many connections, each with a filter. Every fifth ends the session that the fourth left behind."""

    async def connection(client_id: str, clean: bool) -> None:
        async with await Client.connect(
            HOST, port, client_id=client_id, clean_start=clean, timeout=PATIENCE
        ) as client:
            await client.subscribe(f"client/{client_id}/#", qos=1)

    async def one(number: int) -> None:
        for turn in range(number, count // 5, AT_ONCE):
            for client_id, clean in (("1", True), ("2", True), ("3", True), ("4", False), ("4", True)):
                await connection(f"{name}-{turn}-{client_id}", clean)

    await _all(one)


async def _all(one: Callable[[int], Coroutine[None, None, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(AT_ONCE):
            group.create_task(one(number))


def wait_until_forgotten(nodes: Iterable[Node]) -> None:
    """Nodes hear of an end a moment after the client does; raises `Unavailable` if they keep something."""
    for node in nodes:
        node.wait_for(lambda _, node=node: Rest.of(node) == NOTHING, "forgetting all clients", PATIENCE)  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Growth:
    """Resident bytes of one node: before, after half of the filters and all, after the connections.

    What is kept for good shows as much between half and all as before.
    """

    node: str
    before: int
    half: int
    filters: int
    clients: int

    @property
    def ratio(self) -> float:
        return max(self.filters, self.clients) / self.before


def churn(near: Node, far: Node, filter_count: int, client_count: int) -> list[Growth]:
    """Let filters and clients come and go at `near`; what that left behind there and at `far`."""
    nodes = (near, far)

    def resident() -> list[int]:
        wait_until_forgotten(nodes)
        return [resident_bytes(node.pid) for node in nodes]

    # As many at a time as later: what a node needs for that it may keep.
    asyncio.run(filters(near.port, max(int(filter_count * WARM_UP), 2 * AT_ONCE * BATCH), "warm-filters"))
    asyncio.run(clients(near.port, max(int(client_count * WARM_UP), 10 * AT_ONCE), "warm-clients"))
    before = resident()
    asyncio.run(filters(near.port, filter_count // 2, "half"))
    half = resident()
    asyncio.run(filters(near.port, filter_count - filter_count // 2, "all"))
    all_filters = resident()
    asyncio.run(clients(near.port, client_count, "clients"))
    figures = zip(before, half, all_filters, resident(), strict=True)
    return [Growth(node.id, *each) for node, each in zip(nodes, figures, strict=True)]


def show(console: Console, growths: Iterable[Growth], took: float) -> None:
    table = Table("node", "before, MiB", "half of the filters", "all filters", "connections", "ratio", "")
    for growth in growths:
        stages = (growth.before, growth.half, growth.filters, growth.clients)
        sizes = (f"{size / 2**20:.2f}" for size in stages)
        verdict = "back" if growth.ratio <= BACK else "GREW"
        table.add_row(growth.node, *sizes, f"{growth.ratio:.3f}", verdict)
    console.print(table)
    console.print(f"took {took:.0f} s; sessions, filters and inter-subscriptions were all forgotten")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.churn", description=__doc__)
    parser.add_argument("--filters", type=int, default=1_000_000, help="subscribed to and unsubscribed from")
    parser.add_argument("--clients", type=int, default=10_000, help="connected and disconnected")
    flags = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(*(f"{name} {value};" for name, value in machine.facts().items()), highlight=False)
    with contextlib.ExitStack() as stack:
        stack.enter_context(machine.one_benchmark())
        brokers = [stack.enter_context(lab.start("mosquitto")) for _ in range(2)]
        far = stack.enter_context(Node("far", brokers[1].port))
        near = stack.enter_context(Node("near", brokers[0].port, (far,)))
        near.wait_for_links(1)
        begin = time.monotonic()
        growths = churn(near, far, flags.filters, flags.clients)
    show(console, growths, time.monotonic() - begin)
    return 0 if all(growth.ratio <= BACK for growth in growths) else 1


if __name__ == "__main__":
    sys.exit(main())
