"""How fast clients are moved: a number at once, and a number a second.

Owns the allowance. Invariant: in any second at most `per_second` moves begin, and one more. Must not know:
who is moved.
"""

from __future__ import annotations


class MovePace:
    __slots__ = ("_allowed", "_counted", "at_once", "per_second")

    def __init__(self, at_once: int, per_second: float, now: float) -> None:
        self.at_once = at_once
        self.per_second = per_second
        self._allowed = 1.0
        self._counted = now

    def take(self, under_way: int, now: float) -> bool:
        """Whether one more may begin now; then it has begun."""
        gained = (now - self._counted) * self.per_second
        self._allowed = min(self._allowed + max(gained, 0.0), max(self.per_second, 1.0))
        self._counted = now
        if under_way >= self.at_once or self._allowed < 1.0:
            return False
        self._allowed -= 1.0
        return True
