"""What names a publication: its place at its origin. (`mqtt.content` names it by what it says.)

Invariants: a `MessageId` names one publication in the whole deployment. Must not know: queues, nodes.
"""

from __future__ import annotations

from typing import NamedTuple


class MessageId(NamedTuple):
    """`lane` is the one that numbers it: 0 where lanes keep no order."""

    origin: str
    epoch: int
    lane: int
    sequence: int
