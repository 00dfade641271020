"""Receipts on their way: gathered for one loop turn, then one packet to each holder.

Owns what was gathered, and what each holder has not acknowledged yet. Invariants: a receipt goes out at the
next `flush`, and again when a link is new, until it is acknowledged; packets to one node are numbered, so
that it takes none twice; who is reached for the first time hears which ids clients got since the node was
started, a moment ago; memory is bounded, and what a node may have missed for want of room is counted (its
queue then keeps what the client has, until its age ends it). Must not know: links, who holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from brokerweave.care.ids import MessageId
from brokerweave.care.wire import GOT, RECEIPTS, encode_got, encode_number, encode_receipts

_PACKET = 100
"""Bytes that one takes beside its payload, about."""
EVERYBODY = ""
"""In the place of a node: all that hear receipts."""
MAX_BYTES = 1 << 20
"""Kept for one node until it acknowledges; beyond, the oldest go."""


@dataclass(slots=True)
class _Stream:
    """What goes to one node."""

    last: int = 0
    heard: int = 0
    """How far it was told what everybody hears."""
    unacknowledged: deque[tuple[int, str, bytes]] = field(default_factory=deque)
    size: int = 0


class ReceiptOutbox:
    def __init__(self, life: int = 0, max_bytes: int = MAX_BYTES) -> None:
        """`life` is another one after each start: numbers begin anew."""
        self.lost = 0
        """Packets that a node may not have seen, and will not."""
        self._life = life
        self._max_bytes = max_bytes
        self._hashes: dict[str, list[bytes]] = {}
        self._ids: dict[tuple[str, str], dict[str, list[MessageId]]] = {}
        self._streams: dict[str, _Stream] = {}
        self._said: deque[tuple[int, bytes]] = deque()
        """What everybody hears of ids, in its order, as long as somebody may turn up who should hear it. Not
        of contents: who had none of that would take its next publication for one that the client has."""
        self._said_size = self._said_last = 0

    def received(self, client: str, hashes: Iterable[bytes]) -> None:
        """A client of this node has these."""
        self._hashes.setdefault(client, []).extend(hashes)

    def got(self, client: str, ids: Iterable[MessageId], nodes: Iterable[str], topic: str = GOT) -> None:
        """A client that came back has these; these nodes may still keep them for it. With `ROUTED`: it gets
        them here, where it is."""
        ids = list(ids)
        for node in sorted(nodes) if ids else ():
            self._ids.setdefault((node, topic), {}).setdefault(client, []).extend(ids)

    def waits_for(self, client: str) -> bool:
        """Whether receipts of a client are about to go out."""
        return client in self._hashes or any(client in ids for ids in self._ids.values())

    @property
    def waiting(self) -> bool:
        return bool(self._hashes or self._ids)

    def flush(
        self, holders: Iterable[str], reachable: Collection[str], warming_up: bool = False
    ) -> list[tuple[str, str, bytes]]:
        """What to send: node, topic, payload. `holders` are those of this node; while it is `warming_up`,
        others that it has yet to reach may have kept something before its start."""
        packets = encode_receipts(self._hashes)
        for payload in encode_got(self._ids.pop((EVERYBODY, GOT), {})):
            self._said_last += 1
            self._said.append((self._said_last, payload))
            self._said_size += len(payload) + _PACKET
        out = []
        for holder in holders:
            out += [(holder, RECEIPTS, payload) for payload in packets]
            out += [(holder, GOT, payload) for payload in self._missed(holder)]
        while self._said_size > (self._max_bytes if warming_up else 0):
            self._said_size -= len(self._said.popleft()[1]) + _PACKET
            self.lost += warming_up
        for (node, topic), got in self._ids.items():
            out += [(node, topic, payload) for payload in encode_got(got)]
        self._hashes, self._ids = {}, {}
        sent = [(node, topic, self._enqueue(node, topic, payload)) for node, topic, payload in out]
        return [packet for packet in sent if packet[0] in reachable]

    def back(self, node: str) -> list[tuple[str, str, bytes]]:
        """A link to the node is new: what it may have missed."""
        for payload in self._missed(node):
            self._enqueue(node, GOT, payload)
        return [(node, topic, payload) for _, topic, payload in self._streams[node].unacknowledged]

    def _missed(self, node: str) -> list[bytes]:
        """What it has yet to hear of what everybody hears; once."""
        stream = self._streams.setdefault(node, _Stream())
        missed = []
        for number, payload in reversed(self._said):
            if number <= stream.heard:
                break
            missed.append(payload)
        stream.heard = self._said_last
        return missed[::-1]

    def acknowledged(self, node: str, life: int, number: int) -> None:
        """The node has taken everything up to this number."""
        stream = self._streams.get(node)
        while (
            life == self._life
            and stream is not None
            and stream.unacknowledged
            and stream.unacknowledged[0][0] <= number
        ):
            stream.size -= len(stream.unacknowledged.popleft()[2]) + _PACKET

    def has_unacknowledged(self, node: str) -> bool:
        """Whether the node has yet to acknowledge something."""
        return node in self._streams and bool(self._streams[node].unacknowledged)

    def gone(self, node: str) -> None:
        """The node is dead, or holds for this one no longer."""
        stream = self._streams.get(node)
        if stream is not None:
            self.lost += len(stream.unacknowledged)
            stream.unacknowledged.clear()
            stream.size = 0

    def _enqueue(self, node: str, topic: str, payload: bytes) -> bytes:
        stream = self._streams.setdefault(node, _Stream())
        stream.last += 1
        payload = encode_number(self._life, stream.last) + payload
        stream.unacknowledged.append((stream.last, topic, payload))
        stream.size += len(payload) + _PACKET
        while stream.size > self._max_bytes:
            stream.size -= len(stream.unacknowledged.popleft()[2]) + _PACKET
            self.lost += 1
        return payload


class ReceiptsTaken:
    """At a holder: how far it has taken what other nodes send."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}

    def accept(self, node: str, life: int, number: int) -> bool:
        """False: it was taken before."""
        known, last = self._last.get(node, (0, 0))
        if known == life and number <= last:
            return False
        self._last[node] = (life, number)
        return True

    def of(self, node: str) -> tuple[int, int]:
        return self._last.get(node, (0, 0))
