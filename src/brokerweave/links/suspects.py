"""Topics that need care, because a connection to the broker died on a message.

QoS 0 messages cannot be tried again (at most once), so their topic is remembered: the next message on it is
sent alone. A broker that cannot handle a topic would close the connection on each of its messages. After
`QUARANTINE_AFTER` deaths in a row, with nothing else in flight, messages of such a topic are not sent any
more; every `HOLD` seconds one is tried. Invariants: bounded; entries expire; one message that passes clears
its topic. Must not know: connections, messages, clocks.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

HOLD = 60.0
"""Seconds that a topic stays under suspicion after the last reason for it."""
QUARANTINE_AFTER = 10
"""Deaths in a row: five QoS 1 or 2 messages, each tried twice, or ten of QoS 0.

Lower, and harmless messages behind a few bad ones on their topic become dead letters too; higher, and a
topic that the broker cannot handle costs more reconnects, during which everything else waits.
"""
CAPACITY = 1_000
"""Topics; when full, the oldest suspicion goes."""


class SuspectVerdict(enum.Enum):
    TRUSTED = "trusted"
    ALONE = "alone"
    QUARANTINED = "quarantined"


@dataclass(slots=True)
class _Record:
    until: float
    deaths: int = 0


class Suspects:
    def __init__(self) -> None:
        self._topics: dict[bytes, _Record] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def suspect(self, topic: bytes, now: float) -> None:
        """It was among what was written before a connection died."""
        record = self._topics.pop(topic, None) or _Record(now)
        record.until = now + HOLD
        self._topics[topic] = record
        if len(self._topics) > CAPACITY:
            del self._topics[next(iter(self._topics))]

    def blame(self, topic: bytes, now: float) -> int:
        """A connection died with one message in flight, on this topic. How often by now, in a row."""
        self.suspect(topic, now)
        self._topics[topic].deaths += 1
        return self._topics[topic].deaths

    def clear(self, topic: bytes) -> None:
        """A message on it passed."""
        self._topics.pop(topic, None)

    def verdict(self, topic: bytes, now: float) -> SuspectVerdict:
        record = self._topics.get(topic)
        if record is None:
            return SuspectVerdict.TRUSTED
        if record.deaths >= QUARANTINE_AFTER:
            if now < record.until:
                return SuspectVerdict.QUARANTINED
            record.deaths -= 1
            record.until = now + HOLD
        return SuspectVerdict.ALONE

    def forget_old(self, now: float) -> None:
        """Topics in quarantine stay until one of their messages passes: they come up again in `verdict`."""
        old = [t for t, r in self._topics.items() if r.until <= now and r.deaths < QUARANTINE_AFTER]
        for topic in old:
            del self._topics[topic]
