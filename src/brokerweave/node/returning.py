"""A client that lost its site comes to this one: it gets what it missed, once, before anything else.

Owns the clients that may be owed something from elsewhere, and for each SUBSCRIBE of theirs one *attempt*:
all nodes are asked for the client's queue, and say where they stood when they learned that it is here.
Invariants: SUBACK stands until all in reach have heard, the stream behind it until it is judged what the
client lacks, both no longer than the barrier's limit; what the client has, those who kept it are told. Must
not know: how it is judged (`failover.cutover` does), sockets, clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from brokerweave.cooperation.api import Cut, Timer
from brokerweave.failover import wire
from brokerweave.failover.cutover import Cutover, in_order
from brokerweave.failover.held import Held
from brokerweave.failover.ids import MessageId
from brokerweave.failover.queues import UNDER_WAY_SECONDS
from brokerweave.mqtt.topics import matches, shared_filter
from brokerweave.session.pair import Pair
from brokerweave.session.record import SessionRecord
from brokerweave.session.standing import Stand

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore
    from brokerweave.node.failover import Failover

POLL_SECONDS = 0.004
"""Between two looks at what the broker has yet to acknowledge, or to deliver."""
MOST_GIVEN = 100_000
"""Publications that clients got from here and the broker may yet be given; beyond, the oldest go."""
MOST_EARLY = 10_000
"""Publications that a client got before it subscribed; what is beyond, it may get twice."""
ROOM = 10
"""Deliveries that every broker makes, without waiting for the first to be acknowledged."""
SUSPECT_SECONDS = 2.0
"""How long a delivery that may come, and may not, is taken off the stream: an equal one would be, too."""
UNCLEAR_SECONDS = 0.05
"""How long to wait for the broker to deliver what it may or may not, once all else is known."""


class _Client:
    """One that may be owed something."""

    __slots__ = (
        "asked",
        "begun",
        "early",
        "given",
        "interrupted",
        "last",
        "older",
        "open",
        "own_before",
        "silent",
        "sources",
        "sure",
        "unwanted",
    )

    def __init__(self, sure: bool) -> None:
        self.sure = sure
        """It is known to have been elsewhere; else only that this node may not know it."""
        self.asked: list[tuple[int, list[int]]] = []
        """Of SUBSCRIBEs that the broker has not answered yet: their ticks, and what the client had published
        before and the broker had not answered either."""
        self.begun = 0
        """Since when it has this session here, as a hybrid time; 0 if that is not known."""
        self.early: list[bytes] = []
        """What it got in this session before it subscribed, as far as the node knows."""
        self.older = False
        """Its session is older than what the node knows of it."""
        self.open: list[int] = []
        """Of SUBSCRIBEs that it was judged for: what the broker got since is remembered as long."""
        self.last: Cutover | None = None
        self.own_before = inf
        """Where it had subscribed before this node knew of it, or was restarted: what was kept for it here,
        and published later than this, its broker has."""
        self.interrupted = False
        """Its connection ended before it had all that it is owed."""
        self.sources: set[str] = set()
        """Nodes that kept something for it."""
        self.silent: set[str] = set()
        """Nodes that have not said whether they keep something."""
        self.given: dict[MessageId, tuple[str, bytes]] = {}
        """What it got from here, and the broker here was not given yet: topics and hashes."""
        self.unwanted: dict[bytes, int] = {}
        """What of it the broker was given since, and is about to deliver."""

    def carry_on(self, before: _Client) -> None:
        """It was expected already."""
        for name in set(self.__slots__) - {"sure"}:
            setattr(self, name, getattr(before, name))

    @property
    def keepers(self) -> set[str]:
        """Who is to hear what it got of what it was owed from before."""
        return self.sources | self.silent


class _Attempt:
    __slots__ = (
        "_awaited",
        "answered",
        "arriving",
        "asked",
        "behind",
        "client",
        "cutover",
        "pair",
        "seen",
        "stand",
        "timer",
        "unanswered",
        "unclear",
        "unheard",
        "version",
    )

    def __init__(self, client: str, pair: Pair, cutover: Cutover, stand: Stand, behind: Stand) -> None:
        self.client = client
        self.pair = pair
        self.cutover = cutover
        self.stand = stand
        self.behind = behind
        self.version = 0
        self.unheard: set[str] = set()
        self.arriving: dict[str, tuple[int, ...]] = {}
        self.seen = 0
        self.unanswered: list[tuple[Pair, int]] = []
        self._awaited: frozenset[tuple[str, int]] = frozenset()
        self.unclear = False
        """All is known but what the broker is about to deliver."""
        self.asked = False
        """It was asked for a sign of life behind that."""
        self.answered = False
        self.timer: Timer | None = None

    def wait_for(self, unanswered: list[tuple[Pair, int]]) -> None:
        """What clients here published, and the broker has yet to answer."""
        self.unanswered = unanswered
        self._awaited = frozenset((pair.client.client_id, one) for pair, one in unanswered)

    def awaits(self, publisher: str, packet_id: int) -> bool:
        """Asked of each publication, while hundreds may come back at once."""
        return (publisher, packet_id) in self._awaited

    @property
    def sure(self) -> bool:
        """Whether the broker has delivered by now what it was to: it gave a sign of life, and had room for
        more than what stands."""
        return self.answered and sum(packet_id > 0 for packet_id, _ in self.behind.behind) < ROOM


class _Again:
    """All are asked once more what they keep for a client whose session goes on."""

    __slots__ = ("behind", "client", "held", "pair", "waiting")

    def __init__(self, client: str, pair: Pair, waiting: set[str], behind: Stand) -> None:
        self.client = client
        self.pair = pair
        self.waiting = waiting
        self.behind = behind
        self.held: list[tuple[str, Held]] = []


class Returns:
    def __init__(self, core: NodeCore, failover: Failover) -> None:
        self._core = core
        self._failover = failover
        self._clients: dict[str, _Client] = {}
        self._attempts: dict[int, _Attempt] = {}
        self._agains: dict[int, _Again] = {}
        self._round = 0
        self._epochs: dict[str, int] = {}
        """Of neighbours that were heard of on the links that are up."""
        self._cuts: dict[str, Cut] = {}
        """The last one of each neighbour whose link is up: what lies behind it, it knew where to send. Who is
        out of reach does not hear who comes, be it for the second time."""
        self._unheard: dict[str, dict[str, int]] = {}
        """Neighbours that were not waited for any longer: by client, which version tells them of it."""
        self._given: dict[MessageId, set[str]] = {}
        """Clients that got something from here which the broker was not given yet."""
        self._subscribing: set[str] = set()
        """Clients that may be owed something, and wait for SUBACK."""
        self._strangers: set[str] = set()
        """Clients that came in sessions of which this node, just started, knew nothing; as long as somebody
        may keep something for them."""
        failover.log.writing = self.writing

    # Who may be owed something

    def expect(self, client: str, sure: bool = True) -> None:
        """The client was elsewhere, or its session here is lost; or it goes on, as `accepted` or `goes_on`
        says next, and what it is owed from before it came here it is owed still."""
        before = self._clients.get(client)
        entry = self._clients[client] = _Client(sure)
        if before is not None:
            entry.carry_on(before)
        self._core.call_later(self._failover.window, lambda: self._forget(client, entry))

    def none(self, client: str) -> None:
        entry = self._clients.pop(client, None)
        self._subscribing.discard(client)
        if entry is not None:
            self._core.sessions.returned(client, None)
            self._close(entry)
            for identifier in entry.given:
                self._given.get(identifier, set()).discard(client)
                if not self._given.get(identifier, True):
                    del self._given[identifier]

    def taken_over(self, client: str) -> None:
        """It is elsewhere, and what was published since went there: should it come back, it is as a new one,
        whether its broker has its session or not."""
        self.interrupt(client)
        self.none(client)

    def goes_on(self, client: str, pair: Pair) -> None:
        """The broker has its session, and all that came for it; unless it came here in this session, and
        somebody who kept something has yet to be heard. One without a filter is as good as
        new; so is one that this node never saw, of a client that was elsewhere (`elsewhere` may tell)."""
        record, entry = self._core.interest.records.get(client), self._clients.get(client)
        elsewhere = entry is not None and entry.sure and entry.last is None
        if record is not None and not record.filters and (elsewhere or not record.unknown):
            self.accepted(client)
            if client in self._clients:
                self._clients[client].older = True
            return
        if entry is None:
            if record is not None and record.unknown and self._young:
                self._strangers.add(client)
                self._core.call_later(self._failover.window, partial(self._strangers.discard, client))
            return
        self._suppress(client)
        if entry.last is None:
            self.none(client)
        elif entry.interrupted:
            entry.interrupted = False
            self._ask_again(client, pair)

    def recall(self, record: SessionRecord) -> None:
        """A session from before a restart, whose client had come here in it. What it was judged to lack is
        not known any more: who still keeps something for it from before is asked when it goes on. What the
        broker was given here for the sake of others, before the restart, it may get twice."""
        entry = self._expect_late(record)
        entry.interrupted = True
        # What is kept may be older than it seems; without a SUBACK the session lacks all of it.
        entry.own_before = inf if record.granted is None else record.granted + UNDER_WAY_SECONDS

    def elsewhere(self, client: str) -> None:
        """A client here was at another node before, as is heard now: what is kept for it there comes late if
        its session was not known here, and was not looked at when it subscribed."""
        record = self._core.interest.records.get(client)
        if record is not None and client in self._strangers:
            self._strangers.discard(client)
            self._expect_late(record, older=True)

    def _expect_late(self, record: SessionRecord, older: bool = False) -> _Client:
        """A client that has subscribed here, when nobody was asked: of what is kept for it from elsewhere.
        `older`: its session is, than what this node knows of it."""
        self.expect(record.client_id)
        entry, log = self._clients[record.client_id], self._failover.log
        own = {f: qos for f, qos in record.filters.items() if shared_filter(f)[0] is None}
        subscribed = log.open()
        entry.open.append(subscribed)
        entry.last = Cutover(subscribed, log.tick(), own, log, me=self._core.node_id)
        entry.last.older = older
        for node, (epoch, sequences) in (record.returned or {}).items():
            entry.last.reborn(node, epoch, sequences)
        here = self._core.cut(self._core.node_id)
        entry.last.reborn(self._core.node_id, here.epoch, here.sequences)
        entry.last.ready(self._core.now())
        entry.silent = set(self._core.neighbours())
        entry.own_before = -inf
        return entry

    def _ask_again(self, client: str, pair: Pair) -> None:
        """It left before it had all that it was owed: who keeps something says so once more. The stream
        stands behind CONNACK until all have answered."""
        core, mesh = self._core, self._failover.mesh
        mesh.flush()
        self._round += 1
        number, nodes = self._round, mesh.reachable()
        again = self._agains[number] = _Again(client, pair, set(nodes), pair.stand_behind())
        own_before = self._clients[client].own_before
        kept = self._failover.queues.take(client, own_before=own_before)
        again.held = [(core.node_id, held) for held in kept]
        ask = self._ask(number, client, own_before)
        for node in nodes:
            core.send_own(node, wire.ASK, ask)
        limit = core.settings.barrier_timeout or 0.0
        core.call_later(limit if nodes else 0.0, lambda: self._finish_again(number))

    def _ask(self, number: int, client: str, own_before: float) -> bytes:
        age = max(self._core.now() - own_before, 0.0)
        return wire.encode_ask(wire.Ask(number, self._failover.mesh.table.since(client), client, age))

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
        for node in dict.fromkeys(nodes.values()):
            self._note_source(again.client, node)
        entry = self._clients.get(again.client)
        if entry is not None and entry.last is not None:
            entry.last.already(content for _, content in again.behind.behind if content is not None)
        ordered = in_order({held.id: held for _, held in again.held}.values())
        self.late(again.client, ordered, self._core.node_id, stand=again.behind)
        again.pair.go_on(again.behind)

    def _note_source(self, client: str, node: str) -> None:
        if client in self._clients:
            self._clients[client].sources.add(node)

    def _close(self, entry: _Client) -> None:
        for tick in (*entry.open, *(tick for tick, _ in entry.asked)):
            self._failover.log.close(tick)
        entry.open.clear()
        entry.asked.clear()

    def owes(self, client: str) -> bool:
        """Whether it left before it had all that it is owed, or heard that it is subscribed."""
        entry = self._clients.get(client)
        if entry is None or entry.last is None:
            return entry is not None
        return entry.interrupted or not entry.last.done or entry.last.owes

    def expects(self, client: str) -> bool:
        return client in self._clients

    def _forget(self, client: str, entry: _Client) -> None:
        if self._clients.get(client) is entry:
            self.none(client)

    @property
    def _young(self) -> bool:
        """Whether others may know of a dead node that was never heard of here; or it of one that lives."""
        unheard = not all(map(self._failover.mesh.knows, self._core.neighbours()))
        return unheard or self._failover.young

    def accepted(self, client: str) -> None:
        """A new session begins here."""
        self._strangers.discard(client)
        if self._young and client not in self._clients:
            self.expect(client, sure=False)
        entry = self._clients.get(client)
        if entry is not None:
            entry.begun = self._failover.mesh.table.since(client)
            entry.last = None
            entry.interrupted = entry.older = False
            entry.own_before = inf
            entry.given.clear()
            entry.unwanted.clear()
            entry.early.clear()
            self._close(entry)

    def subscribing(self, pair: Pair) -> None:
        """SUBSCRIBE is about to go to the broker."""
        client = pair.client.client_id
        entry, record = self._clients.get(client), self._core.interest.records.get(client)
        if entry is not None:
            before = [publish.packet_id for publish in pair.unanswered]
            entry.asked.append((self._failover.log.open(), before))
            self._subscribing.add(client)
            if record is not None and record.returned is None:
                self._core.sessions.returned(client, {})  # before its filters are written down

    def ended(self, pair: Pair) -> None:
        record = self._core.interest.records.get(pair.client.client_id)
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
        for number in [number for number, attempt in self._attempts.items() if attempt.client == client]:
            if entry is not None:
                entry.interrupted = True
            self._finish(number)
        if entry is not None:
            if entry.last is not None and entry.last.owes:
                entry.interrupted = True
                entry.last.interrupted()
            for tick, _ in entry.asked:
                self._failover.log.close(tick)
            entry.asked.clear()

    # An attempt

    def begin(self, pair: Pair, filters: list[tuple[str, int]], stand: Stand, timeout: float) -> bool:
        """SUBACK came. False: it stands until all have heard."""
        core, mesh, log = self._core, self._failover.mesh, self._failover.log
        client = pair.client.client_id
        entry = self._clients[client]
        wanted = {f: qos for f, qos in filters if shared_filter(f)[0] is None}
        nodes = mesh.reachable()
        entry.silent = set(core.neighbours())
        self._subscribing.discard(client)
        core.sessions.returned(client, {}, core.now())
        subscribed, before_it = entry.asked.pop(0) if entry.asked else (log.open(), None)
        entry.open.append(subscribed)
        me, before = core.node_id, entry.last
        cutover = Cutover(subscribed, log.tick(), wanted, log, me=me, nodes=nodes, before=before)
        entry.last = cutover
        here = core.cut(me)
        cutover.reborn(me, here.epoch, here.sequences)
        if before is None:
            cutover.older = entry.older
            cutover.already([*entry.early, *pair.undelivered])
            cutover.received(entry.early)
        mesh.flush()
        attempt = _Attempt(client, pair, cutover, stand, pair.stand_behind())
        attempt.version, attempt.unheard = mesh.version, set(nodes)
        self._round += 1
        self._attempts[self._round] = attempt
        kept = self._failover.queues.take(client, own_before=entry.own_before)
        self._offer(attempt, core.node_id, kept)
        ask = self._ask(self._round, client, entry.own_before)
        for node in nodes:
            core.send_own(node, wire.ASK, ask)
        core.counters.add("queues_asked")
        number = self._round
        attempt.wait_for(self._unanswered(pair, before_it, wanted))
        if attempt.unanswered:
            cutover.arriving(core.node_id)
            core.call_later(POLL_SECONDS, lambda: self._poll(number))
        attempt.timer = core.call_later(timeout, lambda: self._time_is_up(number))
        self._check(number)
        return not attempt.unheard

    @property
    def subscribes(self) -> bool:
        """Whether somebody who may be owed something waits for SUBACK."""
        return bool(self._subscribing)

    @property
    def under_way(self) -> bool:
        return bool(self._attempts)

    def published(self, held: Held, publisher: str, packet_id: int) -> None:
        """The broker acknowledged what a client here published, or nobody will hear whether it did. Where it
        got that before SUBACK came, it may have been before it knew the subscription, and be routed after
        the node did."""
        for attempt in self._attempts.values():
            if attempt.awaits(publisher, packet_id):
                attempt.cutover.published(held, publisher)

    def had_before(self, held: Held) -> None:
        """The broker acknowledged what a client sends again. It may have had it before this node was started,
        and does not deliver it to who subscribed since: what it delivers now is here when it has given a sign
        of life."""
        for client in self._failover.mesh.table.clients_wanting(self._core.node_id, held.publish.topic):
            entry, record = self._clients.get(client), self._core.interest.records.get(client)
            if entry is None or entry.last is None or entry.own_before < inf:
                continue  # where it goes on the broker has it in its session
            if record is None or not isinstance(record.owner, Pair):
                continue
            if entry.last.is_judged(held.publish.topic):
                look = partial(self._look_if_lacking, client, record.owner, held)
                record.owner.ask_broker(partial(self._core.call_later, 0, look))
            else:
                entry.last.had_before(held)

    def _look_if_lacking(self, client: str, pair: Pair, held: Held) -> None:
        entry, record = self._clients.get(client), self._core.interest.records.get(client)
        if entry is None or entry.last is None or record is None or record.owner is not pair:
            return
        if held.hash in pair.undelivered | pair.standing:
            return
        entry.last.had_before(held)
        given = entry.last.late(held, self._core.now())
        if given:
            self._suspect(client, entry, (held.hash,))
            self._give(pair, client, entry.last, given)

    def up(self, neighbour: str) -> None:
        self._epochs.pop(neighbour, None)

    def heard(self, neighbour: str, version: int, cut: Cut) -> None:
        self._cuts[neighbour] = cut
        if self._epochs.get(neighbour) != cut.epoch:
            self._epochs[neighbour] = cut.epoch
            for entry in self._clients.values():
                if entry.last is not None and entry.last.done:
                    entry.last.reborn(neighbour, cut.epoch, cut.sequences)
        unheard = self._unheard.get(neighbour, {})
        for client in [client for client, told in unheard.items() if version >= told]:
            del unheard[client]
            last = self._clients[client].last if client in self._clients else None
            if last is not None and last.done:
                last.reborn(neighbour, cut.epoch, cut.sequences)
        for number, attempt in list(self._attempts.items()):
            if neighbour in attempt.unheard and version >= attempt.version:
                here = self._is_here(neighbour, cut.sent)
                attempt.cutover.add_cut(neighbour, cut.epoch, cut.sequences, arrived=here)
                if not here:
                    attempt.arriving[neighbour] = cut.sent
                attempt.unheard.discard(neighbour)
                self._check(number)

    def took(self, neighbour: str) -> None:
        """A neighbour's lane brought something, and it is taken."""
        for number, attempt in list(self._attempts.items()):
            sent = attempt.arriving.get(neighbour)
            if sent is not None and self._is_here(neighbour, sent):
                del attempt.arriving[neighbour]
                attempt.cutover.arrived(neighbour)
                self._check(number)

    def answered(self, neighbour: str, payload: bytes) -> None:
        answer = wire.decode_answer(payload, self._core.now())
        entry = self._clients.get(answer.client)
        if entry is not None and answer.last:
            entry.silent.discard(neighbour)
        if answer.round in self._agains:
            self._agains[answer.round].held += [(neighbour, held) for held in answer.held]
            if answer.last:
                self._answered_again(answer.round, neighbour)
            return
        attempt = self._attempts.get(answer.round)
        if attempt is None or attempt.client != answer.client:
            if answer.held:
                self.late(answer.client, answer.held, neighbour)
            return
        self._offer(attempt, neighbour, answer.held)
        if answer.last:
            attempt.cutover.answered(neighbour)
            self._check(answer.round)

    def down(self, neighbour: str) -> None:
        """Nothing is heard of a node any more, nor does it hear anything."""
        self._cuts.pop(neighbour, None)
        self._unheard.pop(neighbour, None)
        for number in [number for number, again in self._agains.items() if neighbour in again.waiting]:
            self._answered_again(number, neighbour)
        for number, attempt in list(self._attempts.items()):
            attempt.cutover.dead(neighbour)
            attempt.unheard.discard(neighbour)
            attempt.arriving.pop(neighbour, None)
            self._check(number)

    def _unanswered(
        self, own: Pair, before: list[int] | None, filters: Iterable[str]
    ) -> list[tuple[Pair, int]]:
        """What clients here published to these filters and the broker has yet to acknowledge; of the
        subscriber itself, what it had published `before` its SUBSCRIBE: the broker got the rest after that.
        """
        pairs = [record.owner for record in self._core.interest.records.values()]
        waiting = [(pair, each) for pair in pairs if isinstance(pair, Pair) for each in pair.unanswered]
        wanted = {
            topic: any(matches(f, topic) for f in filters) for topic in {one.topic for _, one in waiting}
        }
        return [
            (pair, one.packet_id)
            for pair, one in waiting
            if wanted[one.topic] and (pair is not own or before is None or one.packet_id in before)
        ]

    def _poll(self, number: int) -> None:
        attempt = self._attempts.get(number)
        if attempt is None:
            return
        left = [(pair, one) for pair, one in attempt.unanswered if pair.awaits(one)]
        if len(left) < len(attempt.unanswered):
            attempt.wait_for(left)
        if attempt.unanswered:
            self._core.call_later(POLL_SECONDS, lambda: self._poll(number))
        else:
            attempt.cutover.arrived(self._core.node_id)
            self._check(number)

    def _is_here(self, neighbour: str, sent: tuple[int, ...]) -> bool:
        if neighbour not in self._core.neighbour_table:
            return True
        lanes = self._core.neighbour_table[neighbour].lanes
        return all(lane.taken >= last for lane, last in zip(lanes, sent, strict=False))

    def _offer(self, attempt: _Attempt, node: str, given: Iterable[Held]) -> None:
        offered = list(given)
        attempt.cutover.offer(offered)
        entry = self._clients.get(attempt.client)
        if offered and entry is not None:
            entry.sources.add(node)
            had = [one.id for one in offered if attempt.cutover.has(one)]
            if had:
                self._failover.got(attempt.client, had, {node})

    def _check(self, number: int) -> None:
        attempt = self._attempts.get(number)
        if attempt is None:
            return
        if not attempt.unheard:
            attempt.pair.go_on(attempt.stand)
        self._look_at_broker(attempt)
        if attempt.cutover.complete:
            self._finish(number)
        elif attempt.cutover.heard and not attempt.unclear:
            attempt.unclear = True
            self._core.call_later(UNCLEAR_SECONDS, lambda: self._doubt(number))
            self._core.call_later(POLL_SECONDS, lambda: self._look_again(number))

    def _doubt(self, number: int) -> None:
        """The broker was given time to deliver what it may or may not; but it may not have read it yet, or
        its deliveries be on their way. What it delivers is before its sign of life."""
        attempt = self._attempts.get(number)
        if attempt is None:
            return
        if attempt.pair.wants_broker_pause:
            self._finish(number)  # no more of it is read before the stream goes on
            return
        if not (attempt.asked or attempt.cutover.unacknowledged):
            attempt.asked = True
            attempt.pair.ask_broker(lambda: self._finish_next(number))
        self._core.call_later(UNCLEAR_SECONDS, lambda: self._doubt(number))

    def _finish_next(self, number: int) -> None:
        """Not while the pair acts on what the broker said."""
        if number in self._attempts:
            self._attempts[number].answered = True
        self._core.call_later(0, lambda: self._finish(number))

    def _look_again(self, number: int) -> None:
        attempt = self._attempts.get(number)
        if attempt is None:
            return
        if self._look_at_broker(attempt) and attempt.cutover.complete:
            self._finish(number)
        else:
            self._core.call_later(POLL_SECONDS, lambda: self._look_again(number))

    def _look_at_broker(self, attempt: _Attempt) -> bool:
        """What the broker delivered since SUBACK stands behind it. Whether there was more of it."""
        deliveries, before = attempt.behind.behind, attempt.seen
        for _, content in deliveries[attempt.seen :]:
            if content is not None:
                attempt.cutover.live(content)
        attempt.seen = len(deliveries)
        return attempt.seen > before

    def _time_is_up(self, number: int) -> None:
        if number in self._attempts:
            self._core.counters.add("barrier_timeouts")
            self._finish(number)

    def _finish(self, number: int) -> None:
        attempt = self._attempts.pop(number, None)
        if attempt is None:
            return
        if attempt.timer is not None:
            attempt.timer.cancel()
        entry = self._clients.get(attempt.client)
        if entry is not None:
            self._core.sessions.returned(attempt.client, attempt.cutover.cuts)
            for node in attempt.unheard:
                self._unheard.setdefault(node, {})[attempt.client] = attempt.version
        self._look_at_broker(attempt)
        given = attempt.cutover.ready(self._core.now())
        self._core.counters.add("redelivery_doubted", attempt.cutover.doubted)
        interrupted = entry is not None and entry.interrupted
        if entry is not None:
            self._failover.routed(attempt.client, attempt.cutover.later, entry.keepers)
            self._failover.got(attempt.client, attempt.cutover.known, entry.keepers)
        attempt.pair.go_on(attempt.stand)
        if given and not interrupted:
            if attempt.cutover.doubtful and entry is not None and not attempt.sure:
                self._suspect(attempt.client, entry, tuple(attempt.cutover.doubtful))
            self._give(attempt.pair, attempt.client, attempt.cutover, given, attempt.behind)
        else:
            attempt.pair.go_on(attempt.behind)
        for later in [later for later, one in self._attempts.items() if one.client == attempt.client]:
            self._check(later)

    def _suspect(self, client: str, entry: _Client, contents: tuple[bytes, ...]) -> None:
        """The client gets these from here, and the broker may be about to deliver them, too."""
        for one in contents:
            entry.unwanted[one] = entry.unwanted.get(one, 0) + 1
        self._suppress(client)

        def believe() -> None:
            for one in contents:
                left = entry.unwanted.pop(one, 0)
                if left > 1:
                    entry.unwanted[one] = left - 1

        self._core.call_later(SUSPECT_SECONDS, believe)

    def writing(self, identifier: MessageId) -> None:
        """The broker is about to get a publication: those who have it from here do not want it again."""
        told = set()
        for client in self._given.pop(identifier, ()):
            entry = self._clients.get(client)
            known = entry.given.pop(identifier, None) if entry is not None else None
            if known is not None:
                self._not_again(client, *known)
                told.add(client)
        cut = self._cuts.get(identifier.origin)
        last = (cut.epoch, cut.sequences[identifier.lane]) if cut is not None else None
        overtaken = last is None or (identifier.epoch, identifier.sequence) <= last
        if overtaken or self._unheard.get(identifier.origin):
            self._overtaken(identifier, told)

    def _overtaken(self, identifier: MessageId, told: set[str]) -> None:
        """The broker gets something whose origin may not have known yet who is here. Who was elsewhere may
        have it from there; of those who have it from here, their pairs were `told`."""
        if not self._clients:
            return
        known = self._failover.log.find(identifier)
        publish = known.publish if known is not None else None
        if known is None or publish is None or known.hash is None:
            return
        for client in self._failover.mesh.table.clients_wanting(self._core.node_id, publish.topic):
            entry = self._clients.get(client)
            if entry is None or entry.last is None or client in told:
                continue
            if self._failover.queues.had(client, identifier):
                self._not_again(client, publish.topic, known.hash)
            else:
                entry.last.overtaken(identifier, publish.topic, known.hash)

    def _not_again(self, client: str, topic: str, content: bytes) -> None:
        """The broker is about to deliver this to a client that has it, if it was granted the topic by now."""
        entry, record = self._clients.get(client), self._core.interest.records.get(client)
        if entry is None or record is None:
            return
        if any(matches(each, topic) for each in record.filters):
            entry.unwanted[content] = entry.unwanted.get(content, 0) + 1
            self._suppress(client)

    def _suppress(self, client: str) -> None:
        entry, record = self._clients.get(client), self._core.interest.records.get(client)
        if entry is not None and record is not None and isinstance(record.owner, Pair):
            record.owner.suppress(entry.unwanted)

    def _note_given(self, client: str, given: list[Held]) -> None:
        entry, log = self._clients.get(client), self._failover.log
        for held in given if entry is not None else ():
            known = log.find(held.id)
            if entry is not None and (known is None or known.sent is None):
                entry.given[held.id] = (held.publish.topic, held.hash)
                self._given.setdefault(held.id, set()).add(client)
        while len(self._given) > MOST_GIVEN:
            oldest = next(iter(self._given))
            for each in self._given.pop(oldest) & self._clients.keys():
                self._clients[each].given.pop(oldest, None)
            self._core.counters.add("given_forgotten")  # it may come again, from the broker

    def _give(
        self, pair: Pair, client: str, cutover: Cutover, given: list[Held], stand: Stand | None = None
    ) -> None:
        self._core.redelivering(client, [held.publish for held in given])
        self._note_given(client, given)

        def done() -> None:
            entry = self._clients.get(client)
            ids = cutover.finished(given)
            if ids:
                self._failover.got(client, ids, entry.keepers if entry is not None else set())

        pair.redeliver([held.publish for held in given], done, stand)

    # Afterwards

    def received(self, client: str, hashes: list[bytes]) -> list[bytes]:
        """A client here has these: those of them that this node's own holders keep, and not only others that
        kept them for it when it came."""
        entry = self._clients.get(client)
        if entry is None or entry.last is None:
            if entry is not None and len(entry.early) < MOST_EARLY:
                entry.early += hashes
            elif entry is not None:
                self._core.counters.add("early_forgotten", len(hashes))  # it may get them twice
            return hashes
        rest, ids = [], []
        for one in hashes:
            found = entry.last.received((one,))
            ids += found
            if not found or entry.last.held_for_here(found[0]):
                rest.append(one)
        if ids:
            self._failover.got(client, ids, entry.keepers)
        return rest

    def known_again(self, client: str, hash: bytes) -> None:
        """What this client is about to receive its publisher sent again: this node's own holders have it."""
        entry = self._clients.get(client)
        if entry is not None and entry.last is not None:
            entry.last.known_again(hash)

    def late_arrived(self, neighbour: str, payload: bytes) -> None:
        late = wire.decode_late(payload, self._core.now())
        if late.client not in self._clients and not late.own:
            self.elsewhere(late.client)  # where this was kept for it: nobody else may ever say so
        entry = self._clients.get(late.client)
        # Who sent it for an earlier session is asked for what it keeps when this one subscribes.
        if entry is not None and late.since >= entry.begun:
            self.late(late.client, late.held, neighbour, late.own)

    def late(
        self, client: str, held: list[Held], node: str, own: bool = False, stand: Stand | None = None
    ) -> None:
        """Publications for a client that came here, from one who was to keep them elsewhere; `own`: here, in
        an earlier session."""
        entry = self._clients.get(client)
        record = self._core.interest.records.get(client)
        if entry is None or entry.last is None:
            return  # it asks for its queue when it subscribes
        if own:
            held = [one for one in held if one.born < entry.own_before]  # the broker has the rest
        if not held:
            return
        # An origin that had no link to here yet has it kept by who holds for this node, too.
        entry.sources.update((node, *self._failover.holders()))
        for attempt in self._attempts.values():
            if attempt.client == client:
                attempt.cutover.offer(held)
                return
        keepers = entry.keepers if stand is not None else {node}
        later = [one.id for one in held if entry.last.routed_here(one)]
        if later:
            self._failover.routed(client, later, keepers)
            # Who began to hold for this node after the client had it was not told.
            had = [one.id for one in held if own and one.id in later and entry.last.came_here(one)]
            self._failover.got(client, had, {node})
            held = [one for one in held if one.id not in later]
        had_there = self._failover.queues.had  # where it was before, as this node heard, too
        known = [one.id for one in held if entry.last.knows(one) or had_there(client, one.id)]
        self._failover.got(client, known, keepers)
        if record is None or not isinstance(record.owner, Pair):
            # It is away: who keeps it is asked again when it goes on.
            entry.interrupted = entry.interrupted or len(known) < len(held)
            return
        held = [one for one in held if one.id not in known]
        given = [each for one in held for each in entry.last.late(one, self._core.now())]
        had = [one.id for one in held if entry.last.has(one)]
        if had:
            self._failover.got(client, had, keepers)
        if given:
            self._give(record.owner, client, entry.last, given, stand)
