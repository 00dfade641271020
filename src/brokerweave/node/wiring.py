"""Cycles in the wiring: which links carry messages, which are standby links, and what happens when that
changes.

Owns the election of the spanning tree, this node's part in the agreement on it, and when the strategy hears
of links. docs/decisions/0004-spanning-tree.md gives the reasons. Invariants: the strategy knows only links of
the tree, and failed links that nothing replaces; until every node behind a link has told its filters,
everything goes there; a link that joins the tree carries nothing before both sides have passed on what they
had. Must not know: sockets, clocks, how a route is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.run import Run
from brokerweave.links.window import DuplicateWindow
from brokerweave.mqtt.packets import Packet
from brokerweave.node import tree, views
from brokerweave.node.gates import Gates
from brokerweave.node.link_news import RECORDS_TOPIC, LinkNews
from brokerweave.node.neighbours import Neighbour
from brokerweave.node.rerouting import Rerouting
from brokerweave.node.views import Peer, Peers

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore

TALK_TOPIC = "$brokerweave/tree/talk"
SETTLED_TOPIC = "$brokerweave/tree/settled"

ELECTION_DELAY = 0.02
"""Seconds from news of links to the election: news that comes together is worked on together."""

UNKNOWN = ""
"""Stored with a neighbour's filters while they may be incomplete."""


class Wiring:
    """With `enabled` False every link is taken to be in the tree: for wirings known to have no cycle."""

    def __init__(self, core: NodeCore, enabled: bool) -> None:
        self.enabled = enabled
        self.flooded = DuplicateWindow(core.settings.window)
        """What was passed on as a flood in this view."""
        self.peers = Peers(core.settings.lanes)
        self.gates = Gates(core, self.peers, enabled)
        self.rerouting = Rerouting(core, self.peers, self.gates)
        self.admits = self.gates.admits
        self.boundary = self.gates.boundary
        self.mark_arrived = self.gates.mark_arrived
        self.not_flooded = self.gates.not_flooded
        self._core = core
        self._news = LinkNews(core, self.peers, self._links_changed, self._elect_soon)
        self._tree = self._news.states.tree(0.0)
        self._election_due = False
        self._outdated = False
        """There is news of links since the last election: what others want may have changed with it."""
        self._awaiting = False
        if enabled:
            self.gates.view = self._tree.digest
            core.controls[RECORDS_TOPIC] = self._news.arrived
            core.controls[TALK_TOPIC] = self._talk_arrived
            core.controls[SETTLED_TOPIC] = self._settled_arrived

    @property
    def held(self) -> frozenset[str]:
        """Neighbours whose links joined the tree and wait."""
        return self.gates.held

    @property
    def view(self) -> bytes:
        return self.gates.view

    @property
    def seen(self) -> tree.Tree:
        """The tree of the view."""
        return self._tree

    @property
    def nodes(self) -> int:
        """Nodes that can be reached, this one included."""
        return len(self._tree.nodes)

    @property
    def settled(self) -> bool:
        """Every node in reach sees the same tree and told what it wants; each link has its role."""
        if not self.enabled:
            return True
        mine = self._tree.neighbours(self._core.node_id)
        told = all(self.peers[n].settled == self.view and self.peers[n].told is not None for n in mine)
        up = [n for n in self._core.neighbour_table.all() if self.peers[n.id].up]
        return told and not self.held and all(self.peers[n.id].joined or not n.active for n in up)

    def role(self, neighbour: str) -> str:
        """For `status`: what the link is to this node."""
        peer = self.peers[neighbour]
        if peer.joined:
            return "joining" if peer.new else "active"
        return "owed" if self._core.neighbour_table[neighbour].active else "standby"

    def check(self) -> None:
        """Raises AssertionError if an invariant is broken: for the simulator and tests."""
        for entry in self._core.neighbour_table.all():
            peer = self.peers[entry.id]
            assert peer.up == entry.up, f"the link with {entry.id} is up and down"
            assert peer.up or not peer.joined, f"the link with {entry.id} is in the tree and down"
            assert entry.active or not peer.joined, f"the strategy does not know {entry.id}, in the tree"

    # What happens to links

    def recalled(self, neighbour: str, unknown: bool) -> None:
        """A neighbour from before a restart: while it is away, all that it may want stays pending."""
        if self.enabled and unknown:
            self.peers[neighbour].unknown = True
            self._keep_unknown(neighbour, True)
            self._refresh_routes()

    def link_up(self, neighbour: str) -> None:
        peer = self.peers[neighbour]
        peer.up = True
        if not self.enabled:
            peer.joined = peer.listening = True
            self._core.neighbour_talks(neighbour)
            self._core.lifecycle.told(neighbour)
            return
        self._news.link_up(neighbour)

    def link_down(self, neighbour: str) -> None:
        peer = self.peers[neighbour]
        joined = peer.joined
        if joined:
            behind = self._tree.behind(self._core.node_id, neighbour)
            peer.served = self._tree.nodes - behind - {neighbour}
            peer.unknown = self.enabled and not self._knows(neighbour)
        self.gates.release([neighbour])
        peer.link_lost()
        if joined and not (self._core.demand is not None and self._core.demand.ends_well(neighbour)):
            self._core.guarded.neighbour_down(neighbour)
        if self.enabled:
            self._news.link_down(neighbour)

    def lane_up(self, neighbour: str, lane: int) -> None:
        if self.enabled:
            self.gates.mark(neighbour, lane, 0)
            if not self.peers[neighbour].joined:
                self.gates.hold(neighbour)  # until it is known what the link is to be
            self.acknowledged()  # the neighbour may have said what it had taken, or that it does not know

    def lane_lost(self, neighbour: str, lane: int) -> None:
        """The lanes of a link fail one after the other: each may have what is to go another way now."""
        self.peers[neighbour].lane_lost(lane)
        self.gates.check_limit(neighbour)
        self.check_outboxes()

    def check_outboxes(self) -> None:
        """Something may be in the outbox of a link that was replaced."""
        if self.enabled:
            self._elect_soon()

    def leaving(self, neighbour: str) -> None:
        """The neighbour is about to be removed: what can reach it another way is to go there."""
        if self.enabled and neighbour in self._core.neighbour_table:
            self.link_down(neighbour)
            entry = self._core.neighbour_table[neighbour]
            entry.connected = [False] * len(entry.connected)
            self._news.renew_now()
            self._elect()
            if neighbour in self._tree.nodes:
                self._stand_by(entry, self.peers[neighbour])
                self.rerouting.empty_all(entry)
            self.rerouting.finish()

    def forget(self, neighbour: str) -> None:
        self.peers.pop(neighbour, None)
        self.gates.forget(neighbour)
        self.rerouting.forget(neighbour)
        if self.enabled:
            self._refresh_routes()
            self._check_settled()

    # Elections

    def _links_changed(self) -> None:
        """Others may hear of this first, and withdraw what they want because it goes another way now."""
        self._outdated = True
        self._refresh_routes()
        self._elect_soon()

    def _elect_soon(self) -> None:
        if not self._election_due:
            self._election_due = True
            self._core.call_later(ELECTION_DELAY, self._elect)

    def _elect(self) -> None:
        self._election_due = self._outdated = False
        self._core.publisher.settle()  # what was gathered has its routes from before
        self.rerouting.drop_passing()
        before, self._tree = self._tree, self._news.states.tree(self._core.now())
        self._news.tell_all(self._news.states.returned)
        again: list[tuple[int, Run, set[str]]] = []
        changed = self._tree.digest != self.view
        if changed:
            self._core.counters.add("tree_elections")
            self.gates.view = self._tree.digest
            self.flooded = DuplicateWindow(self._core.settings.window)
            again = self.rerouting.stuck(self._tree, before.edges != self._tree.edges)
            for peer in self.peers.values():
                peer.new_view()
            for neighbour in self._tree.neighbours(self._core.node_id):
                self._keep_unknown(neighbour, True)
        for neighbour in self._tree.neighbours(self._core.node_id):
            if self.peers[neighbour].up and not self.peers[neighbour].joined:
                self._join(neighbour)
        for entry in self._core.neighbour_table.all():
            peer = self.peers[entry.id]
            if not entry.active and not peer.up and entry.id not in self._tree.nodes:
                entry.active = peer.unknown = True  # the way around its failed link failed, too
        self._refresh_routes()
        for lane, run, there in again:
            self._core.arrivals.flood(lane, run, there)
        self.rerouting.flood_from_disk()
        self._check_settled()
        for neighbour in self.peers.linked():
            self.gates.take_stashed(neighbour)

    def _retire(self) -> None:
        """The tree is settled: unused links carry nothing more, and failed ones keep nothing pending.

        Not before, because what a node knows may be old: the way around a failed link may be gone, too.
        """
        mine = self._tree.neighbours(self._core.node_id)
        for neighbour in self._core.neighbour_table.all():
            peer = self.peers[neighbour.id]
            if neighbour.id in mine or neighbour.id not in self._tree.nodes:
                continue
            if peer.up and not self._news.states.linked(neighbour.id):
                continue
            # What waited for a link that is not needed after all would overtake there what goes by the tree.
            waited = neighbour.id in self.held
            self._stand_by(neighbour, peer)
            for index, connected in enumerate(neighbour.connected):
                moves = waited if connected else not peer.up
                if moves:
                    self.rerouting.empty(neighbour, index)
        self.rerouting.move()

    def _stand_by(self, neighbour: Neighbour, peer: Peer) -> None:
        self.gates.release([neighbour.id])
        peer.leave_tree()
        peer.unknown = False
        if peer.up:
            self._core.lifecycle.shared(neighbour.id)
        if neighbour.active:
            neighbour.active = False
            self._core.guarded.neighbour_removed(neighbour.id)
            self._keep_unknown(neighbour.id, True)
            self._core.routes_changed()

    def _join(self, neighbour: str) -> None:
        peer, entry = self.peers[neighbour], self._core.neighbour_table[neighbour]
        entry.active = peer.joined = peer.new = True
        peer.unknown = False
        self.gates.hold(neighbour)
        self._talk(neighbour, peer)
        self._core.retained.linked(neighbour)  # what comes from here on is passed on there; the rest is not
        early, peer.early = peer.early, []
        for packet in early:
            try:
                self._core.guarded.packet_arrived(neighbour, packet)
            except RemoteProtocolError as error:
                self.gates.broken(neighbour, error)

    # What the strategy says

    def _talk(self, neighbour: str, peer: Peer) -> None:
        self._core.send_own(neighbour, TALK_TOPIC, views.encode_talk(peer.next_talk()))
        self._core.neighbour_talks(neighbour)
        self._core.lifecycle.told(neighbour)

    def _talk_arrived(self, neighbour: str, payload: bytes) -> None:
        peer = self.peers[neighbour]
        if peer.take_talk(views.decode_talk(payload)):
            peer.new_view()
            self._talk(neighbour, peer)
            self._check_settled()

    def talks(self, neighbour: str) -> bool:
        """Whether the strategy knows that a neighbour's link is up."""
        return neighbour in self._core.neighbour_table and self.peers[neighbour].joined

    def listens(self, neighbour: str, packet: Packet) -> bool:
        """Whether the strategy is to hear of a neighbour's packet now."""
        return self.peers[neighbour].listens(packet)

    # Settling

    def _settled_arrived(self, neighbour: str, payload: bytes) -> None:
        view, complete = views.decode_settled(payload)
        peer = self.peers[neighbour]
        if peer.listening:
            peer.settled, peer.complete = view, complete
            if view == self.view:
                self._refresh_routes()
                self._check_settled()
                self._keep_unknown(neighbour, not complete)

    def _knows(self, neighbour: str) -> bool:
        """Whether all that is wanted behind a neighbour is known here."""
        peer = self.peers[neighbour]
        return peer.settled == self.view and peer.complete and not self._outdated

    def _keep_unknown(self, neighbour: str, unknown: bool) -> None:
        if (UNKNOWN in self._core.kept.get(neighbour, ())) != unknown:
            self._core.keep(neighbour, {UNKNOWN: 1 if unknown else None})

    def acknowledged(self) -> None:
        """A neighbour has taken something."""
        if self._awaiting:
            self._check_settled()

    def _unknown(self) -> list[str]:
        """Neighbours that get everything: in the tree, or with pending messages, while their filters are not
        all known."""
        mine = self._tree.neighbours(self._core.node_id)
        unknown = [n for n in mine if self.peers[n].joined and not self._knows(n)]
        pending = [
            n.id for n in self._core.neighbour_table.all() if n.active and n.id not in self._tree.nodes
        ]
        return unknown + [n for n in pending if self.peers[n].unknown]

    def _refresh_routes(self) -> None:
        self._core.router.everything = tuple(self._unknown())
        self._core.routes_changed()

    def _check_settled(self) -> None:
        """Tell each neighbour when all others are settled and it has all that was on its way to it."""
        mine = self._tree.neighbours(self._core.node_id)
        open_ones = [n for n in mine if self.peers[n].settled != self.view]
        unknown = self._unknown()
        self._awaiting = False
        if self._outdated:
            return
        for neighbour in mine:
            peer, complete = self.peers[neighbour], unknown in ([], [neighbour])
            if not peer.joined or peer.told is complete or open_ones not in ([], [neighbour]):
                continue
            if self._has_all(neighbour, peer):
                peer.told = complete
                self._core.send_own(neighbour, SETTLED_TOPIC, views.encode_settled(self.view, complete))
            else:
                self._awaiting = True
        if not open_ones:
            self.gates.release(n for n in self.held if self.peers[n].joined and n in mine)
            self._retire()

    def _has_all(self, neighbour: str, peer: Peer) -> bool:
        lanes = self._core.neighbour_table[neighbour].lanes
        if peer.awaited is None:
            waits = not peer.new  # a new link carries nothing yet
            peer.awaited = [lane.outbox.last if waits and lane.acknowledged else 0 for lane in lanes]
        # An outbox may have dropped some of it since, and have nothing left to be acknowledged.
        return all(
            lane.outbox.oldest > min(last, lane.outbox.last)
            for lane, last in zip(lanes, peer.awaited, strict=True)
        )
