"""Which publications of which publisher this node has acted on, to know one that is resent.

Owns the memory of (client, packet id, hash). A publisher that lost its node sends again, with DUP, what was
not acknowledged [MQTT-4.4.0-1]; what it sent first may come after that, from a node that was out of reach.
Invariants: bounded in number, and by `turn` in time; forgetting one means at worst that it counts as new.
Must not know: what is published, clocks.
"""

from __future__ import annotations

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
            del oldest[next(iter(oldest))]
            self.overflows += 1

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
        self._before, self._noted = self._noted, {}
        return bool(self._before)
