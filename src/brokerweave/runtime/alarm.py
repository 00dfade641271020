"""One timer that is set again and again, for state machines that say when they want to be called next.

Invariant: it goes off at the time that was asked for last or before it, never later by itself. Must not know:
what is done then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_LONGEST = 3600.0


class Alarm:
    def __init__(self, goes_off: Callable[[], None]) -> None:
        self._goes_off = goes_off
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, due: float) -> None:
        """By `time.monotonic()`; a little early where it was to be earlier: whoever is called looks again."""
        if self._handle is not None:
            if self._at <= due:
                return
            self._handle.cancel()
        self._at = due
        wait = min(max(due - time.monotonic(), 0.0), _LONGEST)
        self._handle = asyncio.get_running_loop().call_later(wait, self._go_off)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _go_off(self) -> None:
        self._handle = None
        self._goes_off()
