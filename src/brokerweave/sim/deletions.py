"""Retained messages that clients delete. A deletion has no payload by which it could be recognised.

Owns where deletions were made, and which message each had to replace. Invariant: a deletion counts only if a
node read it, and stamped it, before the node could lose it. Must not know: how a deletion travels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from brokerweave.node.retained import OLDEST


@dataclass(frozen=True, slots=True)
class Deletion:
    site: str
    topic: str
    at: float


class Deletions:
    def __init__(self) -> None:
        self._made: list[Deletion] = []
        self._read: dict[int, Deletion] = {}
        """By version."""

    def made(self, site: str, topic: str, at: float) -> None:
        """A client deletes what is retained on a topic."""
        self._made.append(Deletion(site, topic, at))

    def read(self, site: str, topic: str, at: float, version: int) -> None:
        """Its node forwards that. What was sent again, and is known, keeps its version, or has the oldest."""
        if version != OLDEST:
            self._read.setdefault(version, Deletion(site, topic, at))

    def of(self, topic: str) -> Iterator[Deletion]:
        """What nodes forwarded."""
        return (deletion for deletion in self._read.values() if deletion.topic == topic)

    def unsure(self, lost: Callable[[str, float], bool]) -> set[str]:
        """Topics of deletions that may have stayed at their own site: `lost(site, at)` says which."""
        return {deletion.topic for deletion in self._made if lost(deletion.site, deletion.at)}
