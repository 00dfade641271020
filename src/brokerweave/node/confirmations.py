"""Which nodes have taken a publication whose publisher waits for them (`delivery = "cluster"`), or a relay's
sender (`node.relayed`).

Owns, per publication, the neighbours that have not confirmed yet. A node confirms a publication when it is in
its own outboxes and every reachable neighbour that it passed it on to has confirmed. Invariants: for a
neighbour that is down the message stays pending, and nobody waits for it; the number of publications under
way is bounded, and one beyond the bound is confirmed at once and counted. Must not know: what is published,
time.

On the wire: one or more of origin (u8 length, UTF-8), epoch u64, lane u8, sequence u64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.run import Run

TOPIC = "$brokerweave/confirm"
ASK = "$brokerweave/confirm/ask"
"""The same on the wire: publications of which the sender has heard nothing, and wants to."""
MAX_UNDER_WAY = 100_000
_TAIL = struct.Struct(">QBQ")


class PublicationId(NamedTuple):
    """What names one publication in the whole deployment."""

    origin: str
    epoch: int
    lane: int
    """Whose sequence it is; 0 where any lane carries any message, for they share one sequence then."""
    sequence: int


Passed = tuple[str, PublicationId]
"""A neighbour that was sent something, and the name under which it confirms that."""


class Confirmations:
    def __init__(self, ordered: bool = True) -> None:
        self.overflows = 0
        self._ordered = ordered
        # By whom it came from, of whom there are two where it returned to its origin: nobody, and another.
        self._waiting: dict[PublicationId, dict[str | None, tuple[set[Passed], Callable[[], None]]]] = {}
        self._behind: dict[Passed, list[tuple[PublicationId, str | None]]] = {}
        """What waits for whom: a run may be cut on its way, and its parts are confirmed one by one."""

    def __len__(self) -> int:
        return len(self._waiting)

    def name(self, lane: int, run: Run) -> PublicationId:
        """What all on its way call a run that is sent on this lane."""
        return PublicationId(run.origin, run.epoch, lane if self._ordered else 0, run.first)

    def awaits(self, neighbour: str) -> bool:
        """Whether a neighbour has yet to confirm anything."""
        return any(neighbour == waited_for for waited_for, _ in self._behind)

    def behind(self, publication: PublicationId) -> set[Passed]:
        """What has yet to be confirmed of a publication, whoever waits for it."""
        return set().union(*(waiting for waiting, _ in self._waiting.get(publication, {}).values()))

    def expect(
        self,
        publication: PublicationId,
        passed: Iterable[Passed],
        done: Callable[[], None],
        came_from: str | None = None,
    ) -> bool:
        """Call `done` when all these are confirmed. True: there is nothing to wait for."""
        waiting = set(passed)
        if waiting and len(self._waiting) >= MAX_UNDER_WAY:
            self.overflows += 1
            waiting.clear()
        if not waiting:
            return True
        self._forget(publication, came_from)
        self._waiting.setdefault(publication, {})[came_from] = (waiting, done)
        self._expect(waiting, publication, came_from)
        return False

    def extend(self, neighbour: str, publication: PublicationId, passed: set[Passed]) -> None:
        """What a neighbour is to confirm went to others, too: who waits for the one waits for all."""
        for waits, came_from in self._behind.get((neighbour, publication), ()):
            waiting, _ = self._waiting[waits][came_from]
            self._expect(passed - waiting, waits, came_from)
            waiting.update(passed)

    def gone(self, neighbour: str, but: Container[Passed] = ()) -> None:
        """The link is down: messages for the neighbour stay in the outbox, nobody waits for it, `but` for
        what others may confirm in its place."""
        for passed in [each for each in self._behind if each[0] == neighbour and each not in but]:
            self.confirmed(*passed)

    def abandon(self, publication: PublicationId, came_from: str | None = None) -> None:
        """Its publisher waits no longer."""
        self._forget(publication, came_from)

    def confirmed(self, neighbour: str, publication: PublicationId) -> None:
        passed = (neighbour, publication)
        for waits, came_from in self._behind.pop(passed, ()):
            waiting, done = self._waiting.get(waits, {}).get(came_from, (set(), None))
            waiting.discard(passed)
            if not waiting and done is not None:
                self._forget(waits, came_from)
                done()

    def _expect(self, passed: set[Passed], publication: PublicationId, came_from: str | None) -> None:
        for each in passed:
            self._behind.setdefault(each, []).append((publication, came_from))

    def _forget(self, publication: PublicationId, came_from: str | None) -> None:
        each = self._waiting.get(publication, {})
        waiting, _ = each.pop(came_from, (set[Passed](), None))
        if not each:
            self._waiting.pop(publication, None)
        for passed in waiting & self._behind.keys():
            self._behind[passed].remove((publication, came_from))
            if not self._behind[passed]:
                del self._behind[passed]


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
