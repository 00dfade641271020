"""The delaying relay between emulated regions: IP packets go in, and come out a fixed time later.

    python -m brokerweave.bench.migration.router '{"tuns": [3, 4], "delays": [[0, 0.04], [0.04, 0]]}'

`tuns` are inherited files, one for each region (a TUN device in the region's own network); `delays` has the
seconds from one region to another, one way. TCP and UDP alike are delayed, and nothing is reordered or lost
while at most `MOST_WAITING` packets wait; what is more is dropped, as by a router, and counted. Prints a line
with the counts when its input ends. Must not know: who is in a region, what is in a packet but its
destination.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections import deque

MTU = 65_000
MOST_WAITING = 100_000
"""Packets on one way."""
NET = (10, 213)
"""Region number n, counted from 0, is 10.213.(n + 1).x."""
_DESTINATION = 16
"""Where an IPv4 header has it."""
_HASTE = -15
"""It stands for cables: it goes before everybody else where it may."""


def region_of(packet: bytes, regions: int) -> int | None:
    """The region that a packet goes to; None: no IPv4, or to nobody here."""
    if len(packet) < _DESTINATION + 4 or packet[0] >> 4 != 4:
        return None
    first, second, region, _ = packet[_DESTINATION : _DESTINATION + 4]
    return region - 1 if (first, second) == NET and 1 <= region <= regions else None


class RegionWay:
    """From one region to another. Pure: told the time."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._waiting: deque[tuple[float, bytes]] = deque()
        self.passed = 0
        self.dropped = 0

    def take(self, packet: bytes, now: float) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((now + self._delay, packet))
        else:
            self.dropped += 1

    @property
    def due(self) -> float:
        return self._waiting[0][0] if self._waiting else float("inf")

    def give(self, now: float) -> list[bytes]:
        """What has been on its way for long enough."""
        given = []
        while self._waiting and self._waiting[0][0] <= now:
            given.append(self._waiting.popleft()[1])
        self.passed += len(given)
        return given


class RegionRouter:
    def __init__(self, tuns: list[int], delays: list[list[float]]) -> None:
        self._tuns = tuns
        self._ways = [[RegionWay(delay) for delay in row] for row in delays]
        self._refused = 0
        """Packets that a device did not take, and those to nobody."""

    def serve(self, end: int) -> dict[str, int]:
        """Until the file `end` has ended."""
        while True:
            due = min(way.due for row in self._ways for way in row)
            wait = min(max(0.0, due - time.monotonic()), 1.0)
            ready, _, _ = select.select([end, *self._tuns], [], [], wait)
            if end in ready and not os.read(end, 1):
                return self._counts()
            for tun in ready:
                if tun != end:
                    self._read(self._tuns.index(tun))
            self._write(time.monotonic())

    def _read(self, source: int) -> None:
        now = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = os.read(self._tuns[source], MTU + 100)
                to = region_of(packet, len(self._tuns))
                if to is None:
                    self._refused += packet[0] >> 4 == 4  # IPv6 announces itself, to nobody
                else:
                    self._ways[source][to].take(packet, now)

    def _write(self, now: float) -> None:
        for row in self._ways:
            for to, way in enumerate(row):
                for packet in way.give(now):
                    try:
                        os.write(self._tuns[to], packet)
                    except OSError:
                        self._refused += 1

    def _counts(self) -> dict[str, int]:
        ways = [way for row in self._ways for way in row]
        dropped = sum(way.dropped for way in ways) + self._refused
        return {"passed": sum(way.passed for way in ways), "dropped": dropped}


if __name__ == "__main__":
    with contextlib.suppress(PermissionError):
        os.nice(_HASTE)
    told = json.loads(sys.argv[1])
    print(json.dumps(RegionRouter(told["tuns"], told["delays"]).serve(sys.stdin.fileno())), flush=True)
