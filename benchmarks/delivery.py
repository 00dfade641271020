"""`python -m benchmarks.delivery`: what `delivery = "cluster"` and a mesh cost beside `delivery = "local"`.

Two sites. In front of the near broker stand nodes that differ in their way to the far site: `sf` with either
`delivery`, both linked to one node there, and `mesh` with two copies, linked to a node of its own there. They
take turns, so that a noisy machine disturbs all alike. QoS 1 from end to end, closed loop: a publisher sends
the next message when one is acknowledged. Measured: publishers with full windows (messages acknowledged a
second), then a single message under way at a time (milliseconds to the acknowledgement, and to the far
subscriber), then the nodes at rest, with the clients of before gone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import uvloop
from psutil import Process
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.relay.measure import Spread
from benchmarks.relay.meter import cpu_seconds, preferred
from benchmarks.relay.scene import MOSQUITTO_CONFIG
from brokerweave import lab
from brokerweave.bench.folder import HEADER
from brokerweave.bench.load import wire
from brokerweave.bench.load.clients import open_one
from brokerweave.lab.broker import HOST
from brokerweave.lab.node import LabNode

WAYS = ("local", "cluster", "mesh")
PUBLISHERS = 5
PAYLOAD = 32
"""Bytes of each message."""
ACK_LENGTH = 4
_ID = struct.Struct("!H")
BROKER = (*MOSQUITTO_CONFIG, "max_queued_messages 0")
"""What a broker drops by its own bound is nothing that a node delivered or did not."""
_PATIENCE = 1000  # hundredths of a second to wait for what is still under way


class _Client(asyncio.Protocol):
    """A connection whose handshake is over."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def close(self) -> None:
        self._transport.close()


class Publisher(_Client):
    """Keeps `window` messages under way until it is told to stop."""

    def __init__(self, number: int, window: int) -> None:
        self.acked_after: list[int] = []
        self.sent = 0
        self.going = True
        self._number = number
        self._window = window
        self._head = wire.publish_head(f"bench/{number}", 1, PAYLOAD)
        self._under_way: dict[bytes, int] = {}
        self._rest = b""

    def start(self) -> None:
        for _ in range(self._window):
            self._publish()

    def _publish(self) -> None:
        self.sent += 1
        packet_id = _ID.pack(self.sent % 0xFFFF + 1)
        now = self._under_way[packet_id] = time.monotonic_ns()
        header = HEADER.pack(self._number, self.sent, now)
        self._transport.write(self._head + packet_id + header + wire.padding(PAYLOAD))

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        now = time.monotonic_ns()
        whole = len(data) - len(data) % ACK_LENGTH
        for at in range(0, whole, ACK_LENGTH):
            self.acked_after.append(now - self._under_way.pop(data[at + 2 : at + 4]))
            if self.going:
                self._publish()
        self._rest = data[whole:]

    @property
    def idle(self) -> bool:
        return not self._under_way


class Subscriber(_Client):
    """Acknowledges at once, and notes how long each message took."""

    def __init__(self) -> None:
        self.arrived_after: list[int] = []
        self._before_id = len(wire.publish_head("bench/0", 1, PAYLOAD))
        self._length = self._before_id + _ID.size + PAYLOAD
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        now = time.monotonic_ns()
        acks = []
        whole = len(data) - len(data) % self._length
        for at in range(0, whole, self._length):
            payload = at + self._before_id + _ID.size
            self.arrived_after.append(now - HEADER.unpack_from(data, payload)[2])
            acks.append(wire.acknowledgement(wire.PUBACK, data[payload - _ID.size : payload]))
        self._rest = data[whole:]
        self._transport.write(b"".join(acks))


@dataclass(frozen=True, slots=True)
class Run:
    """Times in milliseconds, medians; CPU of both nodes in microseconds for each message."""

    per_second: float
    """Acknowledged to the publishers."""
    delivered: float
    """A second at the far subscriber, until the last of them was there."""
    ack_ms: float
    arrival_ms: float
    cpu_us: float
    missing: int


async def _attach(client: _Client, sock: socket.socket) -> None:
    await asyncio.get_running_loop().create_connection(lambda: client, sock=sock)


async def run(
    port: int, far_port: int, pids: Sequence[int], publishers: int, window: int, seconds: float
) -> Run:
    far = Subscriber()
    near = [Publisher(number, window) for number in range(publishers)]
    await _attach(far, open_one((HOST, far_port), "far", "bench/#", 1))
    for number, publisher in enumerate(near):
        await _attach(publisher, open_one((HOST, port), f"publisher-{number}"))
    cpu, begin = sum(map(cpu_seconds, pids)), time.monotonic()
    for publisher in near:
        publisher.start()
    await asyncio.sleep(seconds)
    acked, took = sum(len(publisher.acked_after) for publisher in near), time.monotonic() - begin
    for publisher in near:
        publisher.going = False
    sent = sum(publisher.sent for publisher in near)
    for _ in range(_PATIENCE):
        if len(far.arrived_after) >= sent and all(publisher.idle for publisher in near):
            break
        await asyncio.sleep(0.01)
    delivered = len(far.arrived_after) / (time.monotonic() - begin)
    for each in (*near, far):
        each.close()
    after = [nanoseconds for publisher in near for nanoseconds in publisher.acked_after]
    return Run(
        per_second=acked / took,
        delivered=delivered,
        ack_ms=statistics.median(after) / 1e6,
        arrival_ms=statistics.median(far.arrived_after) / 1e6,
        cpu_us=(sum(map(cpu_seconds, pids)) - cpu) / sent * 1e6,
        missing=sent - len(far.arrived_after),
    )


@dataclass(frozen=True, slots=True)
class Rest:
    """Of both nodes."""

    cpu_ms: float
    """In a second."""
    memory_mib: float


@dataclass(frozen=True, slots=True)
class Way:
    near: LabNode
    far: LabNode

    @property
    def pids(self) -> tuple[int, int]:
        return self.near.pid, self.far.pid

    def run(self, publishers: int, window: int, seconds: float) -> Run:
        return uvloop.run(run(self.near.port, self.far.port, self.pids, publishers, window, seconds))

    def late(self) -> int:
        """Acknowledgements that did not wait to the end: a result with such would be too good."""
        counters = self.near.status()["counters"]
        return int(counters.get("cluster_timeouts", 0) + counters["cluster_overflows"])


def at_rest(ways: dict[str, Way], seconds: float) -> dict[str, Rest]:
    before = {name: sum(map(cpu_seconds, way.pids)) for name, way in ways.items()}
    time.sleep(seconds)
    return {
        name: Rest(
            (sum(map(cpu_seconds, way.pids)) - before[name]) / seconds * 1e3,
            sum(Process(pid).memory_info().rss for pid in way.pids) / 2**20,
        )
        for name, way in ways.items()
    }


@contextlib.contextmanager
def sites() -> Iterator[dict[str, Way]]:
    with contextlib.ExitStack() as stack:
        start = stack.enter_context
        near, far = (start(lab.start("mosquitto", config=BROKER)).port for _ in range(2))
        shared = start(LabNode("far", far))
        alone = start(LabNode("far-mesh", far, strategy="mesh"))
        ways = {
            way: Way(start(LabNode(way, near, (shared,), settings={"node": {"delivery": way}})), shared)
            for way in ("local", "cluster")
        }
        ways["mesh"] = Way(start(LabNode("mesh", near, (alone,), strategy="mesh")), alone)
        for way in ways.values():
            way.near.wait_for_links(1)
        yield ways


def show(console: Console, title: str, runs: dict[str, list[Run]]) -> None:
    columns = ("to PUBACK, ms", "to the far subscriber, ms", "nodes' CPU, µs", "missing")
    table = Table("", "acknowledged/s", "delivered/s", *columns)
    table.title = f"{title}; median of rounds (lowest to highest)"
    of: tuple[Callable[[Run], float], ...] = (
        lambda run: run.per_second,
        lambda run: run.delivered,
        lambda run: run.ack_ms,
        lambda run: run.arrival_ms,
        lambda run: run.cpu_us,
    )
    for way, found in runs.items():
        cells = [_spread(Spread.of([value(run) for run in found])) for value in of]
        table.add_row(way, *cells, str(sum(run.missing for run in found)))
    for way, beside in (("cluster", "local"), ("mesh", "cluster")):
        cells = [_spread(ratio(runs[way], runs[beside], value)) for value in of]
        table.add_row(f"{way} / {beside}", *cells, "")
    console.print(table)


def ratio(runs: list[Run], beside: list[Run], of: Callable[[Run], float]) -> Spread:
    """The ratio of medians, and the spread of the rounds' own ratios."""
    over, under = [of(run) for run in runs], [of(run) for run in beside]
    rounds = [a / b for a, b in zip(over, under, strict=True)]
    return Spread(statistics.median(over) / statistics.median(under), min(rounds), max(rounds))


def show_rest(console: Console, rest: dict[str, Rest]) -> None:
    table = Table("", "CPU, ms a second", "memory, MiB", title="both nodes at rest")
    for way, found in rest.items():
        table.add_row(way, f"{found.cpu_ms:.2f}", f"{found.memory_mib:.1f}")
    console.print(table)


def _spread(spread: Spread) -> str:
    median, low, high = (
        f"{value:.0f}" if value >= 100 else f"{value:.3g}"
        for value in (spread.median, spread.low, spread.high)
    )
    return f"{median} ({low} to {high})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delivery", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one run")
    parser.add_argument("--rest", type=float, default=20.0, help="seconds at rest")
    parser.add_argument("--window", type=int, default=20, help="messages that a publisher has under way")
    parser.add_argument("--first", action="store_true", help="go before everything else on a busy machine")
    flags = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 170)
    console.print(*(f"{name} {value};" for name, value in machine.facts().items()), highlight=False)
    full: dict[str, list[Run]] = {way: [] for way in WAYS}
    single: dict[str, list[Run]] = {way: [] for way in WAYS}
    with contextlib.ExitStack() as stack:
        stack.enter_context(machine.one_benchmark())
        if flags.first and not stack.enter_context(preferred()):
            console.print("note: CPU control groups are not writable here: --first had no effect")
        there = stack.enter_context(sites())
        for way in WAYS:
            there[way].run(PUBLISHERS, flags.window, 1.0)  # to warm up
        for _ in range(flags.rounds):
            for way in WAYS:
                full[way].append(there[way].run(PUBLISHERS, flags.window, flags.seconds))
                single[way].append(there[way].run(1, 1, flags.seconds))
        late = there["cluster"].late() + there["mesh"].late()
        rest = at_rest(there, flags.rest)
    show(console, f"{PUBLISHERS} publishers with {flags.window} messages under way each", full)
    show(console, "one message under way", single)
    show_rest(console, rest)
    console.print(f"acknowledgements that did not wait for the far site to the end: {late}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
