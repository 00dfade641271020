"""The time of day as the node sees it: as precise as the machine's, and steady between its steps.

Owns the distance between the monotonic clock and the wall clock. Invariants: time does not go back unless the
machine's clock was set; a clock that was set (a small machine without a battery that finds its time server)
is followed within `CHECK_SECONDS`, since stamps of retained messages are compared between sites. The event
loop's own time is no base for this: it stands still during a turn, by as much as the turn takes.
"""

from __future__ import annotations

import logging
import time

log = logging.getLogger("brokerweave.node")

CHECK_SECONDS = 5.0
STEP_SECONDS = 0.01
"""Differences below this are the two readings' own; time servers slew the monotonic clock as well."""
LOUD_SECONDS = 1.0


class Clock:
    def __init__(self) -> None:
        self._offset = _offset()

    def now(self) -> float:
        return time.monotonic() + self._offset

    def follow(self) -> float:
        """Take over a step that the machine's clock made, and return it; 0.0 if it made none.

        Call it every `CHECK_SECONDS`.
        """
        step = _offset() - self._offset
        if abs(step) < STEP_SECONDS:
            return 0.0
        self._offset += step
        if abs(step) >= LOUD_SECONDS:
            log.warning("the system clock was changed by %+.1f s; the node follows it", step)
        return step


def _offset() -> float:
    return time.time() - time.monotonic()
