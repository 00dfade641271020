"""`python -m benchmarks.failover.join`: sites join a mesh under load, and at once get a client.

That client subscribes to everything at the new site as soon as the site says that it is ready. Ends with 1
unless it got everything that was published from its SUBACK on, once, and nobody else missed anything.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.failover.client import PAYLOAD, Subscriber
from benchmarks.failover.record import Life, Received, Record
from benchmarks.failover.scene import PATIENCE, Plan, Scene, Site, loaded
from brokerweave.errors import Unavailable
from brokerweave.lab.broker import HOST

MARGIN = 2.0
"""Seconds before its end from which on the client may miss something that is still on its way."""


class Everything(Subscriber):
    """A subscriber of all topics."""

    def __init__(self, port: int, qos: int) -> None:
        super().__init__((HOST, port), Received(Life("joiner"), 0), qos, persistent=False)
        self._filter = b"\x00\x0afailover/#" + bytes((qos,))
        self.got: Counter[tuple[int, int]] = Counter()

    def _publish(self, qos: int, body: bytes) -> None:
        before = len(self.record.numbers)
        super()._publish(qos, body)
        if len(self.record.numbers) > before:
            topic, number = PAYLOAD.unpack(body[-PAYLOAD.size :])
            self.got[topic, number] += 1


@dataclass(slots=True)
class Stay:
    subscribed: float
    left: float
    got: Counter[tuple[int, int]] = field(repr=False)
    lost: int = 0
    doubled: int = 0
    expected: int = 0


async def stay(site: Site, qos: int, seconds: float) -> Stay:
    client = Everything(site.node.port, qos)
    client.dial()
    deadline = time.monotonic() + PATIENCE
    while not client.ready:
        if time.monotonic() > deadline:
            raise Unavailable("the new site's client was not subscribed in time")
        await asyncio.sleep(0.002)
    await asyncio.sleep(seconds)
    left = time.monotonic()
    await asyncio.sleep(0.1)
    client.leave()
    await asyncio.sleep(0.1)
    return Stay(client.life.subscribed[0], left, client.got)


def judge(stays: Sequence[Stay], record: Record) -> None:
    for each in stays:
        for topic, sent in enumerate(record.published):
            for number, made in enumerate(sent.created):
                owed = each.subscribed < made < each.left - MARGIN and sent.taken[number] is not None
                each.expected += owed
                each.lost += owed and not each.got[topic, number]
        each.doubled = sum(count - 1 for count in each.got.values())


def others(record: Record) -> tuple[int, int]:
    """Lost and doubled at subscribers that were there all the time."""
    lost = doubled = 0
    for got in record.received:
        counted = Counter(got.numbers)
        taken = record.published[got.topic].taken
        lost += sum(at is not None and not counted[number] for number, at in enumerate(taken))
        doubled += sum(count - 1 for count in counted.values())
    return lost, doubled


def run(plan: Plan, times: int, seconds: float) -> tuple[list[Stay], Record]:
    scene = Scene(plan)
    stays = []
    try:
        scene.start()
        with loaded(plan, [(HOST, scene.balancer.port)]) as (load, out):
            for number in range(times):
                site = Site(f"new{number}", plan, tuple(scene.sites))
                try:
                    site.start()
                    deadline = time.monotonic() + PATIENCE
                    while not site.is_ready():
                        if time.monotonic() > deadline:
                            raise Unavailable(f"{site.name} was not ready in {PATIENCE:g} s")
                        time.sleep(0.005)
                    stays.append(asyncio.run(stay(site, plan.subscribe_qos, seconds)))
                finally:
                    site.close()
                print(f"  {site.name} joined and left", file=sys.stderr)
            assert load.stdin is not None
            load.stdin.close()
            if load.wait(2 * PATIENCE):
                raise Unavailable(f"the load ended with {load.returncode}")
            record = Record.read(out)
    finally:
        scene.close()
    judge(stays, record)
    return stays, record


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover.join", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4.0, help="that each new site stays")
    parser.add_argument("--topics", type=int, default=40)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--qos", type=int, choices=(1, 2), default=1)
    flags = parser.parse_args(arguments)
    plan = Plan("mesh", topics=flags.topics, rate=flags.rate, publish_qos=flags.qos, subscribe_qos=flags.qos)
    stays, record = run(plan, flags.times, flags.seconds)
    for each in stays:
        print(each)
    lost, doubled = others(record)
    print(f"at the other sites' subscribers: {lost} lost, {doubled} doubled")
    good = all(each.expected and not each.lost and not each.doubled for each in stays)
    return 0 if good and not lost and not doubled else 1


if __name__ == "__main__":
    sys.exit(main())
