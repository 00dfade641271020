"""What a broker may be about to deliver, found by the name of a delivery (`session.deliveries.name_of`).

Owns what came to this node in the last one or two windows, by stamp and by content, and what clients here
published that the broker has yet to acknowledge. Invariants: what a broker delivers is here, unless the node
was restarted or it was published elsewhere than through nodes; with a stamp at most one publication is found,
else all of that content. Must not know: clocks, clients' records.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerweave.care.held import Held
from brokerweave.mqtt.content import HASH_BYTES

MOST = 200_000
MOST_ENTERING = 100_000
"""What enters and goes to no other site is never told to have left: the oldest beyond this go."""


@dataclass(slots=True, eq=False)
class Entering:
    """Given to the broker by a client, and not acknowledged yet: it has no id."""

    publisher: str
    packet_id: int
    topic: str
    content: bytes
    tick: int
    again: bool = False
    """Its publisher may have sent it before."""
    stamp: bytes = b""
    """Under which the broker has it, if it has one."""
    shown: set[str] = field(default_factory=set)
    """Clients to which the broker delivered it."""
    had: set[str] = field(default_factory=set)
    """Those of them that have it."""


class RecentPublications:
    def __init__(self) -> None:
        self.forgotten = 0
        """How often something was let go before its time."""
        self._count = self._entering_count = 0
        self._latest: dict[bytes, list[Held]] = {}
        self._earlier: dict[bytes, list[Held]] = {}
        self._stamped: dict[bytes, Held] = {}
        self._stamped_earlier: dict[bytes, Held] = {}
        self._entering: dict[bytes, list[Entering]] = {}

    def note(self, held: Held, stamp: bytes = b"") -> None:
        """`stamp`: under which the broker has it, or may get it."""
        if self._count >= MOST:
            self.turn()
            self.forgotten += 1
        self._count += 1
        self._latest.setdefault(held.hash, []).append(held)
        if stamp:
            self._stamped[stamp] = held

    def of(self, name: bytes) -> list[Held]:
        content, stamp = name[:HASH_BYTES], name[HASH_BYTES:]
        if stamp:
            held = self._stamped.get(stamp) or self._stamped_earlier.get(stamp)
            return [held] if held is not None else []
        return self._earlier.get(content, []) + self._latest.get(content, [])

    def turn(self) -> bool:
        """A window has passed. Whether there is anything left."""
        self._earlier, self._latest, self._count = self._latest, {}, 0
        self._stamped_earlier, self._stamped = self._stamped, {}
        return bool(self._earlier)

    # What enters

    def enter(self, entering: Entering) -> None:
        self._entering.setdefault(entering.content, []).append(entering)
        self._entering_count += 1
        if self._entering_count > MOST_ENTERING:
            self._entering_count -= len(self._entering.pop(next(iter(self._entering))))
            self.forgotten += 1

    def entering(self, name: bytes) -> list[Entering]:
        content, stamp = name[:HASH_BYTES], name[HASH_BYTES:]
        found = self._entering.get(content, [])
        return [each for each in found if each.stamp == stamp] if stamp else found

    def shown(self, client: str) -> list[Entering]:
        """What the broker delivered to a client and has no id yet."""
        return [each for waiting in self._entering.values() for each in waiting if client in each.shown]

    def entered(self, publisher: str, packet_id: int, content: bytes) -> Entering | None:
        """It has an id now, or its client left."""
        waiting = self._entering.get(content, [])
        for each in waiting:
            if each.publisher == publisher and each.packet_id == packet_id:
                waiting.remove(each)
                self._entering_count -= 1
                if not waiting:
                    del self._entering[content]
                return each
        return None
