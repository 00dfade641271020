"""What this node's clients were seen to receive a moment ago.

Owns the memory of (client, content). Holders hear of a receipt once, when it comes; who begins to hold, or
gets the same publication under another name, after that has to be told again. Invariants: bounded in time and
number, and what goes for want of room is counted: at worst a client gets it twice. Must not know: who holds,
clocks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

SECONDS = 30.0
"""How long one is remembered: longer than publishers take to come back and send again, though busy sites may
let them wait until they try once more."""
MOST = 50_000
LATEST = 5_000
"""As many are told to one who may have begun to hold: a node with little CPU has to read them all."""


class Recent:
    def __init__(self, most: int = MOST) -> None:
        self.dropped = 0
        self._most = most
        self._received: OrderedDict[tuple[str, bytes], float] = OrderedDict()

    def note(self, client: str, hashes: Iterable[bytes], now: float) -> None:
        for one in hashes:
            self._received[client, one] = now
            self._received.move_to_end((client, one))  # the order is by time
        while self._received and not 0 <= now - next(iter(self._received.values())) < SECONDS:
            self._received.popitem(last=False)
        while len(self._received) > self._most:
            self._received.popitem(last=False)
            self.dropped += 1

    def has(self, client: str, hash: bytes) -> bool:
        return (client, hash) in self._received

    def latest(self) -> dict[str, list[bytes]]:
        """By client."""
        found: dict[str, list[bytes]] = {}
        for client, one in islice(reversed(self._received), LATEST):
            found.setdefault(client, []).append(one)
        return found
