"""Which nodes have taken a publication whose publisher waits for them (`delivery = "cluster"`).

Owns, per publication, the neighbours not yet heard of. A node confirms to where a publication came from once
it is in its own outboxes and every reachable neighbour it passed it on to has confirmed. Invariants: a
neighbour that is down is owed the message and waited for no longer; the number of publications under way is
bounded, and beyond the bound one is confirmed at once, counted. Must not know: what is published, time.

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
    sequence: int


class Confirmations:
    def __init__(self) -> None:
        self.overflows = 0
        self._waiting: dict[PublicationId, tuple[set[str], Callable[[], None]]] = {}
        self._missing: dict[PublicationId, set[str]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, publication: object) -> bool:
        """Whether somebody has yet to confirm it, and is waited for."""
        return publication in self._waiting

    def awaits(self, neighbour: str) -> bool:
        """Whether a neighbour has yet to confirm anything."""
        return any(neighbour in waiting for waiting, _ in self._waiting.values())

    def expect(self, publication: PublicationId, neighbours: Iterable[str], done: Callable[[], None]) -> bool:
        """Call `done` when all these neighbours have confirmed. True: there is nothing to wait for."""
        waiting = set(neighbours)
        if waiting and len(self._waiting) >= MAX_UNDER_WAY:
            self.overflows += 1
            waiting.clear()
        if not waiting:
            return True
        self._waiting[publication] = (waiting, done)
        return False

    def confirmed(self, neighbour: str, publication: PublicationId) -> None:
        self._heard(neighbour, publication)

    def gone(self, neighbour: str) -> None:
        """The link is down: the neighbour is owed its messages from the outbox, nobody waits for it."""
        for publication in [p for p, (waiting, _) in self._waiting.items() if neighbour in waiting]:
            self._missing.setdefault(publication, set()).add(neighbour)
            self._heard(neighbour, publication)

    def abandon(self, publication: PublicationId) -> set[str]:
        """Its publisher waits no longer. Those who were waited for and have not confirmed."""
        waiting, _ = self._waiting.pop(publication, (set[str](), None))
        return self._missing.pop(publication, set()) | waiting

    def _heard(self, neighbour: str, publication: PublicationId) -> None:
        waiting, done = self._waiting.get(publication, (None, None))
        if waiting is None or done is None or neighbour not in waiting:
            return
        waiting.discard(neighbour)
        if not waiting:
            del self._waiting[publication]
            done()


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
