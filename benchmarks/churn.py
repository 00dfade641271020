"""`python -m benchmarks.churn`: what a node still holds after many filters and clients have come and gone.

Owns the coming and going, at one of two linked sites, so that every filter also crosses to a neighbour and
back. No two filters and no two clients have the same name: whatever is kept of one is seen. Filters come in
rounds, and memory is looked at after each: what is kept for good grows in every round; a heap that still
finds its size, only in some. One round goes first, so that what a node needs once is not taken for what it
keeps.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.relay.meter import resident_bytes
from brokerweave import lab
from brokerweave.config import Address
from brokerweave.lab.broker import HOST
from brokerweave.lab.node import LabNode
from brokerweave.mqtt.packets import UnsubAck, Unsubscribe
from brokerweave.runtime.client import Client

AT_ONCE = 4  # clients at a time
BATCH = 500  # filters in one SUBSCRIBE
ROUNDS = 10
PATIENCE = 60.0  # seconds to wait for any answer
BACK = 1.05  # of what it was: this counts as back
LARGE = 128 << 10
"""From this size on a freed block goes back to the system. glibc begins with it and raises it by itself when
such blocks are freed; then each table that Python remakes, such as that of its interned names (1.8 MiB), may
leave a hole in the heap, and resident memory tells where blocks happened to lie, not what a node holds."""
STEADY = 1.0  # bytes a filter in the median round: an eighth of a reference, so nothing is kept of each


@dataclass(frozen=True, slots=True)
class Rest:
    """What a node has of clients: all zero when none is there."""

    clients: int
    sessions: int
    filters: int
    told: int
    heard: int

    @classmethod
    def of(cls, node: LabNode) -> Rest:
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
        async with await Client.connect(Address(HOST, port), client_id=client_id, timeout=PATIENCE) as client:
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
            Address(HOST, port), client_id=client_id, clean_start=clean, timeout=PATIENCE
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


def wait_until_forgotten(nodes: Iterable[LabNode]) -> None:
    """Nodes hear of an end a moment after the client does; raises `Unavailable` if they keep something."""
    for node in nodes:
        node.wait_for(lambda _, node=node: Rest.of(node) == NOTHING, "forgetting all clients", PATIENCE)  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Growth:
    """Resident bytes of one node: at its start, after the first round, each round, and the connections."""

    node: str
    start: int
    before: int
    rounds: tuple[int, ...]
    clients: int
    filters: int
    """In a round."""

    @property
    def ratio(self) -> float:
        return max(self.rounds[-1], self.clients) / self.before

    @property
    def steady(self) -> float:
        """Bytes a filter by which the median round grew: what a leak has, and single steps have not."""
        steps = (after - before for before, after in itertools.pairwise((self.before, *self.rounds)))
        return statistics.median(steps) / self.filters

    @property
    def verdict(self) -> str:
        if self.steady > STEADY:
            return "LEAKS"
        return "back" if self.ratio <= BACK else "GREW"


def churn(near: LabNode, far: LabNode, filter_count: int, client_count: int) -> list[Growth]:
    """Let filters and clients come and go at `near`; what that left behind there and at `far`."""
    nodes = (near, far)
    count = filter_count // ROUNDS

    def resident() -> list[int]:
        wait_until_forgotten(nodes)
        return [resident_bytes(node.pid) for node in nodes]

    def a_round(number: int) -> list[int]:
        asyncio.run(filters(near.port, count, f"round-{number}"))
        return resident()

    start = resident()
    asyncio.run(clients(near.port, max(client_count // 20, 10 * AT_ONCE), "warm-clients"))
    before = a_round(0)
    rounds = [*zip(*(a_round(number) for number in range(1, ROUNDS + 1)), strict=True)]
    asyncio.run(clients(near.port, client_count, "clients"))
    figures = zip(start, before, rounds, resident(), strict=True)
    return [Growth(node.id, *each, count) for node, each in zip(nodes, figures, strict=True)]


def show(console: Console, growths: Sequence[Growth], took: float) -> None:
    table = Table("resident, MiB", *(growth.node for growth in growths))

    def add(name: str, cells: Iterable[str]) -> None:
        table.add_row(name, *cells)

    def sizes(stage: Callable[[Growth], int]) -> list[str]:
        return [f"{stage(growth) / 2**20:.2f}" for growth in growths]

    add("at the start", sizes(lambda growth: growth.start))
    add("before: after a first round", sizes(lambda growth: growth.before))
    for number in range(ROUNDS):
        add(f"round {number + 1}", sizes(lambda growth, number=number: growth.rounds[number]))  # type: ignore[misc]
    add("connections", sizes(lambda growth: growth.clients))
    add("at the end / before", (f"{growth.ratio:.3f}" for growth in growths))
    add("bytes a filter in the median round", (f"{growth.steady:.2f}" for growth in growths))
    add("", (growth.verdict for growth in growths))
    console.print(table)
    console.print(f"took {took:.0f} s; sessions, filters and inter-subscriptions were all forgotten")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.churn", description=__doc__)
    parser.add_argument("--filters", type=int, default=1_000_000, help="subscribed to and unsubscribed from")
    parser.add_argument("--clients", type=int, default=10_000, help="connected and disconnected")
    parser.add_argument("--deployed", action="store_true", help="leave the allocator to find its own limits")
    flags = parser.parse_args(arguments)
    if not flags.deployed:
        os.environ["MALLOC_MMAP_THRESHOLD_"] = str(LARGE)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(*(f"{name} {value};" for name, value in machine.facts().items()), highlight=False)
    with contextlib.ExitStack() as stack:
        stack.enter_context(machine.one_benchmark())
        brokers = [stack.enter_context(lab.start("mosquitto")) for _ in range(2)]
        far = stack.enter_context(LabNode("far", brokers[1].port))
        near = stack.enter_context(LabNode("near", brokers[0].port, (far,)))
        near.wait_for_links(1)
        begin = time.monotonic()
        growths = churn(near, far, flags.filters, flags.clients)
    show(console, growths, time.monotonic() - begin)
    return 0 if all(growth.verdict == "back" for growth in growths) else 1


if __name__ == "__main__":
    sys.exit(main())
