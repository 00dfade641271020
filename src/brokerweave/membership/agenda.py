"""What is due when, without a clock.

Owns a heap of callbacks. Invariant: they run in the order of their times. Must not know: what they do, or
what time it is but for what it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf

Callback = Callable[[float], None]
"""Is given the time."""


class Due:
    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None


class Agenda:
    __slots__ = ("_heap", "_made")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._made = 0

    def at(self, when: float, callback: Callback) -> Due:
        due = Due(callback)
        self._made += 1
        heappush(self._heap, (when, self._made, due))
        return due

    def next_due(self) -> float:
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heappop(heap)
        return heap[0][0] if heap else inf

    def run(self, now: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= now:
            callback = heappop(heap)[2].callback
            if callback is not None:
                callback(now)

    def shift(self, seconds: float) -> None:
        """Everything happens that much later."""
        self._heap = [
            (when + seconds, made, due) for when, made, due in self._heap if due.callback is not None
        ]
        heapify(self._heap)

    def clear(self) -> None:
        self._heap.clear()
