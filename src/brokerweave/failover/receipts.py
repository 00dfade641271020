"""Receipts on their way: gathered for one loop turn, then one packet to each holder.

Owns what was gathered, and what a holder that could not be reached has to be told when it can. Invariants: a
receipt goes out at the next `flush`; memory is bounded, and what an unreachable holder misses is counted (its
queue then keeps what the client has, until its age ends it). Must not know: links, who holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from brokerweave.failover.ids import MessageId
from brokerweave.failover.wire import GOT, RECEIPTS, encode_got, encode_receipts

_PACKET = 100
"""Bytes that one takes beside its payload, about."""
OWED_BYTES = 1 << 20
"""Kept for one unreachable holder; beyond, the oldest go."""


class Receipts:
    def __init__(self, owed_bytes: int = OWED_BYTES) -> None:
        self.lost = 0
        """Packets that an unreachable holder will not see."""
        self._owed_bytes = owed_bytes
        self._hashes: dict[str, list[bytes]] = {}
        self._ids: dict[str, dict[str, list[MessageId]]] = {}
        self._owed: dict[str, deque[tuple[str, bytes]]] = {}
        self._sizes: dict[str, int] = {}

    def received(self, client: str, hashes: Iterable[bytes]) -> bool:
        """A client of this node has these. True: nothing was waiting before, so ask for a `flush`."""
        first = not self.waiting
        known = self._hashes.setdefault(client, [])
        known.extend(hashes)
        return first

    def got(self, client: str, ids: Iterable[MessageId], nodes: Iterable[str]) -> bool:
        """A client that came back has these; these nodes may still keep them for it."""
        first = not self.waiting
        ids = list(ids)
        for node in nodes if ids else ():
            self._ids.setdefault(node, {}).setdefault(client, []).extend(ids)
        return first and self.waiting

    def waits_for(self, client: str) -> bool:
        """Whether receipts of a client are about to go out."""
        return client in self._hashes or any(client in ids for ids in self._ids.values())

    @property
    def waiting(self) -> bool:
        return bool(self._hashes or self._ids)

    def flush(self, holders: Iterable[str], reachable: Collection[str]) -> list[tuple[str, str, bytes]]:
        """What to send: node, topic, payload. `holders` are those of this node."""
        packets = [(RECEIPTS, payload) for payload in encode_receipts(self._hashes)]
        out = [(holder, *packet) for holder in holders for packet in packets]
        for node, got in self._ids.items():
            out += [(node, GOT, payload) for payload in encode_got(got)]
        self._hashes, self._ids = {}, {}
        for node, topic, payload in out:
            if node not in reachable:
                self._owe(node, topic, payload)
        return [packet for packet in out if packet[0] in reachable]

    def back(self, node: str) -> list[tuple[str, str, bytes]]:
        """The node can be reached again: what it missed."""
        self._sizes.pop(node, None)
        return [(node, topic, payload) for topic, payload in self._owed.pop(node, ())]

    def gone(self, node: str) -> None:
        """The node is dead, or holds for this one no longer."""
        self._sizes.pop(node, None)
        self.lost += len(self._owed.pop(node, ()))

    def _owe(self, node: str, topic: str, payload: bytes) -> None:
        owed = self._owed.setdefault(node, deque())
        owed.append((topic, payload))
        size = self._sizes.get(node, 0) + len(payload) + _PACKET
        while size > self._owed_bytes:
            size -= len(owed.popleft()[1]) + _PACKET
            self.lost += 1
        self._sizes[node] = size
