"""How much a node keeps for clients: for each at most so much, and for all together.

Owns the two bounds, and the order in which publications came. Invariant: the tables that share a `Room` keep
at most `max_bytes`, but for the last publication that came; the oldest ones go first. Must not know: for whom
something is kept, or why.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from brokerweave.care.ids import MessageId

SLACK = 1000
"""Entries of publications that are gone, beyond as many as are kept."""


class BoundedTable(Protocol):
    def keeps(self, client: str, identifier: MessageId) -> bool: ...

    def let_go(self, client: str, identifier: MessageId) -> None: ...


class Room:
    def __init__(self, client_bytes: int, max_bytes: int) -> None:
        self.client_bytes = client_bytes
        self.size = 0
        self._max_bytes = max_bytes
        self._count = 0
        self._oldest: deque[tuple[BoundedTable, str, MessageId]] = deque()

    def came(self, table: BoundedTable, client: str, identifier: MessageId, size: int) -> None:
        self.size += size
        self._count += 1
        self._oldest.append((table, client, identifier))
        if len(self._oldest) > 2 * self._count + SLACK:
            self._oldest = deque(each for each in self._oldest if each[0].keeps(*each[1:]))
        while self.size > self._max_bytes and len(self._oldest) > 1:
            first, of, oldest = self._oldest.popleft()
            first.let_go(of, oldest)

    def left(self, size: int, count: int = 1) -> None:
        self.size -= size
        self._count -= count
