"""Which publications of which publisher this node has acted on, to know one that is resent.

Owns the memory of (client, packet id, hash). A publisher that lost its node sends again, with DUP, what was
not acknowledged [MQTT-4.4.0-1]. Invariants: bounded in number and time; forgetting one means at worst that
it counts as new. Must not know: what is published, clocks.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

CAPACITY = 200_000
"""Publications; each takes some 250 bytes."""

_Key: TypeAlias = tuple[str, int, bytes]


class Senders:
    """`window` seconds after it was noted one is forgotten."""

    def __init__(self, window: float, capacity: int = CAPACITY) -> None:
        self.recognised = 0
        self.overflows = 0
        """Forgotten before their time."""
        self._window = window
        self._capacity = capacity
        self._noted: OrderedDict[_Key, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._noted)

    def note(self, client: str, packet_id: int, hash: bytes, now: float) -> None:
        """This node acts on a publication: as its publisher's node, or because a run brought it."""
        key = (client, packet_id, hash)
        self._noted[key] = now
        self._noted.move_to_end(key)
        self._expire(now)
        if len(self._noted) > self._capacity:
            self._noted.popitem(last=False)
            self.overflows += 1

    def seen(self, client: str, packet_id: int, hash: bytes, now: float) -> bool:
        """Ask it only of what has DUP set: without it a packet id may be in use again."""
        self._expire(now)
        known = (client, packet_id, hash) in self._noted
        self.recognised += known
        return known

    def _expire(self, now: float) -> None:
        while self._noted:
            key, noted = next(iter(self._noted.items()))
            if now - noted < self._window:
                return
            del self._noted[key]
