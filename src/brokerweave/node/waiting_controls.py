"""Control packets of the strategy that wait for a link (`context.send(..., wait=True)`).

Owns them, by neighbour, in order. Invariants: what waits for one neighbour takes `MOST_BYTES` at most, and
what finds no room is dropped and counted; a packet goes out behind `neighbour_up`, and behind all that waited
before it; what waits for a neighbour that is removed is dropped and counted. Must not know: links, what
packets mean.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.links.wire import LINK_VERSION
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Packet
from brokerweave.node.counters import Counters

MOST_BYTES = 1 << 20
"""For each neighbour."""
PACKET_BYTES = 200
"""What a packet takes in memory beside its contents, about."""
DROPPED = "dropped_controls"


class WaitingControls:
    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._packets: dict[str, list[Packet]] = {}
        self._sizes: dict[str, int] = {}

    def __contains__(self, neighbour: object) -> bool:
        return neighbour in self._packets

    def add(self, neighbour: str, packet: Packet) -> None:
        size = self._sizes.get(neighbour, 0) + len(codec.encode(packet, LINK_VERSION)) + PACKET_BYTES
        if size > MOST_BYTES:
            self._counters.add(DROPPED)
            return
        self._sizes[neighbour] = size
        self._packets.setdefault(neighbour, []).append(packet)

    def release(self, neighbour: str, send: Callable[[str, Packet], None]) -> None:
        """The strategy knows that the link is up: all that waited goes out."""
        self._sizes.pop(neighbour, None)
        for packet in self._packets.pop(neighbour, ()):
            send(neighbour, packet)

    def drop(self, neighbour: str) -> None:
        """The neighbour is removed."""
        self._sizes.pop(neighbour, None)
        self._counters.add(DROPPED, len(self._packets.pop(neighbour, ())))
