"""What a listener costs each packet that it asks for: `python -m benchmarks.listening`.

Owns the measurement: the scanner benchmark's publications through one pair, all routed to other sites,
without a listener and with one that lets everything pass; CPU time, the best of several rounds. Must not
know: sockets, nodes.
"""

from __future__ import annotations

import sys
import time
from typing import Any, ClassVar
from unittest.mock import Mock

from benchmarks.scanner import MAX_PACKET, ROUND_SECONDS, ROUNDS, make_chunk
from brokerweave.config import LimitsSection
from brokerweave.mqtt import codec, frames
from brokerweave.mqtt.packets import ConnAck, Connect, PacketType
from brokerweave.plugin import Listener, Side
from brokerweave.session.pair import Pair
from brokerweave.session.phase import Phase
from brokerweave.session.record import SessionRecord


class Listening(Listener):
    name: ClassVar[str] = "listening"
    packets: ClassVar[frozenset[tuple[Side, PacketType]]] = frozenset({(Side.CLIENT, PacketType.PUBLISH)})


class Host:
    """Takes what is forwarded, and nothing else happens."""

    def __init__(self) -> None:
        self.forwarded = 0

    def forward(self, group: object, count: int, *rest: object, **more: object) -> None:
        self.forwarded += count

    def accepted(self, pair: Pair, session_present: bool) -> SessionRecord:
        return SessionRecord("c", 0)

    def __getattr__(self, name: str) -> Any:
        return Mock()


def microseconds(*listeners: Listener) -> float:
    """For each publication."""
    chunk, count = make_chunk()
    host = Host()
    routes = frames.RouteCache(lambda topic, retain: host)
    pair = Pair(1, host, routes, LimitsSection(max_packet=MAX_PACKET), 0, listeners)
    pair.from_client(codec.encode(Connect("c"), 4))
    pair.from_broker(codec.encode(ConnAck(), 4))
    best = float("inf")
    for _ in range(ROUNDS):
        fed = 0
        start = now = time.process_time()
        while now - start < ROUND_SECONDS:
            pair.from_client(chunk)
            while pair.put_off is not None:
                pair.next_turn()
            fed += count
            now = time.process_time()
        best = min(best, (now - start) / fed * 1e6)
    if pair.phase is not Phase.ACCEPTED or not host.forwarded:
        raise RuntimeError(f"not what was to be measured: {pair.phase}, {host.forwarded} forwarded")
    return best


def main() -> int:
    print(f"frame scanner: {'compiled' if frames.compiled else 'uncompiled'}")
    for words, listeners in (("nobody listens", ()), ("one listener", (Listening(Mock()),))):
        print(f"a publication when {words}: {microseconds(*listeners):.2f} µs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
