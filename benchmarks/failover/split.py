"""`python -m benchmarks.failover.split`: four sites of a mesh split into two and two under load, then healed.

Each site has its own network namespace (`wires`), and a subscriber of every topic. Publishers and subscribers
keep their connections: only sites lose each other. Ends with 1 unless within a half everything arrived all
the time, and after the split everything acknowledged is everywhere, once, retained messages included.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.failover.record import Record
from benchmarks.failover.scene import PATIENCE, Plan, Site, loaded, look_for_accidents
from benchmarks.failover.wires import Wires, missing
from brokerweave.config import Address
from brokerweave.errors import Unavailable
from brokerweave.runtime.client import Client

HALVES = ((0, 1), (2, 3))
SETTLE = 2.0
"""Seconds that a publication may be on its way within a half, on a busy machine."""
RETAINED = 20
"""Topics with a retained message, in each half and in both."""


@dataclass(slots=True)
class Found:
    published: int = 0
    acknowledged: int = 0
    within_lost: int = 0
    """Of what was acknowledged in a half during the split, and its subscribers did not have at its end."""
    within_slowest: float = 0.0
    across: int = 0
    """Publications of the split for the other half."""
    lost: int = 0
    doubled: int = 0
    reconciled: float = 0.0
    """Seconds from the healing until the last of them arrived."""
    retained_wrong: int = 0

    @property
    def good(self) -> bool:
        broken = self.within_lost or self.lost or self.doubled or self.retained_wrong
        return not broken and self.acknowledged == self.published and self.across > 0


def judge(record: Record, cut: float, healed: float, sites: int) -> Found:
    """Publisher n is at site n, the nth subscriber of a topic too, each modulo `sites`."""
    found = Found()
    topics = len(record.published)
    for number, got in enumerate(record.received):
        sent = record.published[got.topic]
        firsts: dict[int, float] = {}
        for which, at in zip(got.numbers, got.times, strict=True):
            found.doubled += which in firsts
            firsts.setdefault(which, at)
        same = _half(got.topic % sites) == _half(number // topics % sites)
        for which, (made, taken) in enumerate(zip(sent.created, sent.taken, strict=True)):
            if taken is None:
                continue
            arrived = firsts.get(which)
            found.lost += arrived is None
            if not cut <= made < healed - SETTLE:
                continue
            if same:
                found.within_lost += arrived is None or arrived > healed
                found.within_slowest = max(found.within_slowest, (arrived or healed) - made)
            else:
                found.across += 1
                found.reconciled = max(found.reconciled, (arrived or healed) - healed)
    found.published = sum(len(each.created) for each in record.published)
    found.acknowledged = sum(at is not None for each in record.published for at in each.taken)
    return found


def _half(site: int) -> int:
    return next(number for number, half in enumerate(HALVES) if site in half)


async def retain(sites: Sequence[Site], when: str) -> None:
    """In each half topics of its own, and topics that both halves write, one after the other."""
    for number, half in enumerate(HALVES):
        site = sites[half[0]]
        async with await Client.connect(Address(site.host, site.node.port), timeout=PATIENCE) as client:
            for topic in range(RETAINED):
                for name in (f"half{number}/{topic}", f"both/{topic}"):
                    await client.publish(f"kept/{name}", f"{when} {number}".encode(), qos=1, retain=True)


async def retained_wrong(sites: Sequence[Site], when: str) -> int:
    """Topics whose retained message is not the last one, at each site."""
    expected = {f"kept/half{number}/{topic}": number for number in (0, 1) for topic in range(RETAINED)}
    expected |= {f"kept/both/{topic}": 1 for topic in range(RETAINED)}
    wanted = {topic: f"{when} {number}".encode() for topic, number in expected.items()}
    wrong = 0
    for site in sites:
        async with await Client.connect(Address(site.host, site.node.port), timeout=PATIENCE) as client:
            await client.subscribe("kept/#", qos=1)
            await asyncio.sleep(1.0)
            messages = [client.messages.get_nowait() for _ in range(client.messages.qsize())]
            kept = {message.topic: message.payload for message in messages}
            wrong += sum(kept.get(topic) != payload for topic, payload in wanted.items())
    return wrong


def run(plan: Plan, seconds: float, calm: float) -> Found:
    wires = Wires(plan.sites)
    sites: list[Site] = []
    try:
        for number in range(plan.sites):
            name = chr(ord("a") + number)
            sites.append(Site(name, plan, tuple(sites), wires.host(number), wires.inside(number)))
        for site in sites:
            site.start()
        for site in sites:
            site.node.wait_for_links(plan.sites - 1, PATIENCE)
        with loaded(plan, [(site.host, site.node.port) for site in sites]) as (load, out):
            asyncio.run(retain(sites, "before"))
            time.sleep(calm)
            wires.cut(*HALVES)
            cut = time.monotonic()
            _say("cut")
            time.sleep(seconds / 2)
            asyncio.run(retain(sites, "during"))
            time.sleep(max(0.0, cut + seconds - time.monotonic()))
            wires.heal(*HALVES)
            healed = time.monotonic()
            _say("healed")
            for site in sites:
                site.node.wait_for_links(plan.sites - 1, PATIENCE)
            _say(f"linked again after {time.monotonic() - healed:.1f} s")
            time.sleep(calm)
            assert load.stdin is not None
            load.stdin.close()
            if load.wait(2 * PATIENCE):
                raise Unavailable(f"the load ended with {load.returncode}")
            found = judge(Record.read(out), cut, healed, plan.sites)
        found.retained_wrong = asyncio.run(retained_wrong(sites, "during"))
        for site in sites:
            look_for_accidents(site.node)
        return found
    finally:
        for site in sites:
            site.close()
        wires.close()


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover.split", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of the split")
    parser.add_argument("--topics", type=int, default=40)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--qos", type=int, choices=(1, 2), default=1)
    parser.add_argument("--calm", type=float, default=5.0, help="seconds before and after")
    flags = parser.parse_args(arguments)
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    plan = Plan(
        "mesh",
        topics=flags.topics,
        subscribers=4,
        rate=flags.rate,
        publish_qos=flags.qos,
        subscribe_qos=flags.qos,
    )
    found = run(plan, flags.seconds, flags.calm)
    print(found)
    return 0 if found.good else 1


if __name__ == "__main__":
    sys.exit(main())
