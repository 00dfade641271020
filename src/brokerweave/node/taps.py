"""Chooses the local publications that go to the edge log, and hands them over.

Owns the taps' filters and the sampling. Invariants: a topic is matched once, since the answer is cached with
its route; a publication is handed over once, however many taps match. Must not know: files, how and when the
recorder writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from brokerweave.mqtt.scanner import split
from brokerweave.mqtt.topics import matches


@dataclass(frozen=True, slots=True)
class Tap:
    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    sample: float = 1.0

    def wants(self, topic: str) -> bool:
        return any(matches(each, topic) for each in self.topics) and not any(
            matches(each, topic) for each in self.exclude
        )


class TapRecorder(Protocol):
    """Where publications are recorded. A disk that fails is its own affair: nothing here raises."""

    def record(self, client: str, version: int, count: int, blob: bytes, resent: Sequence[int]) -> None:
        """`count` PUBLISH frames of one client; `resent` says which of them it had marked with DUP."""

    def write(self) -> None:
        """A client is about to hear that a publication of its is safe: let all that was recorded be so."""


class Taps:
    def __init__(self, taps: Sequence[Tap], recorder: TapRecorder, random: Random) -> None:
        self.recorder = recorder
        self._taps = tuple(taps)
        self._random = random

    def share(self, topic: str) -> float:
        """The share of a topic's messages that is kept; 0 if no tap wants it."""
        return max((tap.sample for tap in self._taps if tap.wants(topic)), default=0.0)

    def sample(
        self, share: float, client: str, version: int, count: int, blob: bytes, resent: Sequence[int]
    ) -> None:
        """Record some of the publications."""
        kept = [index for index in range(count) if self._random.random() < share]
        if kept:
            frames = split(blob)
            again = [place for place, index in enumerate(kept) if index in resent]
            self.recorder.record(
                client, version, len(kept), b"".join([frames[index] for index in kept]), again
            )
