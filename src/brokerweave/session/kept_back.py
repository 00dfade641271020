"""QoS 2 publications of a 3.1.1 client that exceed its broker's Receive Maximum.

A broker limits the publications that are not released (PUBREL). MQTT 5 tells the client (Receive Maximum).
3.1.1 cannot, and some brokers acknowledge what exceeds the limit, and drop it. In cluster delivery the node
delays PUBREC, and so PUBREL. It must not make a client exceed the limit of the broker.

Owns which packet ids the broker has open, and what waits for room. Invariants: what waits leaves in the order
in which it came; at most `most_bytes` wait, beyond which the oldest are sent anyway, and counted. Must not
know: how a publication is acted on, which happens when it leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from brokerweave.mqtt.packets import Publish

_COST = 256
"""Bytes that one takes in memory beside its frame, about."""


class KeptBack:
    __slots__ = ("_most_bytes", "_open", "_room", "_size", "_waiting", "exceeded")

    def __init__(self, room: int, most_bytes: int) -> None:
        self._room = room
        self._most_bytes = most_bytes
        self._open: set[int] = set()
        self._waiting: deque[tuple[Publish, bytes]] = deque()
        self._size = 0
        self.exceeded = 0
        """Publications that the broker got though it may not have had room."""

    def __len__(self) -> int:
        return len(self._waiting)

    def resume(self, packet_ids: Iterable[int]) -> None:
        """The broker's session goes on with these."""
        self._open.update(packet_ids)

    def passes(self, publish: Publish, frame: bytes) -> bool:
        """Whether a publication may go to the broker now; else it waits here."""
        if publish.packet_id in self._open:
            return True  # sent again: the broker has a place for it
        if len(self._open) < self._room and not self._waiting:
            self._open.add(publish.packet_id)
            return True
        self._waiting.append((publish, frame))
        self._size += _COST + len(frame)
        return False

    def released(self, packet_id: int) -> None:
        """PUBREL goes to the broker: what follows it there finds room."""
        self._open.discard(packet_id)

    def due(self) -> Iterator[tuple[Publish, bytes]]:
        """What goes to the broker now."""
        while self._waiting and (len(self._open) < self._room or self._size > self._most_bytes):
            self.exceeded += len(self._open) >= self._room
            publish, frame = self._waiting.popleft()
            self._size -= _COST + len(frame)
            self._open.add(publish.packet_id)
            yield publish, frame
