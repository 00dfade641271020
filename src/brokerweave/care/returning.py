"""A client that lost its site comes to this one: it gets what it missed, once, before anything else.

Owns the clients that may be owed something from elsewhere, from when they come until nobody keeps anything
for them; `attempts` has what happens when one subscribes, `redelivery` what it gets. Invariants: what a
client left without, and what came while it was away, it is owed still when it goes on; then the stream stands
behind CONNACK until all in reach have answered once more, no longer than the barrier's limit. Must not know:
how it is judged what a client lacks, sockets, clocks.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from brokerweave.care import wire
from brokerweave.care.attempts import Attempts
from brokerweave.care.client_redelivery import ClientRedelivery
from brokerweave.care.cutover import Cutover, in_order
from brokerweave.care.held import Held
from brokerweave.care.ids import MessageId
from brokerweave.care.newcomer import Newcomer
from brokerweave.care.queues import UNDER_WAY_SECONDS
from brokerweave.mqtt.topics import shared_filter
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.pair import Pair
from brokerweave.session.record import SessionRecord

if TYPE_CHECKING:
    from brokerweave.care.client_care import ClientCare
    from brokerweave.care.host import CareHost

MOST_UNKNOWN_SESSIONS = 100_000
"""Clients whose sessions were not known here; beyond, the oldest go."""


class _Again:
    """All are asked once more what they keep for a client whose session goes on."""

    __slots__ = ("behind", "client", "held", "pair", "waiting")

    def __init__(self, client: str, pair: Pair, waiting: set[str], behind: HoldPoint) -> None:
        self.client = client
        self.pair = pair
        self.waiting = waiting
        self.behind = behind
        self.held: list[tuple[str, Held]] = []


class Returns:
    def __init__(self, host: CareHost, care: ClientCare) -> None:
        self._host = host
        self._care = care
        self._clients: dict[str, Newcomer] = {}
        self._agains: dict[int, _Again] = {}
        self._subscribing: set[str] = set()
        """Clients that may be owed something, and wait for SUBACK."""
        self._unknown_sessions: dict[str, None] = {}
        """Clients that came in sessions of which this node, just started, knew nothing; as long as somebody
        may keep something for them."""
        self.redelivery = ClientRedelivery(host, care, self._clients)
        self.attempts = Attempts(host, care, self._clients, self.redelivery)

    def expect(self, client: str, sure: bool = True) -> None:
        """The client was elsewhere, or its session here is lost; or it goes on, as `accepted` or `goes_on`
        says next, and what it is owed from before it came here it is owed still."""
        before = self._clients.get(client)
        entry = self._clients[client] = Newcomer(sure)
        if before is not None:
            entry.carry_on(before)
        self._host.call_later(self._care.window, lambda: self._forget(client, entry))

    def none(self, client: str) -> None:
        entry = self._clients.pop(client, None)
        self._subscribing.discard(client)
        if entry is not None:
            self._host.sessions.returned(client, None)
            self._close(entry)
            self.redelivery.forget(client, entry)

    def _forget(self, client: str, entry: Newcomer) -> None:
        if self._clients.get(client) is entry:
            self.none(client)

    def expects(self, client: str) -> bool:
        return client in self._clients

    def has_pending(self, client: str) -> bool:
        """Whether it left before it had all that it is owed, or heard that it is subscribed."""
        entry = self._clients.get(client)
        if entry is None or entry.last is None:
            return entry is not None
        return entry.interrupted or not entry.last.done or entry.last.has_pending

    @property
    def subscribes(self) -> bool:
        """Whether somebody who may be owed something waits for SUBACK."""
        return bool(self._subscribing)

    @property
    def _warming_up(self) -> bool:
        """Whether others may know of a dead node that was never heard of here; or it of one that lives."""
        unheard = not all(map(self._care.roster.knows, self._host.neighbours()))
        return unheard or self._care.warming_up

    # They come, and go

    def accepted(self, client: str) -> None:
        """A new session begins here."""
        self._unknown_sessions.pop(client, None)
        if self._warming_up and client not in self._clients:
            self.expect(client, sure=False)
        entry = self._clients.get(client)
        if entry is not None:
            entry.begun = self._care.roster.table.since(client)
            entry.last = None
            entry.interrupted = entry.older = False
            entry.own_before = inf
            entry.given.clear()
            entry.unwanted.clear()
            entry.early.clear()
            self._close(entry)

    def goes_on(self, client: str, pair: Pair) -> None:
        """The broker has its session, and all that came for it; unless it came here in this session, and
        somebody who kept something has yet to be heard. One without a filter is as good as
        new; so is one that this node never saw, of a client that was elsewhere (`elsewhere` may tell)."""
        record, entry = self._host.sessions.records.get(client), self._clients.get(client)
        elsewhere = entry is not None and entry.sure and entry.last is None
        if record is not None and not record.filters and (elsewhere or not record.unknown):
            self.accepted(client)
            if client in self._clients:
                self._clients[client].older = True
            return
        if entry is None:
            if record is not None and record.unknown and self._warming_up:
                self._note_unknown_session(client)
            return
        self.redelivery.suppress(client)
        if entry.last is None:
            self.none(client)
        elif entry.interrupted:
            entry.interrupted = False
            self._ask_again(client, pair)

    def _note_unknown_session(self, client: str) -> None:
        self._unknown_sessions[client] = None
        if len(self._unknown_sessions) > MOST_UNKNOWN_SESSIONS:
            del self._unknown_sessions[next(iter(self._unknown_sessions))]
            self._host.count("unknown_sessions_forgotten")  # it may miss what is kept for it elsewhere
        self._host.call_later(self._care.window, partial(self._unknown_sessions.pop, client, None))

    def subscribing(self, pair: Pair) -> None:
        """SUBSCRIBE is about to go to the broker."""
        client = pair.client.client_id
        entry, record = self._clients.get(client), self._host.sessions.records.get(client)
        if entry is not None:
            before = [publish.packet_id for publish in pair.unanswered]
            entry.asked.append((self._care.log.open(), before))
            self._subscribing.add(client)
            if record is not None and record.returned is None:
                self._host.sessions.returned(client, {})  # before its filters are written down

    def begin(
        self, pair: Pair, filters: list[tuple[str, int]], hold_point: HoldPoint, timeout: float
    ) -> bool:
        """SUBACK came. False: it stands until all have heard."""
        self._subscribing.discard(pair.client.client_id)
        return self.attempts.begin(pair, filters, hold_point, timeout)

    def ended(self, pair: Pair) -> None:
        record = self._host.sessions.records.get(pair.client.client_id)
        if record is None or record.owner in (None, pair):  # else another came, and `interrupt` was called
            self.interrupt(pair.client.client_id)

    def interrupt(self, client: str) -> None:
        """A client's connection ended, or it has another, of which nothing was said yet."""
        entry = self._clients.get(client)
        self._subscribing.discard(client)
        for number in [number for number, again in self._agains.items() if again.client == client]:
            del self._agains[number]
            if entry is not None:
                entry.interrupted = True
        self.attempts.interrupt(client)
        if entry is not None:
            if entry.last is not None and entry.last.has_pending:
                entry.interrupted = True
                entry.last.interrupted()
            for tick, _ in entry.asked:
                self._care.log.close(tick)
            entry.asked.clear()

    def taken_over(self, client: str) -> None:
        """It is elsewhere, and what was published since went there: should it come back, it is as a new one,
        whether its broker has its session or not."""
        self.interrupt(client)
        self.none(client)

    def _close(self, entry: Newcomer) -> None:
        for tick in (*entry.open, *(tick for tick, _ in entry.asked)):
            self._care.log.close(tick)
        entry.open.clear()
        entry.asked.clear()

    # Their sessions are older than what is known of them

    def recall(self, record: SessionRecord) -> None:
        """A session from before a restart, whose client had come here in it. What it was judged to lack is
        not known any more: who still keeps something for it from before is asked when it goes on. What it
        had by then it does not get again, though the broker may be given that only now. What the broker was
        given here for the sake of others, before the restart, it may get twice."""
        entry = self._expect_late(record)
        if entry.last is not None:
            entry.last.had(MessageId(*name) for name in record.had)
        entry.interrupted = True
        # What is kept may be older than it seems; without a SUBACK the session lacks all of it.
        entry.own_before = inf if record.granted is None else record.granted + UNDER_WAY_SECONDS

    def elsewhere(self, client: str) -> None:
        """A client here was at another node before, as is heard now: what is kept for it there comes late if
        its session was not known here, and was not looked at when it subscribed."""
        record = self._host.sessions.records.get(client)
        if record is not None and client in self._unknown_sessions:
            del self._unknown_sessions[client]
            self._expect_late(record, older=True)

    def _expect_late(self, record: SessionRecord, older: bool = False) -> Newcomer:
        """A client that has subscribed here, when nobody was asked: of what is kept for it from elsewhere.
        `older`: its session is, than what this node knows of it."""
        self.expect(record.client_id)
        entry, log = self._clients[record.client_id], self._care.log
        own = {f: qos for f, qos in record.filters.items() if shared_filter(f)[0] is None}
        subscribed = log.open()
        entry.open.append(subscribed)
        entry.last = Cutover(subscribed, log.tick(), own, log, me=self._host.node_id)
        entry.last.older = older
        for node, (epoch, sequences) in (record.returned or {}).items():
            entry.last.reborn(node, epoch, sequences)
        here = self._host.cut(self._host.node_id)
        entry.last.reborn(self._host.node_id, here.epoch, here.sequences)
        entry.last.ready(self._host.now())
        entry.silent = set(self._host.neighbours())
        entry.own_before = -inf
        return entry

    # All are asked again

    def _ask_again(self, client: str, pair: Pair) -> None:
        """It left before it had all that it was owed: who keeps something says so once more. The stream
        stands behind CONNACK until all have answered."""
        host, roster = self._host, self._care.roster
        roster.flush()
        number, nodes = self.attempts.new_round(), roster.reachable()
        again = self._agains[number] = _Again(client, pair, set(nodes), pair.hold_behind())
        own_before = self._clients[client].own_before
        kept = self._care.queues.take(client, own_before=own_before)
        again.held = [(host.node_id, held) for held in kept]
        self.attempts.ask(nodes, number, client, own_before)
        limit = host.settings.barrier_timeout or 0.0
        host.call_later(limit if nodes else 0.0, lambda: self._finish_again(number))

    def _answered_again(self, number: int, node: str) -> None:
        again = self._agains[number]
        again.waiting.discard(node)
        if not again.waiting:
            self._finish_again(number)

    def _finish_again(self, number: int) -> None:
        again = self._agains.pop(number, None)
        if again is None:
            return
        nodes = {held.id: node for node, held in again.held}
        entry = self._clients.get(again.client)
        if entry is not None:
            entry.sources.update(nodes.values())
            if entry.last is not None:
                entry.last.already(content for _, content in again.behind.behind if content is not None)
        ordered = in_order({held.id: held for _, held in again.held}.values())
        self.late(again.client, ordered, self._host.node_id, hold_point=again.behind)
        again.pair.end_hold(again.behind)

    # What others keep

    def answered(self, neighbour: str, payload: bytes) -> None:
        answer = wire.decode_answer(payload, self._host.now())
        entry = self._clients.get(answer.client)
        if entry is not None and answer.last:
            entry.silent.discard(neighbour)
        if answer.round in self._agains:
            self._agains[answer.round].held += [(neighbour, held) for held in answer.held]
            if answer.last:
                self._answered_again(answer.round, neighbour)
        elif not self.attempts.answered(neighbour, answer) and answer.held:
            self.late(answer.client, answer.held, neighbour)

    def down(self, neighbour: str) -> None:
        """Nothing is heard of a node any more, nor does it hear anything."""
        for number in [number for number, again in self._agains.items() if neighbour in again.waiting]:
            self._answered_again(number, neighbour)
        self.attempts.down(neighbour)

    def late_arrived(self, neighbour: str, payload: bytes) -> None:
        late = wire.decode_late(payload, self._host.now())
        if late.client not in self._clients and not late.own:
            self.elsewhere(late.client)  # where this was kept for it: nobody else may ever say so
        entry = self._clients.get(late.client)
        # Who sent it for an earlier session is asked for what it keeps when this one subscribes.
        if entry is not None and late.since >= entry.begun:
            self.late(late.client, late.held, neighbour, late.own)

    def late(
        self, client: str, held: list[Held], node: str, own: bool = False, hold_point: HoldPoint | None = None
    ) -> None:
        """Publications for a client that came here, from one who was to keep them elsewhere; `own`: here, in
        an earlier session."""
        entry = self._clients.get(client)
        if entry is None or entry.last is None:
            return  # it asks for its queue when it subscribes
        if own:
            held = [one for one in held if one.born < entry.own_before]  # the broker has the rest
        if not held:
            return
        # An origin that had no link to here yet has it kept by who holds for this node, too.
        entry.sources.update((node, *self._care.receipts.holders()))
        if not self.attempts.late(client, held):
            self.redelivery.late(client, held, node, own, hold_point)
