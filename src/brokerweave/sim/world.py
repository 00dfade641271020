"""Virtual time, machines that live in it, and a readable trace of what happened.

Owns the clock, the heap of what is to come, and all randomness: every part draws from a generator of its own
that is made from the seed and the part's name, so that taking one fault out of a schedule changes as little
as possible elsewhere. Invariants: events run in the order of their times, and of their making where those are
equal; time never goes back; nothing runs on a host that is down, and what is due on a frozen one waits.
Must not know: what runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

CHECK_EVERY = 32

START = 1_000_000.0
"""Seconds on the clock when a run begins: far from 0, as on a real one."""


class ScheduledEvent:
    """Something that is to happen; implements the plug-in API's `Timer`."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class _HostEvent(ScheduledEvent):
    """Something that is to happen on a host."""

    __slots__ = ("host", "life")

    def __init__(self, callback: Callable[[], None], host: VirtualHost) -> None:
        self.callback = callback
        self.host = host
        self.life = host.life

    def due(self) -> None:
        host, callback = self.host, self.callback
        if callback is not None and self.life == host.life:
            if host.frozen:
                host.run(self._fire)
            else:
                callback()

    def _fire(self) -> None:
        if self.callback is not None:  # what else waited for the thaw may have called it off
            self.callback()


class Killed(BaseException):
    """A process was killed in the middle of a write: `bury` ends it. Nothing in between may catch this."""

    def __init__(self, bury: Callable[[], None]) -> None:
        self.bury = bury


class World:
    def __init__(self, seed: str, trace_lines: int = 300) -> None:
        self.seed = seed
        self.now = START
        self.events = 0
        self.trace: deque[tuple[float, str, str]] = deque(maxlen=trace_lines)
        self._heap: list[tuple[float, int, ScheduledEvent]] = []
        self._made = 0
        self.checks: list[Callable[[], None]] = []
        """What must hold at any time. One is called after every CHECK_EVERY events, in turn: they walk whole
        states, and a run would take five times as long with one after each."""

    def random(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    def later(self, seconds: float, callback: Callable[[], None]) -> ScheduledEvent:
        event = ScheduledEvent(callback)
        self._made += 1
        heappush(self._heap, (self.now + seconds, self._made, event))
        return event

    def run(self, until: float) -> None:
        """Let everything happen that is due by `until` seconds after the start."""
        heap, end = self._heap, START + until
        while heap and heap[0][0] <= end:
            self.now, _, event = heappop(heap)
            callback = event.callback
            if callback is not None:
                self.events += 1
                try:
                    callback()
                except Killed as killed:
                    killed.bury()
                if self.checks and self.events % CHECK_EVERY == 0:
                    self.checks[self.events // CHECK_EVERY % len(self.checks)]()
        self.now = end

    @property
    def elapsed(self) -> float:
        return self.now - START

    def note(self, who: str, text: str) -> None:
        self.trace.append((self.now - START, who, text))

    def lines(self) -> list[str]:
        return [f"{at:9.3f}  {who:<10} {text}" for at, who, text in self.trace]


class VirtualHost:
    """A machine: its timers die with it, and wait while it is frozen (as by SIGSTOP)."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.up = False
        self.frozen = False
        self.ends: list[Mortal] = []
        """Its ends of connections."""
        self.life = 0
        """How often it died."""
        self._waiting: list[Callable[[], None]] = []

    def start(self) -> None:
        self.up = True

    def die(self) -> None:
        self.up = False
        self.frozen = False
        self.life += 1
        self._waiting.clear()
        for end in list(self.ends):
            end.owner_died()
        self.ends.clear()

    def later(self, seconds: float, callback: Callable[[], None]) -> ScheduledEvent:
        """Do something on this host, unless it died in between."""
        event = _HostEvent(callback, self)
        self.world.later(seconds if seconds > 0.0 else 0.0, event.due)
        return event

    def run(self, callback: Callable[[], None]) -> None:
        """Now, or when the host thaws."""
        if self.frozen:
            self._waiting.append(callback)
        else:
            callback()

    def freeze(self) -> None:
        self.frozen = self.up

    def thaw(self) -> None:
        if not self.frozen:
            return
        self.frozen = False
        waiting, self._waiting = self._waiting, []
        life = self.life
        for callback in waiting:
            if life == self.life:
                callback()
        for end in list(self.ends):
            end.pump()


class Mortal:
    """What a host takes with it when it dies; `pipes.End` is the one kind."""

    def owner_died(self) -> None:
        raise NotImplementedError

    def pump(self) -> None:
        raise NotImplementedError
