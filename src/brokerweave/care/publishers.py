"""Recognises a publication that its publisher sends again, here or at another site.

Owns which id each publication of a client got, by packet id and content. Invariants: bounded in number, and
by `turn` in time; if one is forgotten, at worst it counts as new. Must not know: clients' records, brokers.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from brokerweave.care.ids import MessageId

MOST = 200_000
TOLD = 64
"""Of one client's publications, those that are told where it comes: it may send them again."""


class Sent(NamedTuple):
    id: MessageId
    again: bool
    """It came as one that was sent again, to `at`."""
    at: str
    taken: bool = True
    """By the broker here, where it was published here."""


class Publishers:
    def __init__(self) -> None:
        self.overflows = 0
        self._latest: dict[str, OrderedDict[tuple[int, bytes], Sent]] = {}
        self._earlier: dict[str, OrderedDict[tuple[int, bytes], Sent]] = {}
        self._size = 0

    def find(self, client: str, packet_id: int, content: bytes) -> Sent | None:
        key = (packet_id, content)
        for names in (self._latest.get(client), self._earlier.get(client)):
            if names is not None and key in names:
                return names[key]
        return None

    def note(self, client: str, packet_id: int, content: bytes, sent: Sent) -> None:
        names = self._latest.setdefault(client, OrderedDict())
        names[packet_id, content] = sent
        names.move_to_end((packet_id, content))
        self._size += 1
        if self._size > MOST:
            self.overflows += 1
            self.turn()

    def last(self, client: str) -> tuple[tuple[int, bytes, MessageId], ...]:
        latest = self._latest.get(client, OrderedDict())
        names = {
            key: sent for key, sent in self._earlier.get(client, {}).items() if key not in latest
        } | latest
        return tuple(
            (packet_id, content, sent.id) for (packet_id, content), sent in list(names.items())[-TOLD:]
        )

    def turn(self) -> bool:
        """Time for what was noted before the last turn to go. Whether anything is left."""
        self._earlier, self._latest, self._size = self._latest, {}, 0
        return bool(self._earlier)
