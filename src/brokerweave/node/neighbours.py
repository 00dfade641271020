"""The neighbours of one node: added, up, down, removed, with their pending messages.

Owns the lanes of every neighbour. `node.wiring` decides which neighbours the strategy hears of. Invariants: a
neighbour is *up* while its first lane, which carries control packets, is connected; a neighbour that is down
keeps its lanes; after `forget_after` seconds without a connection it is removed, and its pending messages are
counted as dropped. Must not know: sockets, addresses, who dials.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from brokerweave.links.lane import Lane, Resume
from brokerweave.node.counters import Counters
from brokerweave.node.lifecycle import Lifecycle
from brokerweave.node.plugins import Plugins
from brokerweave.plugin import Strategy, Timer


class LaneMaker(Protocol):
    def __call__(self, neighbour: str, index: int) -> Lane:
        """A lane to a neighbour; goes on with what an earlier run of the node left to send."""


class NeighbourEvents(Protocol):
    """What the rest of the node hears of its neighbours."""

    def lane_up(self, neighbour: str, lane: int) -> None: ...

    def link_up(self, neighbour: str) -> None:
        """Its first lane is connected."""

    def link_down(self, neighbour: str) -> None:
        """Its first lane is lost."""

    def lane_lost(self, neighbour: str, lane: int) -> None:
        """After `link_down`, where both happen."""

    def neighbour_stays(self, neighbour: str) -> bool:
        """Whether a neighbour without a link is to be remembered all the same."""

    def neighbour_forgotten(self, neighbour: str) -> None:
        """It was removed, whoever removed it."""


class Neighbour:
    __slots__ = ("active", "connected", "forgetting", "id", "lanes")

    def __init__(self, identifier: str, lanes: list[Lane]) -> None:
        self.id = identifier
        self.lanes = lanes
        self.active = True
        """The strategy counts on the link: it is in the tree, or it failed and nothing replaces it yet."""
        self.connected = [False] * len(lanes)
        self.forgetting: Timer | None = None

    @property
    def up(self) -> bool:
        return self.connected[0]

    @property
    def backlog_bytes(self) -> int:
        return sum(lane.outbox.backlog_bytes for lane in self.lanes)


class Neighbours:
    def __init__(
        self,
        lanes: int,
        make_lane: LaneMaker,
        call_later: Callable[[float, Callable[[], None]], Timer],
        forget_after: float,
        counters: Counters,
        plugins: Plugins,
        lifecycle: Lifecycle,
        events: NeighbourEvents,
    ) -> None:
        self.lanes = lanes
        self.forget_after = forget_after
        self._make_lane = make_lane
        self._call_later = call_later
        self._counters = counters
        self._plugins = plugins
        self._lifecycle = lifecycle
        self._events = events
        self._strategy: Strategy | None = None
        self._all: dict[str, Neighbour] = {}

    def attach(self, strategy: Strategy) -> None:
        self._strategy = strategy

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._all

    def __getitem__(self, identifier: str) -> Neighbour:
        return self._all[identifier]

    def get(self, identifier: str) -> Neighbour | None:
        return self._all.get(identifier)

    def ids(self) -> tuple[str, ...]:
        return tuple(self._all)

    def active(self) -> tuple[str, ...]:
        return tuple(identifier for identifier, neighbour in self._all.items() if neighbour.active)

    def all(self) -> list[Neighbour]:
        return list(self._all.values())

    def add(self, identifier: str) -> Neighbour:
        """ILDM_ADDING (Fig. 5): lanes exist from here on; `neighbour_up` follows with the connection."""
        self._lifecycle.adding(identifier)
        self._plugins.tell(lambda listener: listener.neighbour_adding(identifier))
        lanes = [self._make_lane(identifier, index) for index in range(self.lanes)]
        neighbour = self._all[identifier] = Neighbour(identifier, lanes)
        self._await_return(neighbour)
        return neighbour

    def remove(self, identifier: str) -> None:
        """ILDM_REMOVING (Fig. 5): the neighbour's filters end, and its pending messages are dropped."""
        neighbour = self._all.pop(identifier)
        self._lifecycle.removing(identifier, sum(neighbour.connected))
        self._plugins.tell(lambda listener: listener.neighbour_removing(identifier))
        if neighbour.forgetting is not None:
            neighbour.forgetting.cancel()
        for lane in neighbour.lanes:
            self._counters.add("dropped_neighbour_removed", lane.abandon())
        assert self._strategy is not None
        if neighbour.active:
            self._strategy.neighbour_removed(identifier)
        self._events.neighbour_forgotten(identifier)
        self._lifecycle.removed(identifier)

    def connected(self, identifier: str, index: int, peer: Resume | None, epoch: int = 0) -> None:
        """A lane's connection was established (and authenticated); `epoch` is the neighbour's."""
        neighbour = self._all[identifier]
        neighbour.lanes[index].connected(peer, epoch)
        neighbour.connected[index] = True
        if neighbour.forgetting is not None:
            neighbour.forgetting.cancel()
            neighbour.forgetting = None
        self._events.lane_up(identifier, index)
        if index == 0:
            self._events.link_up(identifier)

    def lost(self, identifier: str, index: int) -> None:
        """A lane's connection ended."""
        neighbour = self._all.get(identifier)
        if neighbour is None:
            self._lifecycle.closed(identifier)
            return
        if not neighbour.connected[index]:
            return
        neighbour.lanes[index].disconnected()
        neighbour.connected[index] = False
        self._counters.add("link_losses")
        if index == 0:
            self._events.link_down(identifier)
        self._events.lane_lost(identifier, index)
        if not any(neighbour.connected):
            self._await_return(neighbour)

    def restart_forgetting(self, identifier: str) -> None:
        """A neighbour without a link is away since now."""
        neighbour = self._all.get(identifier)
        if neighbour is not None and neighbour.forgetting is not None:
            neighbour.forgetting.cancel()
            self._await_return(neighbour)

    def _await_return(self, neighbour: Neighbour) -> None:
        def forget() -> None:
            if self._events.neighbour_stays(neighbour.id):
                self._await_return(neighbour)
                return
            self._counters.add("neighbours_forgotten")
            self.remove(neighbour.id)

        neighbour.forgetting = self._call_later(self.forget_after, forget)
