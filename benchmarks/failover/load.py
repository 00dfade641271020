"""The load: all clients in one process, publishing by the clock until its standard input ends.

    python -m benchmarks.failover.load '{"addresses": [["127.0.0.1", 1883]], "out": "/tmp/record", ...}'

Prints `ready` when everybody is connected and subscribed; then publishes. When its input ends it waits, in
bounds, until nothing arrives any more, and writes the record. Invariant: publications are due by the clock
whether or not earlier ones were acknowledged; what a publisher cannot send now, it sends as soon as it can.
Must not know: who is killed, or when.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.failover.client import Address, Client, Publisher, Subscriber
from benchmarks.failover.record import Life, Published, Received, Record

TICK = 0.004
BATCH = 20
"""Clients that connect at once, at the start."""


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """`rate` is publications a second in all; `topics` publishers, with `subscribers` each.

    Publisher n, and the nth subscriber of each topic, connect to the nth of `addresses`, and then from the
    first one on again.
    """

    addresses: Sequence[Address]
    out: str
    rate: float
    topics: int
    subscribers: int = 1
    publish_qos: int = 1
    subscribe_qos: int = 1
    persistent: bool = False
    start_seconds: float = 60.0
    quiet_seconds: float = 2.0
    """After the end: this long without an arrival is the end."""
    drain_seconds: float = 30.0


class Load:
    def __init__(self, spec: LoadSpec) -> None:
        self.spec = spec
        self.late = 0.0
        places = [(str(host), int(port)) for host, port in spec.addresses]
        self.publishers = [
            Publisher(places[n % len(places)], Published(Life(f"p{n}"), n), spec.publish_qos, spec.persistent)
            for n in range(spec.topics)
        ]
        self.subscribers = [
            Subscriber(
                places[n // spec.topics % len(places)],
                Received(Life(f"s{n}"), n % spec.topics),
                spec.subscribe_qos,
                spec.persistent,
            )
            for n in range(spec.topics * spec.subscribers)
        ]

    async def start(self) -> None:
        clients: list[Client] = [*self.subscribers, *self.publishers]
        deadline = time.monotonic() + self.spec.start_seconds
        for begin in range(0, len(clients), BATCH):
            batch = clients[begin : begin + BATCH]
            for client in batch:
                client.dial()
            while not all(client.ready for client in batch):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not all clients were connected in {self.spec.start_seconds:g} s")
                await asyncio.sleep(0.01)

    async def publish(self, stop: asyncio.Event) -> None:
        begin, sent, count = time.monotonic(), 0, len(self.publishers)
        while not stop.is_set():
            woken = time.monotonic()
            due = int((woken - begin) * self.spec.rate)
            for number in range(sent, due):
                self.publishers[number % count].publish()
            sent = due
            await asyncio.sleep(TICK)
            self.late = max(self.late, time.monotonic() - woken - TICK)

    async def drain(self) -> None:
        """Until every publication is acknowledged and nothing has arrived for a while."""
        deadline = time.monotonic() + self.spec.drain_seconds
        seen, since = -1, time.monotonic()
        while (moment := time.monotonic()) < deadline:
            count = sum(len(each.record.numbers) for each in self.subscribers)
            if count != seen or not all(each.idle for each in self.publishers):
                seen, since = count, moment
            elif moment - since > self.spec.quiet_seconds:
                return
            await asyncio.sleep(0.05)

    def leave(self) -> Record:
        for client in (*self.publishers, *self.subscribers):
            client.leave()
        return Record(
            [each.record for each in self.publishers], [s.record for s in self.subscribers], self.late
        )


async def run(spec: LoadSpec) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def input_arrived() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())
            stop.set()

    load = Load(spec)
    await load.start()
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection over all that was recorded would stand still for longer than what is measured
    loop.add_reader(sys.stdin.fileno(), input_arrived)
    print("ready", flush=True)
    await load.publish(stop)
    await load.drain()
    load.leave().write(Path(spec.out))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(LoadSpec(**json.loads(sys.argv[1]))))
