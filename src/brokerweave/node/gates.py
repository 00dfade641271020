"""Holds lanes of a link until both its sides see the same tree, for a limited time.

Owns this node's *view* (the digest of the tree it sees) and the marks that announce it; links that joined the
tree and wait; and batches that arrived before this node saw the tree in which they were sent. Invariants:
messages pass between two nodes only while both have the same view; a waiting link carries nothing; nothing
waits longer than `SETTLE_LIMIT`, and each time this limit ends a wait is counted. Must not know: trees,
routes, why a link joins or is released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.run import Run
from brokerweave.mqtt.packets import Publish
from brokerweave.node import views
from brokerweave.node.views import NO_VIEW, Peers

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore

MARK_TOPIC = "$brokerweave/tree/mark"

SETTLE_LIMIT = 5.0
"""Seconds that messages wait for other nodes; then they go on, counted, though order may suffer."""
STASH_BYTES = 8 << 20
"""What a lane may have brought before both see the same tree; more than the window of a node that waits for
acknowledgements."""


class Gates:
    """With `enabled` False nothing ever waits."""

    def __init__(self, core: NodeCore, peers: Peers, enabled: bool) -> None:
        self.view = NO_VIEW
        self.held: frozenset[str] = frozenset()
        """Neighbours whose links joined the tree and wait."""
        self.rerouted: Callable[[str, int], bool] = lambda neighbour, lane: False
        """Whether a lane waits because what it has goes another way, too, and first."""
        self._core = core
        self._peers = peers
        self._enabled = enabled
        self._limits: dict[str, object] = {}
        """Neighbours that wait for the tree to settle, or whose batches do: each since its own moment."""

    def forget(self, neighbour: str) -> None:
        self._limits.pop(neighbour, None)

    # What goes out

    def mark(self, neighbour: str, lane: int, boundary: int) -> None:
        """Say that what follows on a lane was sent in this view; up to `boundary` it goes once more."""
        self._peers[neighbour].lanes[lane].said = boundary
        mark = views.encode_mark(views.ViewMark(self.view, boundary))
        self._core.neighbour_table[neighbour].lanes[lane].announce(Publish(MARK_TOPIC, mark))
        self._core.host.lane_ready(neighbour, lane)

    def not_flooded(self, neighbour: str, lane: int) -> None:
        """A flood found no room, so it does not follow the runs that are on their way. The neighbour has to
        send those to all, also over links that have just joined."""
        self.mark(neighbour, lane, 0)

    def hold(self, neighbour: str) -> None:
        self.held |= {neighbour}
        for index, lane in enumerate(self._core.neighbour_table[neighbour].lanes):
            lane.held = True
            self.mark(neighbour, index, 0)  # what is old among its runs is lost when they are sorted
        self._limit_later(neighbour)

    def release(self, neighbours: Iterable[str]) -> None:
        for neighbour in sorted(n for n in neighbours if n in self.held):
            self.held -= {neighbour}
            self._peers[neighbour].new = False
            for index, lane in enumerate(self._core.neighbour_table[neighbour].lanes):
                lane.outbox.sort()
                self.adjust(neighbour, index)
            self.check_limit(neighbour)

    def adjust(self, neighbour: str, index: int) -> None:
        """Let a lane wait, or go on, as it has to."""
        if neighbour in self._core.neighbour_table:
            lane = self._core.neighbour_table[neighbour].lanes[index]
            lane.held = neighbour in self.held or self.rerouted(neighbour, index)
            self._core.host.lane_ready(neighbour, index)

    # What comes in

    def mark_arrived(self, neighbour: str, lane: int, payload: bytes) -> None:
        """What comes after this on the lane was sent in this view."""
        self._peers[neighbour].lanes[lane].mark = views.decode_mark(payload)
        self.take_stashed(neighbour)

    def admits(self, neighbour: str, lane: int, first: int, runs: list[Run]) -> bool:
        """Whether a batch is to be taken now; if not it is kept here until both see the same tree."""
        if not self._enabled:
            return True
        peer = self._peers[neighbour].lanes[lane]
        if peer.mark.view == self.view and not peer.stash:
            return True
        peer.stash.append((first, runs))
        peer.stashed += sum(run.size for run in runs)
        self._limit_later(neighbour)
        if peer.stashed > STASH_BYTES:
            self._core.counters.add("tree_view_limits")
            self.take_stashed(neighbour, anyway=True)
        return False

    def boundary(self, neighbour: str, lane: int) -> int:
        """The last sequence of a lane's stream that comes once more, as a flood."""
        return self._peers[neighbour].lanes[lane].mark.boundary

    def take_stashed(self, neighbour: str, anyway: bool = False) -> None:
        for index, lane in enumerate(self._peers[neighbour].lanes):
            try:
                while lane.stash and (anyway or lane.mark.view == self.view):
                    self._core.arrivals.take_batch(neighbour, index, *lane.stash.pop(0))
            except RemoteProtocolError as error:
                lane.stash.clear()
                self.broken(neighbour, error)
            if not lane.stash:
                lane.stashed = 0
        self.check_limit(neighbour)

    def broken(self, neighbour: str, error: RemoteProtocolError) -> None:
        """What was kept turned out to be nonsense; the connection closes over what follows it."""
        self._core.counters.add("link_protocol_errors")
        self._core.host.warn(f"link with {neighbour}: {error}")

    # The limit

    def _limit_later(self, neighbour: str) -> None:
        if neighbour not in self._limits:
            waits = self._limits[neighbour] = object()
            self._core.call_later(SETTLE_LIMIT, lambda: self._limit_reached(neighbour, waits))

    def check_limit(self, neighbour: str) -> None:
        """Something of it waits no more: perhaps nothing does."""
        if neighbour not in self._limits or neighbour in self.held:
            return
        if not any(lane.stash for lane in self._peers[neighbour].lanes):
            del self._limits[neighbour]

    def _limit_reached(self, neighbour: str, waits: object) -> None:
        if self._limits.get(neighbour) is not waits:
            return  # it had not to wait any more, and does again by now
        del self._limits[neighbour]
        if neighbour in self.held:
            self._core.counters.add("tree_settle_limits")
            self.release([neighbour])
        if any(lane.stash for lane in self._peers[neighbour].lanes):
            self._core.counters.add("tree_view_limits")
            self.take_stashed(neighbour, anyway=True)
