"""What names a publication: its place at its origin, or a hash of what a broker shows of it.

Owns both names. Invariants: a `MessageId` names one publication in the whole deployment; two publications
have the same hash if, and as good as only if, topic and payload are equal. Must not know: queues, nodes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

HASH_BYTES = 8


class MessageId(NamedTuple):
    """`lane` is the one that numbers it: 0 where lanes keep no order."""

    origin: str
    epoch: int
    lane: int
    sequence: int


def content_hash(topic: str, payload: bytes) -> bytes:
    """A broker's delivery shows no more of a publication than this."""
    # No topic holds U+0000 [MQTT-1.5.4-2], so nothing moves from one to the other unseen.
    return blake2b(b"%b\0%b" % (topic.encode(), payload), digest_size=HASH_BYTES).digest()
