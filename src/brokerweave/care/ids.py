"""What names a publication: its place at its origin. (`mqtt.content` names it by what it says.)

Owns `MessageId`, and its stamp (`mqtt.stamp`). Invariants: a `MessageId` names one publication in
the whole deployment, and so does its stamp. Must not know: queues, nodes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

STAMP_BYTES = 8


class MessageId(NamedTuple):
    """`lane` is the one that numbers it: 0 where lanes keep no order."""

    origin: str
    epoch: int
    lane: int
    sequence: int


def stamp_of(identifier: MessageId) -> bytes:
    """What names it to a broker: the same at each start of each node."""
    origin, *numbers = identifier
    return _digest(b"id", origin, *numbers)


def stamp_of_entering(node: str, epoch: int, number: int) -> bytes:
    """What names the `number`-th publication that enters at a node, which has no id yet."""
    return _digest(b"entering", node, epoch, number)


def _digest(kind: bytes, node: str, *numbers: int) -> bytes:
    name = b"%b %b" % (b" ".join(b"%d" % number for number in numbers), node.encode())
    return blake2b(name, digest_size=STAMP_BYTES, person=kind).digest()
