"""`python -m benchmarks.idle`: many idle clients through one relay: its memory for each, and connecting.

Owns opening connections on a fixed schedule (500 a second by default), whether or not earlier ones were
answered, in a process of its own so that its open files do not count against the relay's. Compared: HAProxy
and a node, one after the other, each with a fresh Mosquitto. A relay needs two files for each client.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.relay.meter import cpu_seconds, resident_bytes
from benchmarks.relay.relays import Node
from brokerweave import lab
from brokerweave.bench.load import wire
from brokerweave.config import Address
from brokerweave.lab.broker import HOST, Broker

_PATIENCE = 15.0  # seconds to wait for the last answers
_PINGED = 200
_CONNACK, _PINGREQ, _PINGRESP = b"\x20\x02\x00\x00", b"\xc0\x00", b"\xd0\x00"


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * share) - 1] if ordered else math.nan


@dataclass(frozen=True, slots=True)
class Connecting:
    """How connecting went; times in milliseconds from the first SYN to CONNACK."""

    accepted: int
    failed: int
    per_second: float
    """Accepted clients over the time from the first connect to the last CONNACK."""
    median_ms: float
    p99_ms: float
    relay_cpu: float
    bytes_each: float
    pinged: int
    """How many of the sampled clients were still served after the idle time."""


class Crowd:
    """The idle clients: each is a socket; its CONNACK is all it ever waits for."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._poll = select.epoll()
        self._waiting: dict[int, tuple[socket.socket, float]] = {}
        self.socks: list[socket.socket] = []
        self.times: list[float] = []
        self.failed = 0
        self.last = 0.0

    @property
    def open(self) -> int:
        return len(self._waiting)

    def connect(self) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect((HOST, self._port))
        self._waiting[sock.fileno()] = (sock, time.monotonic())
        self._poll.register(sock, select.EPOLLOUT)

    def serve(self, timeout: float) -> None:
        """Send CONNECT on what became open, take each CONNACK that came."""
        for fd, event in self._poll.poll(timeout):
            sock, since = self._waiting[fd]
            try:
                if event & select.EPOLLOUT:
                    sock.send(wire.connect(f"idle-{fd}-{os.getpid()}"))
                    self._poll.modify(fd, select.EPOLLIN)
                    continue
                good = sock.recv(len(_CONNACK)) == _CONNACK
            except OSError:
                good = False
            self._poll.unregister(fd)
            del self._waiting[fd]
            self.last = time.monotonic()
            if good:
                self.socks.append(sock)
                self.times.append((self.last - since) * 1e3)
            else:
                self.failed += 1
                sock.close()

    def ping(self) -> int:
        """How many of a sample of clients still get an answer."""
        answered = 0
        for sock in self.socks[:: max(1, len(self.socks) // _PINGED)]:
            sock.settimeout(5)
            with contextlib.suppress(OSError):
                sock.sendall(_PINGREQ)
                answered += sock.recv(2) == _PINGRESP
        return answered


def crowd(port: int, clients: int, rate: float, idle: float, relay_pid: int) -> Connecting:
    """Connect everyone on schedule, stay idle, then look at the relay."""
    people = Crowd(port)
    memory, cpu = resident_bytes(relay_pid), cpu_seconds(relay_pid)
    begin = time.monotonic()
    started = 0
    while started < clients:
        due = min(clients, int((time.monotonic() - begin) * rate) + 1)
        for _ in range(started, due):
            people.connect()
        started = due
        people.serve(max(0.0, begin + started / rate - time.monotonic()))
    limit = time.monotonic() + _PATIENCE
    while people.open and time.monotonic() < limit:
        people.serve(0.1)
    spent = cpu_seconds(relay_pid) - cpu
    time.sleep(idle)
    grown = resident_bytes(relay_pid) - memory
    return Connecting(
        accepted=len(people.times),
        failed=people.failed + people.open,
        per_second=len(people.times) / (people.last - begin),
        median_ms=statistics.median(people.times),
        p99_ms=percentile(people.times, 0.99),
        relay_cpu=spent,
        bytes_each=grown / clients,
        pinged=people.ping(),
    )


def measure(relay: Broker, clients: int, rate: float, idle: float) -> Connecting:
    """Run the crowd in a process of its own."""
    arguments = json.dumps([relay.port, clients, rate, idle, relay.pid])
    command = [sys.executable, "-m", "benchmarks.idle", "--crowd", arguments]
    limit = clients / rate + idle + _PATIENCE + 60
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=limit, check=True)
    return Connecting(**json.loads(done.stdout))


def raise_file_limit() -> int:
    """As many files as this process and its children may have; the number."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def compare(clients: int, rate: float, idle: float) -> dict[str, Connecting]:
    results = {}
    for kind in (lab.HAProxy, Node):
        if kind.missing():
            continue
        with lab.start("mosquitto") as broker:
            address = Address(broker.host, broker.port)
            relay = lab.HAProxy(backend=address) if kind is lab.HAProxy else Node("idle", address)
            with relay:
                results[relay.name] = measure(relay, clients, rate, idle)
    return results


def show(console: Console, clients: int, rate: float, results: dict[str, Connecting]) -> None:
    table = Table(title=f"{clients} idle clients, {rate:.0f} connects/s wanted")
    table.add_column("relay")
    for name in (
        "KiB/client",
        "connects/s",
        "failed",
        "CONNACK median, ms",
        "p99, ms",
        "CPU ms/connect",
        "pinged",
    ):
        table.add_column(name, justify="right")
    for name, got in results.items():
        table.add_row(
            name,
            f"{got.bytes_each / 1024:.1f}",
            f"{got.per_second:.0f}",
            str(got.failed),
            f"{got.median_ms:.2f}",
            f"{got.p99_ms:.2f}",
            f"{got.relay_cpu / clients * 1e3:.3f}",
            str(got.pinged),
        )
    console.print(table)
    if node := results.get("node"):
        fits = node.bytes_each <= 40 * 1024
        held = node.failed == 0 and node.per_second >= 0.99 * rate
        console.print(f"node memory: {node.bytes_each / 1024:.1f} KiB/client (must be ≤ 40): {_met(fits)}")
        console.print(f"{rate:.0f} connects/s: {node.per_second:.0f}: {_met(held)}")


def _met(good: bool) -> str:
    return "met" if good else "MISSED"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__)
    parser.add_argument("--clients", type=int, default=9000)
    parser.add_argument("--rate", type=float, default=500.0, help="connects a second")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds to stay idle")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--crowd", help=argparse.SUPPRESS)
    flags = parser.parse_args(arguments)
    files = raise_file_limit()
    if flags.crowd:
        print(json.dumps(asdict(crowd(*json.loads(flags.crowd)))))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 120)
    facts = machine.facts()
    clients = min(flags.clients, (files - 200) // 2)
    if clients < flags.clients:
        console.print(f"a process may hold {files} files here: {clients} clients instead of {flags.clients}")
    with machine.one_benchmark():
        results = compare(clients, flags.rate, flags.idle)
    console.print(*(f"{name} {value};" for name, value in facts.items()), highlight=False)
    show(console, clients, flags.rate, results)
    if flags.json:
        document = {"facts": facts, **{name: asdict(got) for name, got in results.items()}}
        flags.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
