"""Orders under way: sent, repeated until they are answered, ended once.

Owns their numbers, the outcome of each and its line in the history. Invariants: at most one order for a
client is under way; a number is never used twice; each order that was sent has exactly one outcome. Must not
know: why a client is moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

from brokerweave.placement.history import MoveDecision, MoveHistory, MoveOutcome
from brokerweave.placement.policy import Move

REPEAT_SECONDS = 2.0
"""An order that is not answered is sent again: the gateway knows it by its number."""


class MoveOrder(NamedTuple):
    number: int
    """Grows, and is never used again: a gateway recognises an order that it has had."""
    gateway: str
    client: str
    origin: str
    target: str


class _Flight:
    __slots__ = ("decision", "ends", "order", "repeat")

    def __init__(self, order: MoveOrder, decision: MoveDecision, ends: float, repeat: float) -> None:
        self.order = order
        self.decision = decision
        self.ends = ends
        self.repeat = repeat


class Orders:
    def __init__(
        self,
        history: MoveHistory,
        timeout: float,
        first: int,
        send: Callable[[MoveOrder], None],
        ended: Callable[[MoveOrder, MoveOutcome], None],
    ) -> None:
        """They are numbered from `first`: a controller that restarts must not use a number again."""
        self._history = history
        self._timeout = timeout
        self._number = first
        self._tell = send
        self._ended = ended
        self._flights: dict[tuple[str, str], _Flight] = {}
        """By gateway and client."""
        self._numbers: dict[tuple[str, int], str] = {}
        """The client of each, by gateway and number."""
        self._causes: Counter[str] = Counter()
        self._due = inf
        """Before this nothing ends or is to be repeated."""
        self.counters = {outcome.value: 0 for outcome in MoveOutcome}

    def send(self, move: Move, cause: str, now: float) -> None:
        assert move.client is not None
        order = MoveOrder(self._number, move.gateway, move.client, move.origin, move.target)
        self._number += 1
        self.end(order.gateway, order.client, MoveOutcome.FAILED, "another order took its place", now)
        decision = MoveDecision(now, order.number, move, cause)
        self._history.add(decision)
        self.counters[MoveOutcome.ORDERED.value] += 1
        flight = _Flight(order, decision, now + self._timeout, now + REPEAT_SECONDS)
        self._flights[order.gateway, order.client] = flight
        self._numbers[order.gateway, order.number] = order.client
        self._causes[cause] += 1
        self._due = min(self._due, flight.ends, flight.repeat)
        self._tell(order)

    def finished(self, gateway: str, number: int, outcome: MoveOutcome, note: str, now: float) -> None:
        """The gateway's answer; what answers no order under way changes nothing."""
        client = self._numbers.get((gateway, number))
        if client is not None:
            self.end(gateway, client, outcome, note, now)

    def end(self, gateway: str, client: str, outcome: MoveOutcome, note: str, now: float) -> None:
        """If one is under way."""
        flight = self._flights.pop((gateway, client), None)
        if flight is not None:
            decision = flight.decision
            del self._numbers[gateway, flight.order.number]
            self._causes[decision.cause] -= 1
            decision.outcome, decision.note, decision.finished = outcome, note, now
            self.counters[outcome.value] += 1
            self._ended(flight.order, outcome)

    def end_all(self, gateway: str, note: str, now: float) -> None:
        for order in list(self.under_way()):
            if order.gateway == gateway:
                self.end(gateway, order.client, MoveOutcome.EXPIRED, note, now)

    def under_way(self) -> Iterator[MoveOrder]:
        return (flight.order for flight in self._flights.values())

    def clients(self) -> set[tuple[str, str]]:
        """(Gateway, client) of each."""
        return set(self._flights)

    def count(self, cause: str) -> int:
        return self._causes[cause]

    def next_due(self) -> float:
        return self._due if self._flights else inf

    def tick(self, now: float) -> None:
        if now < self._due:
            return
        for (gateway, client), flight in list(self._flights.items()):
            if flight.ends <= now:
                self.end(gateway, client, MoveOutcome.EXPIRED, "the gateway did not answer", now)
            elif flight.repeat <= now:
                flight.repeat = now + REPEAT_SECONDS
                self._tell(flight.order)
        self._due = min((min(each.ends, each.repeat) for each in self._flights.values()), default=inf)

    def __len__(self) -> int:
        return len(self._flights)
