"""What a node does for clients that lost their site, if the strategy has a roster of all clients
(docs/decisions/0011-mesh.md).

Owns the node's part as a holder: the queues of other nodes' clients, and takeovers. The other parts:
`receipts` (what clients have), `returning` (clients that come here), `handover` (queues for new holders),
`resends` and `dead_wills`. Invariants: a run is in all queues that need it before it is confirmed; a client
that connected elsewhere later has no pair here. Must not know: sockets, clocks, how receipts travel, how it
is decided what a client lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import inf
from typing import ClassVar

from brokerweave.care import held, wire
from brokerweave.care.cutover import in_order
from brokerweave.care.dead_wills import DeadWills
from brokerweave.care.handover import Handover
from brokerweave.care.held import Held
from brokerweave.care.host import CareHost
from brokerweave.care.ids import MessageId
from brokerweave.care.injections import InjectionLog
from brokerweave.care.interface import Care, Sender
from brokerweave.care.queues import Queues
from brokerweave.care.receipts import ReceiptExchange
from brokerweave.care.resends import Resends
from brokerweave.care.returning import Returns
from brokerweave.care.shelf import Shelf
from brokerweave.links.hybrid_clock import time_of
from brokerweave.links.injector import InjectorState
from brokerweave.links.journal import Journal
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish, Will
from brokerweave.mqtt.publish import publish_head
from brokerweave.plugin import Cut
from brokerweave.plugin.roster import Roster, RosterEvents
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.pair import Pair
from brokerweave.session.record import SessionRecord

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


class ClientCare(Care, RosterEvents):
    watches_deliveries: ClassVar[bool] = True

    def __init__(self, host: CareHost, roster: Roster) -> None:
        self._host = host
        self.roster = roster
        self.window = roster.window
        bounds = roster.client_bytes, roster.max_bytes
        self.queues = Queues(*bounds, self.window)
        self.receipts = ReceiptExchange(host, self)
        self.log = InjectionLog()
        self.log.kept = self.receipts.kept
        for lane, injector in enumerate(host.injectors):
            injector.watch = self.log.lane(lane if host.settings.ordered else 0)
        self.returns = Returns(host, self)
        self.wills = DeadWills(host, self)
        self.resends = Resends(host, self)
        self.handover = Handover(host, self)
        self.warming_up = True
        """Started less than a window ago, not by the clock, which may be set: somebody who was not reached
        yet may have kept something before."""
        host.call_later(self.window, self._grow)
        self.receipts.turn_later(min(self.window, BEFORE_SECONDS))
        self.started = host.now()
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
        roster.events = self
        host.controls |= {
            wire.UNHELD: self._unheld_arrived,
            wire.ASK: self._asked,
            wire.ANSWER: self.returns.answered,
            wire.LATE: self.returns.late_arrived,
            wire.WILLS: self.wills.arrived,
        }

    def _grow(self) -> None:
        self.warming_up = False

    def keep_in(self, open_journal: Callable[[], Journal | None]) -> None:
        journal = open_journal()
        if journal is None:
            return
        bounds = self.roster.client_bytes, self.roster.max_bytes
        self.queues = Queues(*bounds, self.window, Shelf(journal))
        self.queues.restore(self._host.now())
        if len(self.queues):
            self.tick_later()

    # As a holder

    def hold(self, run: Run, lane: int) -> None:
        lane = lane if self._host.settings.ordered else 0
        for offset in range(run.count):
            part = run.part(offset, 1)
            publish = codec.decode(part.blob, part.version)
            if isinstance(publish, Publish) and publish.qos:
                self._hold_one(part, lane, publish)
        self._say_unheld(run, lane)
        # on disk before the write-ahead log says that it came, and before anybody is told
        self.queues.flush()

    def not_kept(
        self, run: Run, lane: int, keepers: Iterable[tuple[str, tuple[str, ...]]], missing: set[str]
    ) -> None:
        """Where neither a node nor all that keep it for that node's clients
        were reached, or one of these does not know them, this one keeps it, too: the node tells it what its
        clients have, once it hears of that, or once their link is up again."""
        unkept = [nodes for keeper, nodes in keepers if keeper in missing]
        nodes = missing.intersection(node for each in unkept for node in each)
        identifier = MessageId(run.origin, run.epoch, lane, run.first)
        unheld = self._unheld.pop(identifier, set())
        holds = self.resends.to_keep(run, sorted(nodes | unheld))
        if holds:
            self.hold(run.bound_for(run.cap, holds), lane)
        for node in sorted(unheld.intersection(self.roster.reachable())):
            self._host.send_own(node, wire.KEPT, b"")

    def _say_unheld(self, run: Run, lane: int) -> None:
        """This node was started, and has not heard yet which clients some nodes have: its origin may know."""
        unknown = [node for node in run.holds if not self.roster.knows(node)]
        if unknown and run.confirm and run.origin != self._host.node_id:
            ids = [MessageId(run.origin, run.epoch, lane, run.first)]
            for payload in wire.encode_got(dict.fromkeys(unknown, ids)):
                self._host.send_own(run.origin, wire.UNHELD, payload)

    def _unheld_arrived(self, neighbour: str, payload: bytes) -> None:
        for node, ids in wire.decode_got(payload):
            for identifier in ids:
                self._unheld.setdefault(identifier, set()).add(node)
            self._host.call_later(UNHELD_SECONDS, partial(self._keep_unheld, node, ids))
        while len(self._unheld) > MOST_UNHELD:
            del self._unheld[next(iter(self._unheld))]
            self._host.count("unheld_forgotten")  # most are of publications that have gone on

    def _keep_unheld(self, node: str, ids: list[MessageId]) -> None:
        """A node is slow to confirm what nobody keeps for its clients: should this one end now, it would not
        know that."""
        awaited = {one for one in ids if one in self._host.confirmations}  # else it has gone on
        waiting = {one for one in awaited if node in self._unheld.get(one, ())}
        neighbour = self._host.neighbour_table.get(node)
        lanes = neighbour.lanes if neighbour is not None else ()
        for lane in {one.lane for one in waiting if one.lane < len(lanes)}:
            for run in lanes[lane].outbox.kept():
                if MessageId(run.origin, run.epoch, lane, run.first) in waiting:
                    self.hold(replace(run, holds=(node,)), lane)

    def arrived(self, run: Run, lane: int, neighbour: str) -> Run | None:
        """What came over a link is kept as it asks."""
        if not run.holds and run.sender is None:
            return run
        if self.resends.repeated(run, lane):
            return None
        holds, me = run.holds, self._host.node_id
        away = self._away(lane) or self.roster.cut_off or self.roster.table.orphaned(me)
        if run.max_qos and away and me not in holds:
            holds += (me,)  # whose clients may come back elsewhere, before its broker does
        if holds:
            self.hold(run if holds is run.holds else run.bound_for(run.cap, holds), lane)
        if run.max_qos and not run.cap:
            # Its origin did not know yet who wants more here, nor may this node know, where SUBACK has yet to
            # come; at QoS 0 nobody would hear who has it.
            head = publish_head(run.blob, run.version)
            wanted = self.roster.table.nodes_wanting(head.topic.decode())
            run = replace(run, cap=2 if self.returns.subscribes else wanted.get(self._host.node_id, 0))
        if run.blob[0] & _DUP:
            return replace(run, blob=bytes((run.blob[0] & ~_DUP,)) + run.blob[1:])
        return run

    def _away(self, lane: int) -> bool:
        return self._host.injectors[lane].state is not InjectorState.READY

    def _hold_one(self, run: Run, lane: int, publish: Publish) -> None:
        pending: dict[str, tuple[str, int]] = {}
        # What this node's broker has is kept here for clients of before it was started, and who lost it.
        served = self._host.node_id if not (self._away(lane) or self.roster.alone) else None
        old = self._host.now() - run.born > STALE_SECONDS
        if run.blob[0] & _DUP and run.born < self.started:
            old = True  # as it was sent first clients may have had it before this node was there
        for node in run.holds:
            had = old and self.roster.has_told(node)
            for client, qos in self.roster.table.clients_wanting(node, publish.topic).items():
                at_home = self.roster.table.home(client) == node
                has = node == served and client not in self.roster.cut_off
                if at_home and (has or (had and not self._is_renewed(client, run.born))):
                    continue
                # Where it was counts: its origin may not have known yet where it is.
                if client not in pending or self.roster.table.home(client) != node:
                    pending[client] = (node, qos)
        if not pending:
            return
        identifier = MessageId(run.origin, run.epoch, lane, run.first)
        kept = held.hold(identifier, publish, run.version, run.born)
        self._host.count("publications_held", len(pending))
        moved = self.queues.hold(kept, pending, self._host.now(), self._without_broker(pending, run.origin))
        for client in pending if self._renewed or run.born < self.started else ():
            renewed = self._is_renewed(client, run.born) or self._has_come(client, run.born)
            at_home = pending[client][0] == self.roster.table.home(client)
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
        home, me, linked = self.roster.table.home, self._host.node_id, self._host.neighbour_table
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
        return self._host.now() - since < STALE_SECONDS or born < since

    def _is_stale(self, client: str, born: float) -> bool:
        """Whether a client of a node in reach has had something, if it is to have it there."""
        return self._host.now() - born > STALE_SECONDS and not self._is_renewed(client, born)

    def _has_come(self, client: str, born: float) -> bool:
        """Whether something is from before this node was started, and its client may have come to its site
        since: what it had where it was, only its new site can know."""
        return born < self.started and time_of(self.roster.table.since(client)) > born - CAME_SECONDS

    def _pass_on(self, client: str, node: str, late: Held, own: bool) -> None:
        """It came when its client was somewhere else already."""
        self._host.count("late_publications")
        if node == self._host.node_id:
            # Not yet: it is about to be handed to the broker here, too, where others want it.
            self._host.call_later(0, lambda: self.returns.late(client, [late], node, own))
            return
        since, now = self.roster.table.since(client), self._host.now()
        for payload in wire.encode_late(since, client, [late], now, own):
            self._host.send_own(node, wire.LATE, payload)

    def take_over(self, handed: wire.Handed, since: float) -> None:
        """Another node keeps this for a client, and so does this one from now on; but not what is older than
        `since`. Where the client is elsewhere by now, which the other had yet to hear, it gets it there."""
        client, node, now = handed.client, handed.node, self._host.now()
        kept = handed.kept
        if handed.dead and self.roster.has_told(node) and self.roster.table.home(client) == node:
            # It lives: what its giver was not told of, clients may have had long ago.
            kept = [(qos, one) for qos, one in kept if not self._is_stale(client, one.born)]
        for late, home in self.queues.take_over(client, node, kept, now, since):
            self._pass_on(client, home, late, own=False)
        self.queues.flush()
        self.tick_later()

    def flush(self) -> None:
        self.queues.flush()

    def tick_later(self) -> None:
        """The queues have something that ages."""
        if not self._ticking:
            self._ticking = True
            self._ticked = self._host.now()
            self._host.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        now = self._host.now()
        step = now - self._ticked - TICK_SECONDS
        if abs(step) > STEP_SECONDS:  # the clock was set: nothing has aged by that
            self.queues.stepped(step, self._ticked + TICK_SECONDS)
        self.queues.expire(now)
        self.queues.flush()
        if self.queues.remembers or self.queues.shelf.behind:
            self.tick_later()

    def _asked(self, neighbour: str, payload: bytes) -> None:
        ask, now = wire.decode_ask(payload), self._host.now()
        self.handover.asked(ask.client)
        self.queues.moved(ask.client, neighbour, ask.since, now)
        kept = self.queues.take(ask.client, own_before=now - ask.age if ask.age else inf)
        for page in wire.encode_answer(ask.round, ask.client, kept, now):
            self._host.send_own(neighbour, wire.ANSWER, page)

    # As the site of clients

    def since(self, client: str) -> int:
        return self.roster.table.since(client)

    def accepted(self, pair: Pair, session_present: bool, lost: bool) -> None:
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

    def is_owed(self, client: str, clean_start: bool) -> bool:
        """It asks for a session that its broker lost meanwhile, or had yet to say what it wants."""
        return not clean_start or self.returns.has_pending(client)

    def recall(self, record: SessionRecord) -> None:
        self.returns.recall(record)

    def ended(self, pair: Pair, unexpected: bool) -> None:
        self.returns.ended(pair)
        self.wills.ended(pair)
        record = self._host.sessions.of(pair)
        if record is None:
            return
        if unexpected and self.returns.has_pending(record.client_id):
            record.lost = True  # its session may end with its connection; its pending messages stay
        if record.lost and record.owner is pair:
            self.roster.client_cut_off(record.client_id)

    def subscribing(self, pair: Pair) -> None:
        self.returns.subscribing(pair)

    def expects(self, pair: Pair) -> bool:
        client = pair.client.client_id
        return self.returns.expects(client) and self.roster.untold(client)

    def begin(
        self, pair: Pair, filters: list[tuple[str, int]], hold_point: HoldPoint, timeout: float
    ) -> bool:
        return self.returns.begin(pair, filters, hold_point, timeout)

    def when_heard(self, callback: Callable[[], None]) -> bool:
        return self.roster.when_heard(callback)

    def forget_wait(self, callback: Callable[[], None]) -> None:
        self.roster.forget_wait(callback)

    def received(self, pair: Pair, hashes: list[bytes], more: bool) -> None:
        self.receipts.received(pair, hashes)
        if more:  # in doubt at this node's death is then no more than the client's Receive Maximum
            self.receipts.flush()

    def keeps(self, topic: bytes) -> bool:
        return self.receipts.keeps(topic)

    def publishing(self, topic: str) -> None:
        self.receipts.kept(topic.encode())

    def publication_name(self, pair: Pair, publish: Publish) -> bytes:
        return b""  # all nodes here know deliveries by their content

    def resent(self, pair: Pair, publish: Publish) -> bool:
        return self.resends.resent(pair, publish)

    def sender(
        self, publish: Publish, pair: Pair, holds: tuple[str, ...], resent: bool
    ) -> tuple[Sender | None, tuple[str, ...]]:
        return self.resends.sender(publish, pair, holds, resent)

    def left_unanswered(self, run: Run, lane: int, holds: tuple[str, ...]) -> None:
        self.resends.left(run, lane, holds)

    def will_due(self, pair: Pair, will: Will) -> Sender | None:
        if will.qos:
            self.receipts.kept(will.topic.encode())
        return self.wills.mark(pair, will) if pair.client.client_id else None

    def published(self, run: Run, lane: int, publish: Publish, pair: Pair, resent: bool) -> None:
        if resent:
            self.resends.known_again(run, lane)
            return
        lane = lane if self._host.settings.ordered else 0
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
        return {
            "publications": len(self.queues),
            "clients": len(self.queues.clients),
            "handing_over": self.handover.pending,
            "bytes": self.queues.bytes,
            "dropped": dict(self.queues.dropped.most_common(SHOWN)),
        }

    def counters(self) -> dict[str, int]:
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

    def moved(self, client: str, before: str, node: str) -> None:
        host, table = self._host, self.roster.table
        since = table.since(client)
        self.wills.moved(client, since)
        host.call_later(self.window, lambda: self.roster.forget_former(before, client))
        if before == node:
            at = self._renewed[client] = host.now()
            host.call_later(self.window, lambda: self._forget_renewed(client, at))
        if table.clients(node)[client].filters:  # it was named there before; who named it later lost it
            self.came(node, client, since)
            self._push_later(node)
        if node == host.node_id:
            self.returns.expect(client)
        elif before == host.node_id:
            host.call_later(0, lambda: self._taken_over(client))

    def _forget_renewed(self, client: str, at: float) -> None:
        if self._renewed.get(client) == at:
            del self._renewed[client]

    def came(self, node: str, client: str, since: int) -> None:
        at_home = self.roster.table.home(client) == node
        self.queues.moved(client, node, since, self._host.now(), sure=at_home)
        self.tick_later()

    def _taken_over(self, client: str) -> None:
        """Another site has this client since later [MQTT-3.1.4-3]."""
        record = self._host.sessions.records.get(client)
        if record is None or self.roster.table.home(client) == self._host.node_id:
            return
        self._host.count("clients_taken_over")
        pair = record.owner
        self._host.sessions.forget(record)
        if isinstance(pair, Pair):
            pair.close_taken_over(session_ends=True)
        self.returns.taken_over(client)

    def left(self, node: str, client: str) -> None:
        """Its session is over. What was kept for it is no longer pending, unless it connects elsewhere."""

        def give_up() -> None:
            if self._gone.pop(client, None) is not None and self.roster.table.home(client) is None:
                self.queues.forget(client)

        if self.queues.has_pending(client):
            self._gone[client] = node
            self._host.call_later(LEFT_SECONDS, give_up)

    def joined(self, node: str, client: str) -> None:
        if self._gone.pop(client, None) == node:
            self.queues.forget(client)  # it ended one session there, and began another
        if self.roster.table.home(client) == self._host.node_id != node:
            self.returns.elsewhere(client)

    def died(self, node: str) -> None:
        self.returns.down(node)
        self.wills.died(node)
        # What it published last may have reached some, and is passed on by nobody: a message takes one hop.
        holders = self.roster.holders(node)
        self._compare(self._host.neighbours() if self._host.node_id in holders else holders)

    def repaired(self) -> None:
        self._compare(self._host.neighbours())

    def _compare(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._host.retained.missed(node)

    def lives(self) -> None:
        self.wills.look()
        self.handover.look()

    def synced(self, node: str) -> None:
        """What clients got while this node was away, their node tells now: it was never acknowledged."""
        if len(self.queues):
            self._push_later(node)
        self.handover.look()

    @property
    def pushing(self) -> bool:
        return any(self._pushing.values())

    def _push_later(self, node: str, pending: list[int] | None = None) -> None:
        neighbour = self._host.neighbour_table.get(node)
        lanes = neighbour.lanes if neighbour is not None else ()
        before = [lane.outbox.last for lane in lanes] if pending is None else pending
        self._pushing[node] += 1
        self._host.call_later(PUSH_SECONDS, lambda: self._push(node, before))

    def _push(self, node: str, pending: list[int]) -> None:
        """A node that was out of reach told its clients: it may not have got, when they came to it, what is
        kept for them here. First it gets what was `pending` to it then as such, so that it knows what it
        has."""
        self._pushing[node] -= 1
        neighbour = self._host.neighbour_table.get(node)
        if neighbour is None or not neighbour.up:
            return  # with the next link
        boxes = zip((lane.outbox for lane in neighbour.lanes), pending, strict=False)
        # What was withdrawn unsent has left its number to what comes next: that may never come.
        if any(box.backlog_runs and box.oldest <= last for box, last in boxes):
            self._push_later(node, pending)
            return
        for client in [c for c in self.roster.table.clients(node) if self.queues.has_pending(c)]:
            if self.roster.table.home(client) == node:
                self._push_to(node, client)

    def _push_to(self, node: str, client: str) -> None:
        since, now = self.roster.table.since(client), self._host.now()
        elsewhere, there = self.queues.take(client, own=False), self.queues.take(client, own=True)
        known = {one.id for one in there}
        for own, part in groupby(in_order(elsewhere + there), lambda one: one.id in known):
            for payload in wire.encode_late(since, client, part, now, own):
                self._host.send_own(node, wire.LATE, payload)

    def up(self, neighbour: str) -> None:
        self.receipts.up(neighbour)
        self.returns.attempts.up(neighbour)
        self.wills.up(neighbour)

    def down(self, neighbour: str) -> None:
        self.returns.down(neighbour)
        self.handover.down(neighbour)

    def heard(self, neighbour: str, version: int, cut: Cut) -> None:
        self.returns.attempts.heard(neighbour, version, cut)

    def elsewhere(self, client: str) -> None:
        self.returns.elsewhere(client)

    def sought(self, neighbour: str) -> None:
        self.handover.sought(neighbour)

    def remembered(self) -> None:
        self.handover.look()

    def forgot(self, node: str) -> None:
        self.wills.forgot(node)

    def took(self, neighbour: str) -> None:
        self.returns.attempts.took(neighbour)
