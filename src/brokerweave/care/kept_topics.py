"""Topics of which somebody may keep what was published on them.

Nobody keeps what was published at QoS 0; but a client that asked for QoS 0 gets the rest of it so, too, and
its deliveries do not say which is which. Invariants: a topic counts from when something at QoS 1 or 2 is on
its way to the broker here until a window later, at least, since nobody keeps it longer; after a start, or for
want of room, every topic counts. Must not know: clocks, deliveries.
"""

from __future__ import annotations

MOST = 100_000


class KeptTopics:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._latest: set[bytes] = set()
        self._earlier: set[bytes] | None = None
        """Those of the window before; None: nobody knows which."""

    def note(self, topic: bytes) -> None:
        if len(self._latest) < self._most:
            self._latest.add(topic)

    def __contains__(self, topic: bytes) -> bool:
        if self._earlier is None or len(self._latest) >= self._most:
            return True
        return topic in self._latest or topic in self._earlier

    def turn(self) -> bool:
        """A window has passed. Whether there is anything to be forgotten after the next."""
        self._earlier = self._latest if len(self._latest) < self._most else None
        self._latest = set()
        return self._earlier is None or bool(self._earlier)
