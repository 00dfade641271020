"""Which publications of which publisher this node has acted on, to know one that is resent.

Owns the memory of (client, packet id, hash), and for whose clients it was kept here. A publisher that lost
its node sends again, with DUP, what was not acknowledged [MQTT-4.4.0-1]; what it sent first may come after
that, from a node that was out of reach. Invariants: bounded in number, and by `turn` in time; forgetting one
means at worst that it counts as new. Must not know: what is published, clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

CAPACITY = 200_000
"""Publications; each takes some 250 bytes."""

_Key: TypeAlias = tuple[str, int, bytes]


class Senders:
    """One is remembered for a turn at least, and for less than two."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.recognised = 0
        self.overflows = 0
        """Forgotten before their time."""
        self._capacity = capacity
        # With the node that it was resent to, as long as it was not seen as it was sent first.
        self._noted: dict[_Key, str | None] = {}
        self._before: dict[_Key, str | None] = {}
        self._kept: dict[_Key, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._noted) + len(self._before)

    def note(self, client: str, packet_id: int, hash: bytes, resent_to: str | None = None) -> None:
        """This node acts on a publication: as its publisher's node, or because a run brought it. `resent_to`
        has DUP."""
        key = (client, packet_id, hash)
        before = self._before.pop(key, resent_to)
        before = self._noted.pop(key, before)
        self._noted[key] = resent_to if before is not None else None
        if len(self) > self._capacity:
            oldest = self._before or self._noted
            self._kept.pop(forgotten := next(iter(oldest)), None)
            del oldest[forgotten]
            self.overflows += 1

    def keep(self, client: str, packet_id: int, hash: bytes, nodes: Iterable[str]) -> tuple[str, ...]:
        """One that was noted is to be kept for clients of these nodes: those for which it was not yet."""
        key = (client, packet_id, hash)
        before = self._kept.get(key, ())
        new = tuple(node for node in nodes if node not in before)
        if new:
            self._kept[key] = before + new
        return new

    def seen(self, client: str, packet_id: int, hash: bytes) -> bool:
        """Ask it only of what has DUP set: without it a packet id may be in use again."""
        key = (client, packet_id, hash)
        known = key in self._noted or key in self._before
        self.recognised += known
        return known

    def overtaken(self, client: str, packet_id: int, hash: bytes, sent_to: str) -> bool:
        """Of what has no DUP: whether it came here before as it was resent, to another node."""
        key = (client, packet_id, hash)
        resent_to = self._noted.get(key) or self._before.get(key)
        known = resent_to is not None and resent_to != sent_to
        self.recognised += known
        return known

    def turn(self) -> bool:
        """Time for what was noted before the last turn to go. False: nothing is left."""
        for key in self._before.keys() & self._kept.keys():
            del self._kept[key]
        self._before, self._noted = self._noted, {}
        return bool(self._before)
