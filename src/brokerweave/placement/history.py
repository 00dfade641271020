"""What was decided, why, and what became of it.

Owns the last decisions. Invariants: at most `most` are kept, none older than `seconds`; a decision is written
down when it is sent, and its outcome is filled in once. Must not know: who asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from brokerweave.placement.policy import Move


class MoveOutcome(Enum):
    ORDERED = "ordered"
    DONE = "done"
    REFUSED = "refused"
    """The gateway or the new site did not want it: the client stays where it is."""
    FAILED = "failed"
    """It was tried, and did not work."""
    EXPIRED = "expired"
    """The gateway did not answer."""


@dataclass(slots=True)
class MoveDecision:
    at: float
    number: int
    """Of the order."""
    move: Move
    cause: str
    """`policy`, `pinned`, `asked`, `draining`, `evacuated` or `site gone`."""
    outcome: MoveOutcome = MoveOutcome.ORDERED
    note: str = ""
    finished: float | None = None


class MoveHistory:
    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._decisions: deque[MoveDecision] = deque(maxlen=most)

    def add(self, decision: MoveDecision) -> None:
        while self._decisions and self._decisions[0].at < decision.at - self._seconds:
            self._decisions.popleft()
        self._decisions.append(decision)

    def last(self, count: int, now: float) -> Iterator[MoveDecision]:
        """The newest first."""
        for number, decision in enumerate(reversed(self._decisions)):
            if number >= count or decision.at < now - self._seconds:
                return
            yield decision

    def __len__(self) -> int:
        return len(self._decisions)
