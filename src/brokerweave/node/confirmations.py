"""Which nodes have taken a publication whose publisher waits for them (`delivery = "cluster"`).

Owns, per publication, the neighbours that have not confirmed yet. A node confirms a publication when it is in
its own outboxes and every reachable neighbour that it passed it on to has confirmed. Invariants: for a
neighbour that is down the message stays pending, and nobody waits for it; the number of publications under
way is bounded, and one beyond the bound is confirmed at once and counted. Must not know: what is published,
time.

On the wire: one or more of origin (u8 length, UTF-8), epoch u64, lane u8, sequence u64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from brokerweave.errors import RemoteProtocolError

TOPIC = "$brokerweave/confirm"
MAX_UNDER_WAY = 100_000
_TAIL = struct.Struct(">QBQ")


class PublicationId(NamedTuple):
    """What names one publication in the whole deployment."""

    origin: str
    epoch: int
    lane: int
    """Whose sequence it is; 0 where any lane carries any message, for they share one sequence then."""
    sequence: int


class Confirmations:
    def __init__(self) -> None:
        self.overflows = 0
        # By whom it came from, of whom there are two where it returned to its origin: nobody, and another.
        self._waiting: dict[PublicationId, dict[str | None, tuple[set[str], Callable[[], None]]]] = {}
        self._missing: dict[tuple[PublicationId, str | None], set[str]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, publication: object) -> bool:
        """Whether somebody has yet to confirm it, and is waited for."""
        return publication in self._waiting

    def awaits(self, neighbour: str) -> bool:
        """Whether a neighbour has yet to confirm anything."""
        return any(neighbour in waiting for each in self._waiting.values() for waiting, _ in each.values())

    def expect(
        self,
        publication: PublicationId,
        neighbours: Iterable[str],
        done: Callable[[], None],
        came_from: str | None = None,
    ) -> bool:
        """Call `done` when all these neighbours have confirmed. True: there is nothing to wait for."""
        waiting = set(neighbours)
        if waiting and len(self._waiting) >= MAX_UNDER_WAY:
            self.overflows += 1
            waiting.clear()
        if not waiting:
            return True
        self._waiting.setdefault(publication, {})[came_from] = (waiting, done)
        return False

    def gone(self, neighbour: str) -> None:
        """The link is down: messages for the neighbour stay in the outbox, nobody waits for it."""
        for publication, each in list(self._waiting.items()):
            missed = [came_from for came_from, (waiting, _) in each.items() if neighbour in waiting]
            for came_from in missed:
                self._missing.setdefault((publication, came_from), set()).add(neighbour)
            if missed:
                self.confirmed(neighbour, publication)

    def abandon(self, publication: PublicationId, came_from: str | None = None) -> set[str]:
        """Its publisher waits no longer. Those who were waited for and have not confirmed."""
        waiting, _ = self._forget(publication, came_from)
        return self._missing.pop((publication, came_from), set()) | waiting

    def confirmed(self, neighbour: str, publication: PublicationId) -> None:
        for came_from, (waiting, done) in list(self._waiting.get(publication, {}).items()):
            if neighbour in waiting:
                waiting.discard(neighbour)
                if not waiting:
                    self._forget(publication, came_from)
                    done()

    def _forget(
        self, publication: PublicationId, came_from: str | None
    ) -> tuple[set[str], Callable[[], None] | None]:
        each = self._waiting.get(publication, {})
        found = each.pop(came_from, (set[str](), None))
        if not each:
            self._waiting.pop(publication, None)
        return found


def encode(publications: Iterable[PublicationId]) -> bytes:
    parts = []
    for origin, epoch, lane, sequence in publications:
        name = origin.encode()
        parts += [bytes((len(name),)), name, _TAIL.pack(epoch, lane, sequence)]
    return b"".join(parts)


def decode(payload: bytes) -> list[PublicationId]:
    publications = []
    at = 0
    try:
        while at < len(payload):
            end = at + 1 + payload[at]
            origin = payload[at + 1 : end].decode()
            publications.append(PublicationId(origin, *_TAIL.unpack_from(payload, end)))
            at = end + _TAIL.size
    except (struct.error, UnicodeDecodeError):
        raise RemoteProtocolError("a confirmation that ends too early") from None
    return publications
