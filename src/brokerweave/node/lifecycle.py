"""Which of the states of ILDM Fig. 5 (b) a node is in: stopped, running, adding or removing a neighbour.

Owns which neighbours are being added and which are being removed. Invariants: a neighbour is being added
until its link was up, the strategy has told it what there is to share, and the mark behind that was answered;
it is being removed until its connections are closed and all others have heard what the strategy told them
because of it. Must not know: what is shared, sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from brokerweave.plugin import NodeState


class Marks(Protocol):
    """What of `node.barrier.Barrier` counts here."""

    def when_heard(
        self, callback: Callable[[], None], asked_by: str | None = None, only: str | None = None
    ) -> bool: ...


class _Removal:
    __slots__ = ("connections", "heard")

    def __init__(self, connections: int) -> None:
        self.connections = connections
        """That are still open."""
        self.heard = False
        """By all others."""


class Lifecycle:
    def __init__(self, marks: Marks, is_up: Callable[[str], bool]) -> None:
        self.running = False
        """The host sets it, from the start of the node until its end."""
        self._marks = marks
        self._is_up = is_up
        self._adding: set[str] = set()
        self._removing: dict[str, _Removal] = {}

    @property
    def state(self) -> NodeState:
        if not self.running:
            return NodeState.STOPPED
        if self._removing:
            return NodeState.REMOVING
        return NodeState.ADDING if self._adding else NodeState.RUNNING

    def adding(self, neighbour: str) -> None:
        self._removing.pop(neighbour, None)
        self._adding.add(neighbour)

    def told(self, neighbour: str) -> None:
        """The strategy heard that the link is up, and has told the neighbour what it shares."""

        def heard() -> None:
            if self._is_up(neighbour):  # else nobody waits for it: it has to be told again
                self.shared(neighbour)

        if neighbour in self._adding and self._marks.when_heard(heard, only=neighbour):
            self.shared(neighbour)

    def shared(self, neighbour: str) -> None:
        """The neighbour knows what it has to, or there is nothing to tell: its link stands by."""
        self._adding.discard(neighbour)

    def removing(self, neighbour: str, connections: int) -> None:
        """A removal begins while so many connections are open."""
        self._adding.discard(neighbour)
        self._removing.setdefault(neighbour, _Removal(connections))

    def removed(self, neighbour: str) -> None:
        """The strategy has told the others."""
        removal = self._removing[neighbour]

        def heard() -> None:
            removal.heard = True
            self._check(neighbour, removal)

        if self._marks.when_heard(heard):
            heard()

    def closed(self, neighbour: str) -> None:
        """A connection of a neighbour that is not there any more ended."""
        removal = self._removing.get(neighbour)
        if removal is not None:
            removal.connections -= 1
            self._check(neighbour, removal)

    def _check(self, neighbour: str, removal: _Removal) -> None:
        if removal.heard and removal.connections <= 0 and self._removing.get(neighbour) is removal:
            del self._removing[neighbour]
