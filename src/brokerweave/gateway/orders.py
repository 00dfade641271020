"""Orders to move clients: those that wait for their turn, and those under way.

Invariants: each order has one result; a client has one order at a time; at most `at_once` are under way. Must
not know: who gave an order, how a client is moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from brokerweave.gateway.search import S
from brokerweave.gateway.transitions import ClientWay, MoveStep


@dataclass(frozen=True, slots=True)
class MoveTask(Generic[S]):
    client: S
    target: str
    number: int | None
    """Of a controller's order; None: an operator's."""


class MoveTasks(Generic[S]):
    def __init__(
        self,
        at_once: int,
        begin: Callable[[S], None],
        ended: Callable[[MoveTask[S], MoveStep, str], None],
    ) -> None:
        """`begin`: let the client's tunnel dial. `ended`: the result, DONE, LATE, REFUSE or FAIL, and why."""
        self._at_once = at_once
        self._begin = begin
        self._ended = ended
        self._waiting: deque[MoveTask[S]] = deque()
        self._under_way: dict[S, MoveTask[S]] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def waits(self, client: S) -> bool:
        return any(task.client is client for task in self._waiting)

    def obstacle(self, client: S) -> str:
        """Why a client cannot be moved now; empty if it can."""
        if self.waits(client) or client in self._under_way or client.tunnel.way is not ClientWay.AT_REST:
            return "it is on its way already"
        return client.tunnel.fixed

    def add(self, client: S, target: str, number: int | None) -> None:
        """It has no obstacle. Call `go_on` soon."""
        self._waiting.append(MoveTask(client, target, number))

    def target(self, client: S) -> str:
        return self._under_way[client].target

    def go_on(self) -> None:
        """Begin as many as may be under way."""
        while self._waiting and len(self._under_way) < self._at_once:
            task = self._waiting.popleft()
            tunnel = task.client.tunnel
            why = "the client has gone" if tunnel.way is ClientWay.ENDED else tunnel.fixed
            if tunnel.way is not ClientWay.AT_REST or why:
                self._ended(task, MoveStep.REFUSE, why or "it lost its site")
                continue
            self._under_way[task.client] = task
            self._begin(task.client)

    def settled(self, client: S, step: MoveStep, why: str) -> None:
        """A tunnel came to rest, or ended; an order of it is over."""
        task = self._under_way.pop(client, None)
        if task is None:
            return
        link = client.tunnel.link
        done = step in (MoveStep.DONE, MoveStep.LATE)
        if done and (link is None or link.site != task.target):
            step = MoveStep.FAIL
        self._ended(task, step, why)

    def check(self) -> None:
        """Raises `AssertionError` if an invariant does not hold."""
        assert len(self._under_way) <= self._at_once, "more moves are under way than may be"
        busy = [*self._under_way, *(task.client for task in self._waiting)]
        assert len(busy) == len(set(busy)), "a client has two orders"
        for client in self._under_way:
            resting = client.tunnel.way in (ClientWay.AT_REST, ClientWay.ENDED)
            assert not resting, f"an order is under way for a client that is {client.tunnel.way.value}"
