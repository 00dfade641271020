"""How far each message got on its way into the broker, kept so that a crash neither loses nor doubles it.

Owns what is kept for each packet identifier: the message (its run's number on disk and its place in the
run) and the step of its handshake. A step is written before the packet that follows from it leaves: SENT
before PUBLISH, RECEIVED before PUBREL. With it, the next start of the node goes on with the broker's session
instead of beginning a new one. Must not know: files, bytes on the connection.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol


class Step(enum.IntEnum):
    FREE = 0
    SENT = 1
    """PUBLISH may have reached the broker."""
    RECEIVED = 2
    """QoS 2: the broker has it (PUBREC)."""
    DONE = 3
    """Over, but other messages of its run are not, so the run would come again."""
    BURNT = 4
    """QoS 2: given up without an answer; the broker may know the identifier still."""


@dataclass(frozen=True, slots=True)
class HandshakeMark:
    packet_id: int
    record: int
    offset: int
    step: Step
    qos: int = 0
    """At which it was sent: a repetition must not differ."""


class Progress(Protocol):
    """Nothing here raises because a disk failed."""

    @property
    def session(self) -> bool:
        """Whether the broker's session of this name was begun by this outbox's node."""

    def session_established(self) -> None: ...

    def marks(self) -> list[HandshakeMark]:
        """What an earlier start of the node left, but for FREE. For the beginning only."""

    def put(self, packet_id: int, record: int, offset: int, step: Step, qos: int = 0) -> None:
        """Safe from the next `flush` on."""

    def flush(self) -> None: ...


class MemoryProgress:
    """For tests and simulations: what was flushed outlives an injector."""

    def __init__(self) -> None:
        self.session = False
        self._kept: dict[int, HandshakeMark] = {}
        self._waiting: dict[int, HandshakeMark] = {}

    def session_established(self) -> None:
        self.session = True

    def marks(self) -> list[HandshakeMark]:
        return [mark for mark in self._kept.values() if mark.step is not Step.FREE]

    def put(self, packet_id: int, record: int, offset: int, step: Step, qos: int = 0) -> None:
        self._waiting[packet_id] = HandshakeMark(packet_id, record, offset, step, qos)

    def flush(self) -> None:
        self._kept |= self._waiting
        self._waiting.clear()

    def crash(self) -> None:
        """What was not flushed is gone."""
        self._waiting.clear()
