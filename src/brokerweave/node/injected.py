"""Says when the local broker has taken what came over links so far (`context.when_injected`).

Owns those that wait for that. Invariants: what comes later is not waited for; while somebody waits, injectors
are looked at now and then, less and less often while nothing moves. Must not know: what was injected, why
somebody waits.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.links.injector import Injector
from brokerweave.plugin import Timer

PAUSE_MIN, PAUSE_MAX = 0.01, 1.0


class WhenInjected:
    def __init__(
        self, injectors: list[Injector], call_later: Callable[[float, Callable[[], None]], Timer]
    ) -> None:
        self._injectors = injectors
        self._call_later = call_later
        self._waits: list[tuple[list[int], Callable[[], None]]] = []
        """For each lane the last run that is waited for, and who waits; the earliest first."""
        self._pause = PAUSE_MIN

    def wait(self, callback: Callable[[], None]) -> None:
        """Call back, in another turn, when all that was submitted so far has come to its end."""
        self._waits.append(([injector.outbox.last for injector in self._injectors], callback))
        if len(self._waits) == 1:
            self._pause = PAUSE_MIN
            self._call_later(0.0, self._look)

    def _look(self) -> None:
        done = [injector.outbox.oldest for injector in self._injectors]
        due = []
        while self._waits and all(o > last for o, last in zip(done, self._waits[0][0], strict=True)):
            due.append(self._waits.pop(0)[1])
        self._pause = PAUSE_MIN if due else min(2 * self._pause, PAUSE_MAX)
        if self._waits:
            self._call_later(self._pause, self._look)
        for callback in due:
            callback()
