"""A client's SUBSCRIBE that has yet to go to the broker, and what the client sent behind it.

Owns nothing but the record. Invariant: what is kept here goes to the broker in the order in which it came.
Must not know: why a SUBSCRIBE waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerweave.mqtt.scanner import Frame, Routed


@dataclass(slots=True)
class WaitingSubscribe:
    frame: bytes
    whole: bytes
    """The chunk that it came in, of which the part from `done` on, with these items, follows it."""
    items: list[Routed | Frame]
    done: int
    put_off: tuple[bytes, list[Routed | Frame], int] | None
    """What of the chunk was left for later turns."""
    chunks: list[bytes] = field(default_factory=list)
    """What came before the client was read no more."""
    may_go: bool = False
    """Nothing keeps it back but that the broker has not accepted the client yet."""
