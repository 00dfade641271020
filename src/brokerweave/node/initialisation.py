"""The initialisation queue (thesis 4.7.2.3): clients that wait to publish until this node knows the others.

Owns which clients wait, since when, and how much of theirs is held (`session.held_stream` has the bytes).
Invariants: while anything waits, what comes later waits behind it; nothing that waits has reached the broker,
has a number or was acknowledged; what does not get its turn within `patience` is refused, never dropped
without a word; once the strategy takes publications, the queue is over for good. Must not know: what the
strategy waits for, packets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from brokerweave.plugin import Timer
from brokerweave.session.held_stream import NotReady
from brokerweave.session.pair import Pair
from brokerweave.session.phase import Phase

LOOK_SECONDS = 0.05
"""Between two looks at whether the node knows enough by now, while anybody waits."""


class InitialisationHost(Protocol):
    def steady(self) -> float: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...

    def count(self, counter: str, amount: int = 1) -> None: ...


@dataclass(slots=True)
class _WaitingPair:
    until: float
    """When the client is refused."""
    bytes: int = 0
    pinged: float = -inf
    """When its broker was last told that it is alive."""


class InitialisationQueue:
    def __init__(
        self, host: InitialisationHost, takes: Callable[[], bool], limit: int, patience: float
    ) -> None:
        """`takes`: whether the strategy takes publications by now. `limit`: bytes of all clients together."""
        self.over = False
        self.bytes = 0
        self._host = host
        self._takes = takes
        self._limit = limit
        self._patience = patience
        self._waits: dict[Pair, _WaitingPair] = {}

    def __len__(self) -> int:
        """Clients that wait."""
        return len(self._waits)

    def admits(self, pair: Pair) -> bool:
        """Whether a client may publish at QoS 1 or 2. False: `pair.publish_now()` or a refusal follows."""
        if not self._waits:
            self.over = self.over or self._takes()
        if self.over:
            return True
        if pair not in self._waits:
            self._host.count("held_at_start")
            if not self._waits:
                self._host.call_later(LOOK_SECONDS, self._look)
            self._waits[pair] = _WaitingPair(self._host.steady() + self._patience)
        return False

    def grows(self, pair: Pair, size: int) -> None:
        """More of a client's is held. Raises `Refused` if that is too much."""
        if self.bytes + size > self._limit:
            self._host.count("refused_at_start")
            raise NotReady(full=True)
        self._waits[pair].bytes += size
        self.bytes += size

    def left(self, pair: Pair) -> None:
        wait = self._waits.pop(pair, None)
        if wait is not None:
            self.bytes -= wait.bytes

    def check(self) -> None:
        """Raises `AssertionError` where an invariant is broken."""
        assert self.bytes == sum(wait.bytes for wait in self._waits.values()), "bytes that were not counted"
        assert not (self.over and self._waits), "somebody waits for what is over"

    def _look(self) -> None:
        if self._waits and self._takes():
            self.over = True
            waits, self._waits, self.bytes = self._waits, {}, 0
            for pair in waits:
                pair.publish_now()
        now = self._host.steady()
        for pair, wait in list(self._waits.items()):
            if pair.phase is Phase.ACCEPTED:
                self._attend(pair, wait, now)
        if self._waits:
            self._host.call_later(LOOK_SECONDS, self._look)

    def _attend(self, pair: Pair, wait: _WaitingPair, now: float) -> None:
        if now >= wait.until:
            self.left(pair)
            self._host.count("refused_at_start")
            pair.close_refused(NotReady())
        elif pair.keep_alive and now - wait.pinged >= pair.keep_alive / 2:
            wait.pinged = now
            pair.ask_broker(lambda: None)  # it hears nothing of the client [MQTT-3.1.2-22]
