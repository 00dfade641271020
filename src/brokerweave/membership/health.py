"""Whether this node itself is slow: then it gives others more time before it accuses them (Lifeguard, "LHM").

Owns one number. Invariant: it stays from 0 to `most`. Must not know: how the signs of it come about.
"""

from __future__ import annotations


class LocalHealth:
    __slots__ = ("_most", "score")

    def __init__(self, most: int) -> None:
        self._most = most
        self.score = 0
        """0: well. Each answered probe takes one away; each sign that this node is slow adds one."""

    def change(self, by: int) -> None:
        self.score = min(max(self.score + by, 0), self._most)

    def scaled(self, seconds: float) -> float:
        return seconds * (self.score + 1)
