"""What a node of a mesh does for clients that lost their site (docs/decisions/0011-mesh.md).

Owns the node's part as a holder: the queues of other nodes' clients, and takeovers. The other parts:
`receipts` (what clients have), `returning` (clients that come here), `handover` (queues for new holders),
`resends` and `dead_wills`. Invariants: a run is in all queues that need it before it is confirmed; a client
that connected elsewhere later has no pair here. Must not know: sockets, clocks, how receipts travel, how it
is decided what a client lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING

from brokerweave.cooperation.mesh import Mesh
from brokerweave.failover import held, wire
from brokerweave.failover.cutover import in_order
from brokerweave.failover.held import Held
from brokerweave.failover.ids import MessageId
from brokerweave.failover.injections import InjectionLog
from brokerweave.failover.queues import Queues
from brokerweave.failover.shelf import Shelf
from brokerweave.links.injector import InjectorState
from brokerweave.links.journal import Journal
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.frames import publish_head
from brokerweave.mqtt.packets import Publish, Will
from brokerweave.node.confirmations import PublicationId
from brokerweave.node.dead_wills import DeadWills
from brokerweave.node.handover import Handover
from brokerweave.node.receipts import ReceiptExchange
from brokerweave.node.resends import Resends
from brokerweave.node.retained import time_of
from brokerweave.node.returning import Returns
from brokerweave.node.router import RouteGroup
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.pair import Pair

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore

TICK_SECONDS = 1.0
STEP_SECONDS = 5.0
"""What the clock goes on, or back, between two ticks beyond this it was set by."""
LEFT_SECONDS = 2.0
"""How long a client whose session ended may turn up elsewhere before its queue is given up: news of the two
take different ways."""
STALE_SECONDS = 3.0
"""What comes later than this for clients of a node in reach is not kept: the node has had it, and receipts do
not wait that long."""
CAME_SECONDS = 10.0
"""How far clocks may differ where it is asked whether a client came after something was published."""
PUSH_SECONDS = 0.5
"""After a link is up: how long a node may take its pending runs before it hears of those for its clients."""
UNHELD_SECONDS = 0.2
"""How long a node may take to confirm what its holder, just started, could not keep for its clients."""
BEFORE_SECONDS = 5.0
"""How long after a start the broker may still deliver what it was given before."""
MOST_UNHELD = 10_000
SHOWN = 20
"""Clients that `status` names, those with the most drops."""
_DUP = 0x08


class Failover:
    def __init__(self, core: NodeCore, mesh: Mesh) -> None:
        self._core = core
        self.mesh = mesh
        self.window = mesh.window
        bounds = mesh.client_bytes, mesh.max_bytes
        self.queues = Queues(*bounds, self.window)
        self.receipts = ReceiptExchange(core, self)
        self.log = InjectionLog()
        self.log.kept = self.receipts.kept
        for lane, injector in enumerate(core.injectors):
            injector.watch = self.log.lane(lane if core.settings.ordered else 0)
        self.returns = Returns(core, self)
        self.wills = DeadWills(core, self)
        self.resends = Resends(core, self)
        self.handover = Handover(core, self)
        self.warming_up = True
        """Started less than a window ago, not by the clock, which may be set: somebody who was not reached
        yet may have kept something before."""
        core.call_later(self.window, self._grow)
        self.receipts.turn_later(min(self.window, BEFORE_SECONDS))
        self.started = core.now()
        self._ticking = False
        self._ticked = 0.0
        self._pushing: Counter[str] = Counter()
        """Nodes that are about to hear what is kept here for their clients."""
        self._unheld: dict[MessageId, set[str]] = {}
        """What was published here, and the nodes whose clients a holder does not know."""
        self._renewed: dict[str, float] = {}
        """Clients whose sessions ended with their node and started again there, and when."""
        self._gone: dict[str, str] = {}
        """Clients whose sessions ended a moment ago, and where."""
        core.retained.repaired = lambda: self._compare(core.neighbours())
        mesh.joined = self._joined
        mesh.elsewhere = self.returns.elsewhere
        mesh.heard = self.returns.attempts.heard
        mesh.left = self._left
        mesh.died = self._died
        mesh.synced = self._synced
        mesh.sought = self.handover.sought
        mesh.remembered = self.handover.look
        mesh.forgot = self.wills.forgot
        mesh.lives = self._lives
        mesh.up = self._up
        mesh.down = self._down
        mesh.table.moved = self._moved
        mesh.table.came = self._came
        core.controls |= {
            wire.UNHELD: self._unheld_arrived,
            wire.ASK: self._asked,
            wire.ANSWER: self.returns.answered,
            wire.LATE: self.returns.late_arrived,
            wire.WILLS: self.wills.arrived,
        }

    def _grow(self) -> None:
        self.warming_up = False

    def keep_in(self, journal: Journal | None) -> None:
        """Before anything happens: keep queues in a journal, and go on with what an earlier start left."""
        if journal is None:
            return
        bounds = self.mesh.client_bytes, self.mesh.max_bytes
        self.queues = Queues(*bounds, self.window, Shelf(journal))
        self.queues.restore(self._core.now())
        if len(self.queues):
            self.tick_later()

    # As a holder

    def hold(self, run: Run, lane: int) -> None:
        """Keep publications for the clients of the nodes that their run names. Raises RemoteProtocolError."""
        lane = lane if self._core.settings.ordered else 0
        for offset in range(run.count):
            part = run.part(offset, 1)
            publish = codec.decode(part.blob, part.version)
            if isinstance(publish, Publish) and publish.qos:
                self._hold_one(part, lane, publish)
        self._say_unheld(run, lane)
        # on disk before the write-ahead log says that it came, and before anybody is told
        self.queues.flush()

    def not_kept(self, run: Run, lane: int, group: RouteGroup, missing: set[str]) -> None:
        """A client's publication goes on. Where neither a node nor all that keep it for that node's clients
        were reached, or one of these does not know them, this one keeps it, too: the node tells it what its
        clients have, once it hears of that, or once their link is up again."""
        keepers = [nodes for keeper, nodes in group.keepers if keeper in missing]
        nodes = missing.intersection(node for each in keepers for node in each)
        identifier = MessageId(run.origin, run.epoch, lane, run.first)
        unheld = self._unheld.pop(identifier, set())
        holds = self.resends.to_keep(run, sorted(nodes | unheld))
        if holds:
            self.hold(run.bound_for(run.cap, holds), lane)
        for node in sorted(unheld.intersection(self.mesh.reachable())):
            self._core.send_own(node, wire.KEPT, b"")

    def _say_unheld(self, run: Run, lane: int) -> None:
        """This node was started, and has not heard yet which clients some nodes have: its origin may know."""
        unknown = [node for node in run.holds if not self.mesh.knows(node)]
        if unknown and run.confirm and run.origin != self._core.node_id:
            ids = [MessageId(run.origin, run.epoch, lane, run.first)]
            for payload in wire.encode_got(dict.fromkeys(unknown, ids)):
                self._core.send_own(run.origin, wire.UNHELD, payload)

    def _unheld_arrived(self, neighbour: str, payload: bytes) -> None:
        for node, ids in wire.decode_got(payload):
            for identifier in ids:
                self._unheld.setdefault(identifier, set()).add(node)
            self._core.call_later(UNHELD_SECONDS, partial(self._keep_unheld, node, ids))
        while len(self._unheld) > MOST_UNHELD:
            del self._unheld[next(iter(self._unheld))]
            self._core.counters.add("unheld_forgotten")  # most are of publications that have gone on

    def _keep_unheld(self, node: str, ids: list[MessageId]) -> None:
        """A node is slow to confirm what nobody keeps for its clients: should this one end now, it would not
        know that."""
        awaited = {
            one for one in ids if PublicationId(*one) in self._core.confirmations
        }  # else it has gone on
        waiting = {one for one in awaited if node in self._unheld.get(one, ())}
        neighbour = self._core.neighbour_table.get(node)
        lanes = neighbour.lanes if neighbour is not None else ()
        for lane in {one.lane for one in waiting if one.lane < len(lanes)}:
            for run in lanes[lane].outbox.kept():
                if MessageId(run.origin, run.epoch, lane, run.first) in waiting:
                    self.hold(replace(run, holds=(node,)), lane)

    def held(self, run: Run, lane: int) -> Run:
        """What came over a link is kept as it asks; given back as it goes to the broker here."""
        holds, me = run.holds, self._core.node_id
        away = self._away(lane) or self.mesh.cut_off or self.mesh.table.orphaned(me)
        if run.max_qos and away and me not in holds:
            holds += (me,)  # whose clients may come back elsewhere, before its broker does
        if holds:
            self.hold(run if holds is run.holds else run.bound_for(run.cap, holds), lane)
        if run.max_qos and not run.cap:
            # Its origin did not know yet who wants more here, nor may this node know, where SUBACK has yet to
            # come; at QoS 0 nobody would hear who has it.
            head = publish_head(run.blob, run.version)
            wanted = self.mesh.table.nodes_wanting(head.topic.decode())
            run = replace(run, cap=2 if self.returns.subscribes else wanted.get(self._core.node_id, 0))
        if run.blob[0] & _DUP:
            return replace(run, blob=bytes((run.blob[0] & ~_DUP,)) + run.blob[1:])
        return run

    def _away(self, lane: int) -> bool:
        return self._core.injectors[lane].state is not InjectorState.READY

    def _hold_one(self, run: Run, lane: int, publish: Publish) -> None:
        pending: dict[str, tuple[str, int]] = {}
        # What this node's broker has is kept here for clients of before it was started, and who lost it.
        served = self._core.node_id if not (self._away(lane) or self.mesh.alone) else None
        old = self._core.now() - run.born > STALE_SECONDS
        if run.blob[0] & _DUP and run.born < self.started:
            old = True  # as it was sent first clients may have had it before this node was there
        for node in run.holds:
            had = old and self.mesh.has_told(node)
            for client, qos in self.mesh.table.clients_wanting(node, publish.topic).items():
                at_home = self.mesh.table.home(client) == node
                has = node == served and client not in self.mesh.cut_off
                if at_home and (has or (had and not self._is_renewed(client, run.born))):
                    continue
                # Where it was counts: its origin may not have known yet where it is.
                if client not in pending or self.mesh.table.home(client) != node:
                    pending[client] = (node, qos)
        if not pending:
            return
        identifier = MessageId(run.origin, run.epoch, lane, run.first)
        kept = held.hold(identifier, publish, run.version, run.born)
        self._core.counters.add("publications_held", len(pending))
        moved = self.queues.hold(kept, pending, self._core.now(), self._without_broker(pending, run.origin))
        for client in pending if self._renewed or run.born < self.started else ():
            renewed = self._is_renewed(client, run.born) or self._has_come(client, run.born)
            at_home = pending[client][0] == self.mesh.table.home(client)
            if (
                renewed and at_home and self.queues.is_pending(client, identifier)
            ):  # else it is said to have it
                moved[client] = pending[client][0]  # which may have had it before the session began
        for client, node in moved.items():
            self._pass_on(client, node, kept, own=pending[client][0] == node)
        self.tick_later()

    def _without_broker(self, pending: Mapping[str, tuple[str, int]], origin: str) -> set[str]:
        """Clients for whom no broker gets something: they are nowhere, or at a site that its origin, this
        node, has no link to, and heard of from others only."""
        home, me, linked = self.mesh.table.home, self._core.node_id, self._core.neighbour_table
        return {
            client
            for client, (node, _) in pending.items()
            if home(client) is None or (origin == me != node and node not in linked)
        }

    def _is_renewed(self, client: str, born: float) -> bool:
        """Whether something may be from before it said again what it wants, since its session was lost."""
        since = self._renewed.get(client)
        if since is None:
            return False
        return self._core.now() - since < STALE_SECONDS or born < since

    def _is_stale(self, client: str, born: float) -> bool:
        """Whether a client of a node in reach has had something, if it is to have it there."""
        return self._core.now() - born > STALE_SECONDS and not self._is_renewed(client, born)

    def _has_come(self, client: str, born: float) -> bool:
        """Whether something is from before this node was started, and its client may have come to its site
        since: what it had where it was, only its new site can know."""
        return born < self.started and time_of(self.mesh.table.since(client)) > born - CAME_SECONDS

    def _pass_on(self, client: str, node: str, late: Held, own: bool) -> None:
        """It came when its client was somewhere else already."""
        self._core.counters.add("late_publications")
        if node == self._core.node_id:
            # Not yet: it is about to be handed to the broker here, too, where others want it.
            self._core.call_later(0, lambda: self.returns.late(client, [late], node, own))
            return
        since, now = self.mesh.table.since(client), self._core.now()
        for payload in wire.encode_late(since, client, [late], now, own):
            self._core.send_own(node, wire.LATE, payload)

    def take_over(self, handed: wire.Handed, since: float) -> None:
        """Another node keeps this for a client, and so does this one from now on; but not what is older than
        `since`. Where the client is elsewhere by now, which the other had yet to hear, it gets it there."""
        client, node, now = handed.client, handed.node, self._core.now()
        kept = handed.kept
        if handed.dead and self.mesh.has_told(node) and self.mesh.table.home(client) == node:
            # It lives: what its giver was not told of, clients may have had long ago.
            kept = [(qos, one) for qos, one in kept if not self._is_stale(client, one.born)]
        for late, home in self.queues.take_over(client, node, kept, now, since):
            self._pass_on(client, home, late, own=False)
        self.queues.flush()
        self.tick_later()

    def flush(self) -> None:
        """What was held is about to be confirmed: let the disk have it."""
        self.queues.flush()

    def tick_later(self) -> None:
        """The queues have something that ages."""
        if not self._ticking:
            self._ticking = True
            self._ticked = self._core.now()
            self._core.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        now = self._core.now()
        step = now - self._ticked - TICK_SECONDS
        if abs(step) > STEP_SECONDS:  # the clock was set: nothing has aged by that
            self.queues.stepped(step, self._ticked + TICK_SECONDS)
        self.queues.expire(now)
        self.queues.flush()
        if self.queues.remembers or self.queues.shelf.behind:
            self.tick_later()

    def _asked(self, neighbour: str, payload: bytes) -> None:
        ask, now = wire.decode_ask(payload), self._core.now()
        self.handover.asked(ask.client)
        self.queues.moved(ask.client, neighbour, ask.since, now)
        kept = self.queues.take(ask.client, own_before=now - ask.age if ask.age else inf)
        for page in wire.encode_answer(ask.round, ask.client, kept, now):
            self._core.send_own(neighbour, wire.ANSWER, page)

    # As the site of clients

    def accepted(self, pair: Pair, session_present: bool, lost: bool) -> None:
        """`lost`: the broker was seen to die with the session that the client had here."""
        client = pair.client.client_id
        if not client:
            return
        self.returns.interrupt(client)
        if session_present:
            self.returns.goes_on(client, pair)
        else:
            if lost:
                self.returns.expect(client)
            self.returns.accepted(client)
        self.wills.accepted(pair)

    def ended(self, pair: Pair) -> None:
        self.returns.ended(pair)
        self.wills.ended(pair)

    def granted(
        self, pair: Pair, filters: list[tuple[str, int]], hold_point: HoldPoint, timeout: float
    ) -> bool:
        """Filters were granted to a client: True if the stream to it need not be held."""
        if self.returns.expects(pair.client.client_id) and self.mesh.untold(pair.client.client_id):
            return self.returns.begin(pair, filters, hold_point, timeout)
        return self._core.await_others(
            self.mesh.when_heard,
            lambda: pair.end_hold(hold_point),
            timeout,
            "barrier_timeouts",
            self.mesh.forget_wait,
        )

    def will_due(self, pair: Pair, will: Will) -> tuple[str, int] | None:
        """The broker publishes a will here: the sender by which others know it, if its client has a name."""
        if will.qos:
            self.receipts.kept(will.topic.encode())
        return self.wills.mark(pair, will) if pair.client.client_id else None

    def published(self, run: Run, lane: int, publish: Publish, pair: Pair) -> None:
        """The broker here has acknowledged what a client published."""
        lane = lane if self._core.settings.ordered else 0
        identifier = MessageId(run.origin, run.epoch, lane, run.first)
        self.log.own(identifier)
        had_before = publish.dup and publish.qos == 2 and pair.resumed
        if had_before or self.returns.attempts.under_way:
            kept = held.hold(identifier, publish, run.version, run.born)
            self.returns.attempts.published(kept, pair.client.client_id, publish.packet_id)
            if had_before:
                self.returns.redelivery.had_before(kept)

    # What an operator sees

    def status(self) -> dict[str, object]:
        """What is kept for others' clients, and whom of them it had to be dropped for."""
        return {
            "publications": len(self.queues),
            "clients": len(self.queues.clients),
            "handing_over": self.handover.pending,
            "bytes": self.queues.bytes,
            "dropped": dict(self.queues.dropped.most_common(SHOWN)),
        }

    def counters(self) -> dict[str, int]:
        """Everything here that was let go for want of room."""
        return {
            "held_dropped": self.queues.dropped.total(),
            "early_receipts_dropped": self.queues.early_dropped,
            "had_forgotten": self.queues.had_dropped,
            "receipts_lost": self.receipts.outbox.lost,
            "recent_forgotten": self.receipts.recent.dropped,
            "resends_forgotten": self.resends.senders.overflows,
            "injections_forgotten": self.log.forgotten,
        }

    # What happens to others

    def _moved(self, client: str, before: str, node: str) -> None:
        core, table = self._core, self.mesh.table
        since = table.since(client)
        self.wills.moved(client, since)
        core.call_later(self.window, lambda: self.mesh.forget_former(before, client))
        if before == node:
            at = self._renewed[client] = core.now()
            core.call_later(self.window, lambda: self._forget_renewed(client, at))
        if table.clients(node)[client].filters:  # it was named there before; who named it later lost it
            self._came(node, client, since)
            self._push_later(node)
        if node == core.node_id:
            self.returns.expect(client)
        elif before == core.node_id:
            core.call_later(0, lambda: self._taken_over(client))

    def _forget_renewed(self, client: str, at: float) -> None:
        if self._renewed.get(client) == at:
            del self._renewed[client]

    def _came(self, node: str, client: str, since: int) -> None:
        at_home = self.mesh.table.home(client) == node
        self.queues.moved(client, node, since, self._core.now(), sure=at_home)
        self.tick_later()

    def _taken_over(self, client: str) -> None:
        """Another site has this client since later [MQTT-3.1.4-3]."""
        record = self._core.interest.records.get(client)
        if record is None or self.mesh.table.home(client) == self._core.node_id:
            return
        self._core.counters.add("clients_taken_over")
        pair = record.owner
        self._core.sessions.forget(record)
        if isinstance(pair, Pair):
            pair.close_taken_over(session_ends=True)
        self.returns.taken_over(client)

    def _left(self, node: str, client: str) -> None:
        """Its session is over. What was kept for it is no longer pending, unless it connects elsewhere."""

        def give_up() -> None:
            if self._gone.pop(client, None) is not None and self.mesh.table.home(client) is None:
                self.queues.forget(client)

        if self.queues.has_pending(client):
            self._gone[client] = node
            self._core.call_later(LEFT_SECONDS, give_up)

    def _joined(self, node: str, client: str) -> None:
        if self._gone.pop(client, None) == node:
            self.queues.forget(client)  # it ended one session there, and began another
        if self.mesh.table.home(client) == self._core.node_id != node:
            self.returns.elsewhere(client)

    def _died(self, node: str) -> None:
        self.returns.down(node)
        self.wills.died(node)
        # What it published last may have reached some, and is passed on by nobody: a message takes one hop.
        holders = self.mesh.holders(node)
        self._compare(self._core.neighbours() if self._core.node_id in holders else holders)

    def _compare(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._core.retained.missed(node)

    def _lives(self) -> None:
        self.wills.look()
        self.handover.look()

    def _synced(self, node: str) -> None:
        """What clients got while this node was away, their node tells now: it was never acknowledged."""
        if len(self.queues):
            self._push_later(node)
        self.handover.look()

    @property
    def pushing(self) -> bool:
        return any(self._pushing.values())

    def _push_later(self, node: str, pending: list[int] | None = None) -> None:
        neighbour = self._core.neighbour_table.get(node)
        lanes = neighbour.lanes if neighbour is not None else ()
        before = [lane.outbox.last for lane in lanes] if pending is None else pending
        self._pushing[node] += 1
        self._core.call_later(PUSH_SECONDS, lambda: self._push(node, before))

    def _push(self, node: str, pending: list[int]) -> None:
        """A node that was out of reach told its clients: it may not have got, when they came to it, what is
        kept for them here. First it gets what was `pending` to it then as such, so that it knows what it
        has."""
        self._pushing[node] -= 1
        neighbour = self._core.neighbour_table.get(node)
        if neighbour is None or not neighbour.up:
            return  # with the next link
        boxes = zip((lane.outbox for lane in neighbour.lanes), pending, strict=False)
        # What was withdrawn unsent has left its number to what comes next: that may never come.
        if any(box.backlog_runs and box.oldest <= last for box, last in boxes):
            self._push_later(node, pending)
            return
        for client in [c for c in self.mesh.table.clients(node) if self.queues.has_pending(c)]:
            if self.mesh.table.home(client) == node:
                self._push_to(node, client)

    def _push_to(self, node: str, client: str) -> None:
        since, now = self.mesh.table.since(client), self._core.now()
        elsewhere, there = self.queues.take(client, own=False), self.queues.take(client, own=True)
        known = {one.id for one in there}
        for own, part in groupby(in_order(elsewhere + there), lambda one: one.id in known):
            for payload in wire.encode_late(since, client, part, now, own):
                self._core.send_own(node, wire.LATE, payload)

    def _up(self, neighbour: str) -> None:
        self.receipts.up(neighbour)
        self.returns.attempts.up(neighbour)
        self.wills.up(neighbour)

    def _down(self, neighbour: str) -> None:
        self.returns.down(neighbour)
        self.handover.down(neighbour)

    def took(self, neighbour: str) -> None:
        self.returns.attempts.took(neighbour)
