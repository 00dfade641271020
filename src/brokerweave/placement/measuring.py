"""One measurement: a few pings to one site, and what came back (EMMA V-A: ten, 250 ms apart).

Owns the times of sending and answering. Invariants: an answer counts once; one that comes after the
measurement ended does not count. Must not know: why it is made, bytes.
"""

from __future__ import annotations

from math import inf

from brokerweave.placement.quality import Sample, sample

PINGS = 10
INTERVAL = 0.25
MOST_PUT_OFF = 6
PATIENCE = 2.0
"""Seconds after which a ping that was not answered is lost. The last latency group begins at one second."""


class PingSeries:
    __slots__ = ("_answered", "_next", "_pings", "_put_off", "_sent", "site")

    def __init__(self, site: str, pings: int, now: float) -> None:
        self.site = site
        self._pings = pings
        self._next = now
        self._sent: dict[int, float] = {}
        """By sequence, in their order."""
        self._answered: dict[int, float] = {}
        self._put_off = 0

    def next_due(self) -> float:
        """When the next ping is to be sent, or the last one is lost."""
        if len(self._sent) < self._pings:
            return self._next
        return max(self._sent.values(), default=-inf) + PATIENCE

    def send(self, seq: int, now: float) -> None:
        self._sent[seq] = now
        self._next = now + INTERVAL

    def put_off(self, now: float) -> bool:
        """The next ping cannot be sent yet. Whether there is patience to wait for that."""
        self._put_off += 1
        self._next = now + INTERVAL
        return self._put_off <= MOST_PUT_OFF

    @property
    def sends(self) -> bool:
        """Whether there are pings to send yet."""
        return len(self._sent) < self._pings

    def answered(self, seq: int, now: float) -> None:
        sent = self._sent.get(seq)
        if sent is not None and seq not in self._answered and now - sent <= PATIENCE:
            self._answered[seq] = max(now - sent, 0.0)

    def finished(self, now: float) -> bool:
        return not self.sends and (len(self._answered) == self._pings or now >= self.next_due())

    def result(self, now: float) -> Sample:
        trips = [self._answered[seq] for seq in self._sent if seq in self._answered]
        return sample(now, trips, self._pings)

    @property
    def seqs(self) -> list[int]:
        return list(self._sent)
