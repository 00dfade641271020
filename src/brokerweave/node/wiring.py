"""Cycles in the wiring: which links carry messages, which stand by, and what happens when that changes.

Owns the exchange of link states, this node's *view* (the tree it sees) and the moments at which the strategy
hears of links. The reasons are in docs/decisions/0004-spanning-tree.md. Invariants: the strategy knows only
links of the tree, and failed ones that nothing replaces; messages pass between two nodes only while both
have the same view; until every node behind a link has told what it wants, all goes there; a link that joins
the tree carries nothing before both its sides have passed on what they had. Must not know: sockets, clocks,
how a route is found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.run import Run
from brokerweave.links.window import DuplicateWindow
from brokerweave.mqtt.packets import Packet, Publish
from brokerweave.node import tree, views
from brokerweave.node.neighbours import Neighbour
from brokerweave.node.views import NO_VIEW, Peer

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore

RECORDS_TOPIC = "$brokerweave/tree/records"
MARK_TOPIC = "$brokerweave/tree/mark"
TALK_TOPIC = "$brokerweave/tree/talk"
SETTLED_TOPIC = "$brokerweave/tree/settled"

ELECTION_DELAY = 0.02
"""Seconds from news of links to the election: news that comes together is worked on together."""
RECORD_INTERVAL = 0.2
"""Seconds between two records of this node: a flapping link costs everybody no more than this."""
SETTLE_LIMIT = 5.0
"""Seconds that messages wait for other nodes; then they go on, counted, though order may suffer."""
MOVE_BYTES = 4 << 20
"""What is moved at once out of a failed link's outbox."""
STASH_BYTES = 8 << 20
"""What a lane may have brought before both see the same tree; more than the window of a node that waits for
acknowledgements."""

UNKNOWN = ""
"""Kept of a neighbour, beside what it wants, while that may not be all."""

_Known = tuple[str, int, int, int]


class Wiring:
    """With `enabled` False every link is taken to be in the tree: for wirings known to have no cycle."""

    def __init__(self, core: NodeCore, enabled: bool) -> None:
        self.enabled = enabled
        self.view = NO_VIEW
        self.flooded = DuplicateWindow(core.settings.window)
        """What was passed on as a flood in this view."""
        self.held: frozenset[str] = frozenset()
        """Neighbours whose links joined the tree and wait."""
        self._core = core
        self._states = tree.LinkStates(core.node_id, core.settings.epoch)
        self._tree = self._states.tree(0.0)
        self._peers: dict[str, Peer] = {}
        self._announced = -RECORD_INTERVAL
        self._election_due = self._record_due = False
        self._limits: dict[str, object] = {}
        """Neighbours that wait for the tree to settle, or whose batches do: each since its own moment."""
        self._moving: list[tuple[Neighbour, int]] = []
        self._on_disk: dict[tuple[str, int], tuple[int, int]] = {}
        """Of a neighbour's lane: on disk from where to where lies what has to be flooded yet."""
        self._awaiting = False
        self._news = False
        if enabled:
            self.view = self._tree.digest
            core.controls[RECORDS_TOPIC] = self._records_arrived
            core.controls[TALK_TOPIC] = self._talk_arrived
            core.controls[SETTLED_TOPIC] = self._settled_arrived

    def __getitem__(self, neighbour: str) -> Peer:
        peer = self._peers.get(neighbour)
        if peer is None:
            peer = self._peers[neighbour] = Peer(self._core.settings.lanes)
        return peer

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
        told = all(self[n].settled == self.view and self[n].told is not None for n in mine)
        up = [n for n in self._core.neighbour_table.all() if self[n.id].up]
        return told and not self.held and all(self[n.id].joined or not n.active for n in up)

    def role(self, neighbour: str) -> str:
        """For `status`: what the link is to this node."""
        peer = self[neighbour]
        if peer.joined:
            return "joining" if peer.new else "active"
        return "owed" if self._core.neighbour_table[neighbour].active else "standby"

    # What happens to links

    def recalled(self, neighbour: str, unknown: bool) -> None:
        """A neighbour from before a restart: while it is away it is owed all that it may want."""
        if self.enabled and unknown:
            self[neighbour].unknown = True
            self._keep_unknown(neighbour, True)
            self._refresh_routes()

    def link_up(self, neighbour: str) -> None:
        peer = self[neighbour]
        peer.up = True
        if not self.enabled:
            peer.joined = peer.listening = True
            self._core.guarded.neighbour_up(neighbour)
            return
        self._send_records(self._states.records.values(), (neighbour,))

    def link_down(self, neighbour: str) -> None:
        peer = self[neighbour]
        joined = peer.joined
        if joined:
            behind = self._tree.behind(self._core.node_id, neighbour)
            peer.served = self._tree.nodes - behind - {neighbour}
            peer.unknown = self.enabled and not self._knows(neighbour)
        self._release([neighbour])
        peer.link_lost()
        if joined:
            self._core.guarded.neighbour_down(neighbour)
        if self.enabled:
            self._states.link_down(neighbour)
            self._renew_soon()

    def lane_up(self, neighbour: str, lane: int) -> None:
        if self.enabled:
            self._mark(neighbour, lane, 0)
            if not self[neighbour].joined:
                self._hold(neighbour)  # until it is known what the link is to be
            self.acknowledged()  # the neighbour may have said what it had taken, or that it does not know

    def lane_lost(self, neighbour: str, lane: int) -> None:
        """The lanes of a link fail one after the other: each may have what is to go another way now."""
        self[neighbour].lane_lost(lane)
        self._no_limit(neighbour)
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
            self._announced = -RECORD_INTERVAL
            self._renew()
            self._elect()
            if neighbour in self._tree.nodes:
                self._stand_by(entry, self[neighbour])
                self._moving += [(entry, index) for index in range(len(entry.lanes))]
            while self._moving:
                self._move()

    def forget(self, neighbour: str) -> None:
        self._peers.pop(neighbour, None)
        self._limits.pop(neighbour, None)
        self._moving = [item for item in self._moving if item[0].id != neighbour]
        if self.enabled:
            self._refresh_routes()
            self._check_settled()

    # Link states

    def _records_arrived(self, neighbour: str, payload: bytes) -> None:
        self._core.counters.add("tree_packets_received")
        fresh = self._states.take(tree.decode(payload))
        if self[neighbour].up and not self[neighbour].named:
            # Not as soon as the link is up: what is known of the neighbour may be from before it failed.
            self[neighbour].named = True
            self._states.link_up(neighbour)
            self._renew_soon()
        if fresh:
            own = any(record.node == self._core.node_id for record in fresh)
            self._send_records(fresh, [n for n in self._linked() if n != neighbour or own])
            # Others may hear of this first, and withdraw what they want because it goes another way now.
            self._news = True
            self._refresh_routes()
            self._elect_soon()

    def _send_records(self, records: Iterable[tree.Record], neighbours: Iterable[str]) -> None:
        payloads = list(tree.encode(records))
        for neighbour in neighbours:
            for payload in payloads:
                self._core.counters.add("tree_packets_sent")
                self._core.send_own(neighbour, RECORDS_TOPIC, payload)

    def _linked(self) -> list[str]:
        return [n for n, peer in self._peers.items() if peer.up]

    def _renew_soon(self) -> None:
        if not self._record_due:
            self._record_due = True
            wait = self._announced + RECORD_INTERVAL - self._core.now()
            # The clock may have been set back since: never wait longer than one interval.
            self._core.call_later(min(max(wait, ELECTION_DELAY), RECORD_INTERVAL), self._renew)

    def _renew(self) -> None:
        self._record_due = False
        record = self._states.renew()
        if record is not None:
            self._announced = self._core.now()
            self._send_records((record,), self._linked())
            self._elect_soon()

    # Elections

    def _elect_soon(self) -> None:
        if not self._election_due:
            self._election_due = True
            self._core.call_later(ELECTION_DELAY, self._elect)

    def _elect(self) -> None:
        self._election_due = self._news = False
        self._core.settle()  # what was gathered has its routes from before
        self._drop_passing()
        before, self._tree = self._tree, self._states.tree(self._core.now())
        self._send_records(self._states.returned, self._linked())
        again: dict[_Known, tuple[int, Run, set[str]]] = {}
        changed = self._tree.digest != self.view
        if changed:
            self._core.counters.add("tree_elections")
            self.view = self._tree.digest
            self.flooded = DuplicateWindow(self._core.settings.window)
            again = self._stuck(before.edges != self._tree.edges)
            for peer in self._peers.values():
                peer.new_view()
            for neighbour in self._tree.neighbours(self._core.node_id):
                self._keep_unknown(neighbour, True)
        for neighbour in self._tree.neighbours(self._core.node_id):
            if self[neighbour].up and not self[neighbour].joined:
                self._join(neighbour)
        for entry in self._core.neighbour_table.all():
            if not entry.active and not self[entry.id].up and entry.id not in self._tree.nodes:
                entry.active = self[entry.id].unknown = True  # the way around its failed link failed, too
        self._refresh_routes()
        for lane, run, there in again.values():
            self._core.flood(lane, run, there)
        self._flood_from_disk()
        self._check_settled()
        for neighbour in self._linked():
            self._take_stashed(neighbour)

    def _stuck(self, changed: bool) -> dict[_Known, tuple[int, Run, set[str]]]:
        """What has to go once more, in a tree that changed: its lane, and where it stands as a flood already.

        All that nobody acknowledged yet: who takes it may not know a way any more to all who need it. And
        what waits for a link that failed, as soon as anyone is reached who may need it.
        """
        stuck: dict[_Known, tuple[int, Run, set[str]]] = {}
        for neighbour in self._core.neighbour_table.all():
            peer = self[neighbour.id]
            replaced = not peer.up and neighbour.id in self._tree.nodes
            waits = peer.up and (peer.new or not peer.joined)
            served = self._tree.nodes
            joins = waits and neighbour.id in self._tree.neighbours(self._core.node_id)
            if joins:
                # What waits for the link will go over it, as it is.
                served -= self._tree.behind(self._core.node_id, neighbour.id) | {neighbour.id}
            missed = served - peer.served - {self._core.node_id}
            # What is put there from now on goes to no others, whoever got what was there before.
            peer.served = served if joins else served | peer.served
            for index, lane in enumerate(neighbour.lanes):
                on_its_way = (peer.up or neighbour.connected[index]) and not waits
                needed = replaced or (changed and (on_its_way or bool(missed)))
                runs = lane.outbox.kept() if needed else []
                last = lane.outbox.oldest + len(runs) - 1 if runs and not lane.held else 0
                self._mark(neighbour.id, index, last)
                if needed and lane.outbox.on_disk_only != (0, 0):
                    self._on_disk[neighbour.id, index] = lane.outbox.on_disk_only
                    self._hold_lane(neighbour.id, index)
                for number, run in enumerate(runs):
                    if not goes_again(run):
                        continue
                    key = (run.origin, run.epoch, run.first, index)
                    known = stuck.get(key)
                    if known is None or known[1].count < run.count:
                        known = stuck[key] = (index, run, set())
                    # What was sent may be taken in the old view; what was not sent will be in the new one.
                    if run.flood and run.count == known[1].count and number >= lane.outbox.sent:
                        known[2].add(neighbour.id)
        return stuck

    def _retire(self) -> None:
        """The tree is settled: links that it does without carry no more, and failed ones owe no more.

        Not before, because what a node knows may be old: the way around a failed link may be gone, too.
        """
        mine = self._tree.neighbours(self._core.node_id)
        for neighbour in self._core.neighbour_table.all():
            peer = self[neighbour.id]
            if neighbour.id in mine or neighbour.id not in self._tree.nodes:
                continue
            if peer.up and not self._states.linked(neighbour.id):
                continue
            # What waited for a link that is not needed after all would overtake there what goes by the tree.
            waited = neighbour.id in self.held
            self._stand_by(neighbour, peer)
            for index, lane in enumerate(neighbour.lanes):
                moves = waited if neighbour.connected[index] else not peer.up
                if moves and lane.outbox.backlog_runs and (neighbour, index) not in self._moving:
                    self._moving.append((neighbour, index))
                    self._hold_lane(neighbour.id, index)
        if self._moving:
            self._move()

    def _stand_by(self, neighbour: Neighbour, peer: Peer) -> None:
        self._release([neighbour.id])
        peer.leave_tree()
        peer.unknown = False
        if neighbour.active:
            neighbour.active = False
            self._core.guarded.neighbour_removed(neighbour.id)
            self._keep_unknown(neighbour.id, True)
            self._core.routes_changed()

    def _join(self, neighbour: str) -> None:
        peer, entry = self[neighbour], self._core.neighbour_table[neighbour]
        entry.active = peer.joined = peer.new = True
        peer.unknown = False
        self._hold(neighbour)
        self._talk(neighbour, peer)
        self._core.retained.linked(neighbour)  # what comes from here on is passed on there; the rest is not
        early, peer.early = peer.early, []
        for packet in early:
            try:
                self._core.guarded.packet_arrived(neighbour, packet)
            except RemoteProtocolError as error:
                self._broken(neighbour, error)

    def _move(self) -> None:
        """Empty the outboxes of replaced links, some at a time: what was on disk has not been flooded yet."""
        room = MOVE_BYTES
        while self._moving and room > 0:
            neighbour, index = self._moving[0]
            outbox = neighbour.lanes[index].outbox
            connected = neighbour.connected[index]
            if not connected:
                outbox.rewind(outbox.oldest - 1)
                # Should the neighbour be calling right now, it was told of runs that will be gone.
                outbox.stream_id = self._new_stream()
            back = connected and (neighbour.id in self.held or outbox.sent > 0)
            runs = [] if back else outbox.take(room)[1]
            if not runs:
                del self._moving[0]  # all is moved, or the lane is back, or the disk does not give it now
                self._hold_lane(neighbour.id, index)
                continue
            for run in runs:
                room -= run.size
                if goes_again(run):
                    self._core.flood(index, run, (), once=True)
                elif not run.repair:
                    self._core.counters.add("dropped_tree_changed", run.count)
            outbox.withdraw()
        if self._moving:
            self._core.call_later(0.0, self._move)

    def _flood_from_disk(self) -> None:
        """Send once more what was stuck and is on disk only, some at a time; its lane waits for that, or the
        neighbour could acknowledge what others were not sent yet."""
        room = MOVE_BYTES
        while self._on_disk and room > 0:
            (neighbour, index), (first, last) = next(iter(self._on_disk.items()))
            runs: list[tuple[int, Run]] = []
            if neighbour in self._core.neighbour_table:
                runs = self._core.neighbour_table[neighbour].lanes[index].outbox.read(first, last, room)
            for _, run in runs:
                room -= run.size
                if goes_again(run):
                    self._core.flood(index, run, (), once=True)
            if runs:
                self._on_disk[neighbour, index] = (runs[-1][0] + 1, last)
                said = self[neighbour].lanes[index].said
                if said:  # not if one of them found no room
                    self._mark(neighbour, index, said + len(runs))
            else:
                del self._on_disk[neighbour, index]
                self._hold_lane(neighbour, index)
        if self._on_disk:
            self._core.call_later(0.0, self._flood_from_disk)

    def _drop_passing(self) -> None:
        """Drop QoS 0 that waits for a lane which is down: who gets it another way, and is killed, does not
        know that it had it."""
        for neighbour in self._core.neighbour_table.all():
            for lane, connected in zip(neighbour.lanes, neighbour.connected, strict=True):
                if not connected and lane.outbox.backlog_runs:
                    gone = lane.outbox.forget_passing(self._new_stream())
                    self._core.counters.add("dropped_link_down", gone)

    def _new_stream(self) -> int:
        return self._core.random.getrandbits(62) + 1

    # Views

    def _mark(self, neighbour: str, lane: int, boundary: int) -> None:
        self[neighbour].lanes[lane].said = boundary
        mark = views.encode_mark(views.Mark(self.view, boundary))
        self._core.neighbour_table[neighbour].lanes[lane].announce(Publish(MARK_TOPIC, mark))
        self._core.host.lane_ready(neighbour, lane)

    def not_flooded(self, neighbour: str, lane: int) -> None:
        """A flood found no room, and will not follow what is on its way as it was: that has to go on from
        there to all, also over links that have just joined."""
        self._mark(neighbour, lane, 0)

    def mark_arrived(self, neighbour: str, lane: int, payload: bytes) -> None:
        """What comes after this on the lane was sent in this view."""
        self[neighbour].lanes[lane].mark = views.decode_mark(payload)
        self._take_stashed(neighbour)

    def _talk(self, neighbour: str, peer: Peer) -> None:
        self._core.send_own(neighbour, TALK_TOPIC, views.encode_talk(peer.next_talk()))
        self._core.guarded.neighbour_up(neighbour)

    def _talk_arrived(self, neighbour: str, payload: bytes) -> None:
        peer = self[neighbour]
        if peer.take_talk(views.decode_talk(payload)):
            peer.new_view()
            self._talk(neighbour, peer)
            self._check_settled()

    def listens(self, neighbour: str, packet: Packet) -> bool:
        """Whether the strategy is to hear of a neighbour's packet now."""
        return self[neighbour].listens(packet)

    def admits(self, neighbour: str, lane: int, first: int, runs: list[Run]) -> bool:
        """Whether a batch is to be taken now; if not it is kept here until both see the same tree."""
        if not self.enabled:
            return True
        peer = self[neighbour].lanes[lane]
        if peer.mark.view == self.view and not peer.stash:
            return True
        peer.stash.append((first, runs))
        peer.stashed += sum(run.size for run in runs)
        self._limit_later(neighbour)
        if peer.stashed > STASH_BYTES:
            self._core.counters.add("tree_view_limits")
            self._take_stashed(neighbour, anyway=True)
        return False

    def boundary(self, neighbour: str, lane: int) -> int:
        """The last sequence of a lane's stream that comes once more, as a flood."""
        return self[neighbour].lanes[lane].mark.boundary

    def _take_stashed(self, neighbour: str, anyway: bool = False) -> None:
        for index, lane in enumerate(self[neighbour].lanes):
            try:
                while lane.stash and (anyway or lane.mark.view == self.view):
                    self._core.take_batch(neighbour, index, *lane.stash.pop(0))
            except RemoteProtocolError as error:
                lane.stash.clear()
                self._broken(neighbour, error)
            if not lane.stash:
                lane.stashed = 0
        self._no_limit(neighbour)

    def _broken(self, neighbour: str, error: RemoteProtocolError) -> None:
        """What was kept turned out to be nonsense; the connection closes over what follows it."""
        self._core.counters.add("link_protocol_errors")
        self._core.host.warn(f"link with {neighbour}: {error}")

    # Settling

    def _settled_arrived(self, neighbour: str, payload: bytes) -> None:
        view, complete = views.decode_settled(payload)
        peer = self[neighbour]
        if peer.listening:
            peer.settled, peer.complete = view, complete
            if view == self.view:
                self._refresh_routes()
                self._check_settled()
                self._keep_unknown(neighbour, not complete)

    def _knows(self, neighbour: str) -> bool:
        """Whether all that is wanted behind a neighbour is known here."""
        return self[neighbour].settled == self.view and self[neighbour].complete and not self._news

    def _keep_unknown(self, neighbour: str, unknown: bool) -> None:
        if (UNKNOWN in self._core.kept.get(neighbour, ())) != unknown:
            self._core.keep(neighbour, {UNKNOWN: 1 if unknown else None})

    def acknowledged(self) -> None:
        """A neighbour has taken something."""
        if self._awaiting:
            self._check_settled()

    def _unknown(self) -> list[str]:
        """Neighbours that get everything: in the tree, or owed, while not all is known that they want."""
        unknown = [
            n for n in self._tree.neighbours(self._core.node_id) if self[n].joined and not self._knows(n)
        ]
        owed = [n.id for n in self._core.neighbour_table.all() if n.active and n.id not in self._tree.nodes]
        return unknown + [n for n in owed if self[n].unknown]

    def _refresh_routes(self) -> None:
        self._core.router.everything = tuple(self._unknown())
        self._core.routes_changed()

    def _check_settled(self) -> None:
        """Tell each neighbour when all others are settled and it has all that was on its way to it."""
        mine = self._tree.neighbours(self._core.node_id)
        open_ones = [n for n in mine if self[n].settled != self.view]
        unknown = self._unknown()
        self._awaiting = False
        if self._news:
            return
        for neighbour in mine:
            peer, complete = self[neighbour], unknown in ([], [neighbour])
            if not peer.joined or peer.told is complete or open_ones not in ([], [neighbour]):
                continue
            if self._has_all(neighbour, peer):
                peer.told = complete
                self._core.send_own(neighbour, SETTLED_TOPIC, views.encode_settled(self.view, complete))
            else:
                self._awaiting = True
        if not open_ones:
            self._release(n for n in self.held if self[n].joined and n in mine)
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

    def _hold(self, neighbour: str) -> None:
        self.held |= {neighbour}
        for index, lane in enumerate(self._core.neighbour_table[neighbour].lanes):
            lane.held = True
            self._mark(neighbour, index, 0)  # what is old among its runs is lost when they are sorted
        self._limit_later(neighbour)

    def _release(self, neighbours: Iterable[str]) -> None:
        for neighbour in sorted(n for n in neighbours if n in self.held):
            self.held -= {neighbour}
            self[neighbour].new = False
            for index, lane in enumerate(self._core.neighbour_table[neighbour].lanes):
                lane.outbox.sort()
                self._hold_lane(neighbour, index)
            self._no_limit(neighbour)

    def _hold_lane(self, neighbour: str, index: int) -> None:
        """Let a lane wait, or go on, as it has to."""
        if neighbour in self._core.neighbour_table:
            lane = self._core.neighbour_table[neighbour].lanes[index]
            moving = any(entry.id == neighbour and at == index for entry, at in self._moving)
            lane.held = neighbour in self.held or (neighbour, index) in self._on_disk or moving
            self._core.host.lane_ready(neighbour, index)

    def _limit_later(self, neighbour: str) -> None:
        if neighbour not in self._limits:
            waits = self._limits[neighbour] = object()
            self._core.call_later(SETTLE_LIMIT, lambda: self._limit_reached(neighbour, waits))

    def _no_limit(self, neighbour: str) -> None:
        if neighbour not in self._limits or neighbour in self.held:
            return
        if not any(lane.stash for lane in self[neighbour].lanes):
            del self._limits[neighbour]

    def _limit_reached(self, neighbour: str, waits: object) -> None:
        if self._limits.get(neighbour) is not waits:
            return  # it had not to wait any more, and does again by now
        del self._limits[neighbour]
        if neighbour in self.held:
            self._core.counters.add("tree_settle_limits")
            self._release([neighbour])
        if any(lane.stash for lane in self[neighbour].lanes):
            self._core.counters.add("tree_view_limits")
            self._take_stashed(neighbour, anyway=True)


def goes_again(run: Run) -> bool:
    """Whether a run that was stuck is flooded. QoS 0 is not: a node that was killed may have had it before.
    Nor are repairs, but those that are floods: nodes compare what they retain when a link comes up."""
    return run.lasting and (run.flood or not run.repair)
