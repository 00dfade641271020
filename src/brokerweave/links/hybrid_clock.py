"""Hybrid times: stamps that can be compared between nodes, and stay near the time of day.

Owns their unit. Invariant: a node's stamps never go back, and pass every stamp that it has seen. Must not
know: what is stamped, the clock (time is passed in).
"""

from __future__ import annotations

_UNITS = 1000 << 16
"""Stamps in a second: fine enough that publications one after the other at two sites do not tie."""


class HybridClock:
    """Stamps that never go back and pass every stamp seen, so that a later publication has a higher one."""

    def __init__(self, max_skew: float) -> None:
        self.last = 0
        self._max_skew = max_skew

    def reserve(self, count: int, now: float) -> int:
        """The first of `count` consecutive stamps."""
        first = max(self.last + 1, int(now * _UNITS))
        self.last = first + count - 1
        return first

    def see(self, stamp: int, now: float) -> bool:
        """Go past another node's stamp; False, and unmoved, if it is too far ahead to be believed."""
        if time_of(stamp) > now + self._max_skew:
            return False
        self.last = max(self.last, stamp)
        return True


def time_of(stamp: int) -> float:
    """When a stamp was given, in seconds on its origin's clock."""
    return stamp / _UNITS
