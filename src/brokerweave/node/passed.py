"""Says when outboxes have passed on what is in them now: injectors' (`context.when_injected`), and lanes'.

Owns those that wait for that. Invariants: what comes later is not waited for; while somebody waits, outboxes
are looked at now and then, less and less often while nothing moves. Must not know: what was sent, why
somebody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from brokerweave.links.outbox import Outbox
from brokerweave.plugin import Timer

PAUSE_MIN, PAUSE_MAX = 0.01, 1.0


class WhenPassed:
    def __init__(self, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._call_later = call_later
        self._waits: list[tuple[list[tuple[Outbox, int]], Callable[[], None]]] = []
        """For each outbox the last run that is waited for, and who waits; the earliest first."""
        self._pause = PAUSE_MIN
        self._timer: Timer | None = None

    def wait(self, outboxes: Iterable[Outbox], callback: Callable[[], None]) -> None:
        """Call back, in another turn, when all that these have now has come to its end."""
        self._waits.append(([(outbox, outbox.last) for outbox in outboxes], callback))
        self._pause = PAUSE_MIN
        if self._timer is not None:
            self._timer.cancel()  # it may be long until then
        self._timer = self._call_later(0.0, self._look)

    def _look(self) -> None:
        due = []
        waits, self._waits, self._timer = self._waits, [], None
        for left, callback in waits:
            left[:] = [(outbox, last) for outbox, last in left if outbox.oldest <= last]
            if left:
                self._waits.append((left, callback))
            else:
                due.append(callback)
        self._pause = PAUSE_MIN if due else min(2 * self._pause, PAUSE_MAX)
        if self._waits:
            self._timer = self._call_later(self._pause, self._look)
        for callback in due:
            callback()
