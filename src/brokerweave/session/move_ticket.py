"""A ticket: the announcement that a client comes from another site as planned, which nobody else can make.

Owns its form and its proof. Invariants: a ticket is made with the cluster's key, for one client on its way
from one site to another, and is good once, until it expires. Must not know: connections, clocks.

Big-endian: expiry u64 (milliseconds since 1970), number (16 bytes), then client id, old site and new site,
each with its length (u16) and in UTF-8, then the proof (32 bytes).
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass

from brokerweave.errors import Refused

NUMBER_BYTES = 16
NOT_AUTHORIZED = 0x87
MOST_USED = 100_000
"""Tickets whose numbers are remembered: more at once are no planned moves."""
_HEAD = struct.Struct(f">Q{NUMBER_BYTES}s")
_LENGTH = struct.Struct(">H")
_PROOF = 32
_USE = b"brokerweave moves"
"""What is proved by one use of the key must prove nothing for another."""


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A client goes from one site to another, both by the ids of their nodes."""

    client: str
    old: str
    new: str
    number: bytes
    """Of this move, by chance: no other has it."""


class TicketRefused(Refused):
    def __init__(self, reason: str) -> None:
        super().__init__(f"a planned move is refused: {reason}", NOT_AUTHORIZED)


def make(key: bytes, move: PlannedMove, expires: float) -> bytes:
    """`expires`: seconds since 1970, on clocks that the sites' clocks agree with as far as that matters."""
    said = b"".join((_HEAD.pack(int(expires * 1000), move.number), *map(_text, _names(move))))
    return said + _proof(key, said)


class Tickets:
    """Those that come to one node."""

    def __init__(self, key: bytes, node: str) -> None:
        """An empty key: no ticket is good."""
        self._key = key
        self._node = node
        self._used: dict[bytes, float] = {}
        """By number: when it expires."""

    def take(self, ticket: bytes, now: float) -> PlannedMove:
        """What a good ticket says; it is good no more. Raises `TicketRefused`."""
        said, proof = ticket[:-_PROOF], ticket[-_PROOF:]
        if not self._key:
            raise TicketRefused("this node has no key_file to know tickets by")
        if not hmac.compare_digest(proof, _proof(self._key, said)):
            raise TicketRefused("its ticket was not made with this cluster's key")
        move, expires = _read(said)
        if move.new != self._node:
            raise TicketRefused(f"its ticket is for site {move.new!r}")
        if expires <= now:
            raise TicketRefused(f"its ticket expired {now - expires:.1f} s ago")
        self._used = {number: until for number, until in self._used.items() if until > now}
        if move.number in self._used:
            raise TicketRefused("its ticket was used before")
        if len(self._used) >= MOST_USED:
            raise TicketRefused("too many tickets are in use")
        self._used[move.number] = expires
        return move


def _names(move: PlannedMove) -> tuple[str, str, str]:
    return move.client, move.old, move.new


def _text(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _read(said: bytes) -> tuple[PlannedMove, float]:
    try:
        expires, number = _HEAD.unpack_from(said)
        at, names = _HEAD.size, []
        for _ in range(3):
            (length,) = _LENGTH.unpack_from(said, at)
            at += _LENGTH.size + length
            names.append(said[at - length : at].decode())
    except (struct.error, UnicodeDecodeError):
        raise TicketRefused("its ticket cannot be read") from None
    if at != len(said):
        raise TicketRefused("its ticket cannot be read")
    client, old, new = names
    return PlannedMove(client, old, new, number), expires / 1000


def _proof(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, _USE + said, "sha256")
