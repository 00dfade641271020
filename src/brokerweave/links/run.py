"""A run: publications that travel together, the unit of everything behind the scanner.

Owns what a run is and how it is cut. Invariants: `blob` is `count` whole PUBLISH frames, in the order in
which `origin` took them, numbered `first`, `first + 1`, ... within the origin's `epoch`; a run is never
changed, only cut. Must not know: lanes, links, how a run is written down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt.codec import decode_varint

RUN_OVERHEAD = 256
"""Bytes that a run takes in memory beside its blob, about; bounds count them, or small runs would escape."""

SMALLEST_PUBLISH = 5
"""Bytes of the shortest PUBLISH with a topic: fixed header, topic length, one character."""


@dataclass(frozen=True, slots=True)
class Run:
    """`version` is the MQTT version of the frames: 4 (3.1 looks the same) or 5.

    `max_qos` is the highest QoS among the frames, `cap` the highest that anyone asked for where the run
    goes. `born` is when its messages were published, on this node's clock; that clock should go on over a
    restart, because runs in a journal keep their `born`.
    """

    origin: str
    epoch: int
    first: int
    count: int
    version: int
    max_qos: int
    cap: int
    born: float
    blob: bytes
    stamp: int = 0
    """Version of the first message where all are to be retained, each next one's is one more; else 0."""
    confirm: bool = False
    """Its sender waits to hear that every node behind has taken it."""
    flood: bool = False
    """It goes to every node, whatever they asked for: its way was cut, and the new one is not known yet."""
    repair: bool = False
    """A retained message that a node passes on because others may lack it: who has it, or a newer one, drops
    it. `stamp` and `origin` are those of its publication; `epoch` and `first`, too, if it is a flood of one
    that was no repair. Else `epoch` is 0."""
    holds: tuple[str, ...] = ()
    """Nodes for whose clients the receiver keeps it, should they miss it (`care`)."""
    sender: tuple[str, int] | None = None
    """The publisher's client id and packet id, of a run of one: by them one that is resent is known."""
    plan: bytes = b""
    """What the sender's strategy has to say to the receiver's about these messages (`Hop.plan`)."""

    @property
    def size(self) -> int:
        """What a queue's bound in bytes counts for this run."""
        return len(self.blob) + len(self.plan) + RUN_OVERHEAD

    @property
    def durable(self) -> bool:
        """Whether losing it would break a promise: QoS 0 may be dropped, the rest may not."""
        return self.max_qos > 0 and self.cap > 0

    @property
    def lasting(self) -> bool:
        """Whether it has to arrive whatever its way: then who gets it twice knows, even after a crash."""
        return self.durable or self.stamp > 0

    def named(self, origin: str, epoch: int, first: int) -> Run:
        return replace(self, origin=origin, epoch=epoch, first=first)

    def stamped(self, origin: str, stamp: int) -> Run:
        return replace(self, origin=origin, stamp=stamp)

    def without_dup(self) -> Run:
        return replace(self, blob=bytes((self.blob[0] & ~0x08,)) + self.blob[1:])

    def bound_for(
        self, cap: int, holds: tuple[str, ...], plan: bytes = b"", confirm: bool | None = None
    ) -> Run:
        """As `dataclasses.replace` would, which takes four times as long: this is done for each message."""
        return Run(
            self.origin,
            self.epoch,
            self.first,
            self.count,
            self.version,
            self.max_qos,
            cap,
            self.born,
            self.blob,
            self.stamp,
            self.confirm if confirm is None else confirm,
            self.flood,
            self.repair,
            holds,
            self.sender,
            plan,
        )

    def part(self, offset: int, count: int) -> Run:
        """The run of `count` messages from `offset` on. Walks the frames, so call it only to cut."""
        if offset == 0 and count == self.count:
            return self
        start = _skip(self.blob, 0, offset)
        end = _skip(self.blob, start, count)
        stamp = self.stamp + offset if self.stamp else 0
        return replace(self, first=self.first + offset, count=count, blob=self.blob[start:end], stamp=stamp)


def _skip(blob: bytes, position: int, frames: int) -> int:
    """The position `frames` frames further on."""
    for _ in range(frames):
        remaining, size = decode_varint(blob, position + 1)
        position += 1 + size + remaining
    if position > len(blob):
        raise RemoteProtocolError("a run ends inside a frame")
    return position
