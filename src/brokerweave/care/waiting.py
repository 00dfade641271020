"""Who goes on when neighbours have heard something, or holders have it.

Owns `Thresholds`, and the homes that wait. Invariant: what a neighbour heard, or a holder acknowledged, costs
time for those only that wait for just that, however many others wait. Must not know: what they wait for it
for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from brokerweave.care.home import Home

SLACK = 64
"""Entries of those that wait no longer, beyond as many as there are."""
_T = TypeVar("_T")


class Thresholds(Generic[_T]):
    """Who waits for a number to be reached."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._who: list[_T] = []
        self._most = SLACK

    def __len__(self) -> int:
        return len(self._who)

    def add(self, number: int, who: _T, waits: Callable[[_T], bool]) -> None:
        """`waits`: whether somebody still does."""
        if len(self._who) >= self._most:
            left = [(n, each) for n, each in zip(self._numbers, self._who, strict=True) if waits(each)]
            self._numbers, self._who = [n for n, _ in left], [each for _, each in left]
            self._most = 2 * len(left) + SLACK
        at = bisect_right(self._numbers, number)  # at the end, nearly always
        self._numbers.insert(at, number)
        self._who.insert(at, who)

    def passed(self, before: int, reached: int) -> list[_T]:
        """Those whose numbers are beyond the first and not beyond the second."""
        numbers = self._numbers
        return list(dict.fromkeys(self._who[bisect_right(numbers, before) : bisect_right(numbers, reached)]))

    def forget(self, reached: int) -> None:
        end = bisect_right(self._numbers, reached)
        del self._numbers[:end], self._who[:end]


class WaitingHomes:
    def __init__(self) -> None:
        self._homes: dict[str, Home] = {}
        self._versions: Thresholds[Home] = Thresholds()
        self._positions: dict[str, Thresholds[Home]] = {}

    def __len__(self) -> int:
        return len(self._homes)

    def all(self) -> list[Home]:
        return list(self._homes.values())

    def add(self, home: Home, version: int, positions: Mapping[str, int]) -> None:
        """It goes on when neighbours know this version, and holders have these positions."""
        self._homes[home.client] = home
        self._versions.add(version, home, self._waits)
        for node, position in positions.items():
            self._positions.setdefault(node, Thresholds()).add(position, home, self._waits)

    def discard(self, client: str) -> None:
        self._homes.pop(client, None)

    def _waits(self, home: Home) -> bool:
        return self._homes.get(home.client) is home

    def heard(self, before: int, version: int) -> list[Home]:
        """Whom it concerns that a neighbour knows a version, and knew another one before."""
        return list(filter(self._waits, self._versions.passed(before, version)))

    def had(self, node: str, before: int, position: int) -> list[Home]:
        """Whom it concerns that a holder has a position of its log, and had another one before."""
        waiting = self._positions.get(node)
        if waiting is None:
            return []
        passed = waiting.passed(before, position)
        waiting.forget(position)
        return list(filter(self._waits, passed))
