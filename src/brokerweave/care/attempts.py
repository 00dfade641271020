"""A client that came here subscribes: all nodes are asked for its queue, and it is judged what it lacks.

Owns one *attempt* for each SUBSCRIBE, and the *cuts*: where each neighbour stood when it learned who is here.
Invariants: SUBACK stands until all in reach have heard, the stream behind it until it is judged what the
client lacks, both no longer than the barrier's limit. Must not know: who may come, how it is judged
(`care.cutover` does), sockets, clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from brokerweave.care import wire
from brokerweave.care.client_redelivery import ClientRedelivery
from brokerweave.care.cutover import Cutover
from brokerweave.care.held import Held
from brokerweave.care.ids import MessageId
from brokerweave.care.newcomer import Newcomer
from brokerweave.mqtt.topics import matches, shared_filter
from brokerweave.plugin import Cut, Timer
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.pair import Pair

if TYPE_CHECKING:
    from brokerweave.care.client_care import ClientCare
    from brokerweave.care.host import CareHost

POLL_SECONDS = 0.004
"""Between two looks at what the broker has yet to acknowledge, or to deliver."""
ROOM = 10
"""Deliveries that every broker makes, without waiting for the first to be acknowledged."""
UNCLEAR_SECONDS = 0.05
"""How long to wait for the broker to deliver what it may or may not, once all else is known."""


class _Attempt:
    __slots__ = (
        "_awaited",
        "answered",
        "arriving",
        "asked",
        "behind",
        "client",
        "cutover",
        "hold_point",
        "pair",
        "seen",
        "timer",
        "unanswered",
        "unclear",
        "unheard",
        "version",
    )

    def __init__(
        self, client: str, pair: Pair, cutover: Cutover, hold_point: HoldPoint, behind: HoldPoint
    ) -> None:
        self.client = client
        self.pair = pair
        self.cutover = cutover
        self.hold_point = hold_point
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


class Attempts:
    def __init__(
        self,
        host: CareHost,
        care: ClientCare,
        clients: Mapping[str, Newcomer],
        redelivery: ClientRedelivery,
    ) -> None:
        self._host = host
        self._care = care
        self._clients = clients
        self._redelivery = redelivery
        self._attempts: dict[int, _Attempt] = {}
        self._round = 0
        self._epochs: dict[str, int] = {}
        """Of neighbours that were heard of on the links that are up."""
        self._cuts: dict[str, Cut] = {}
        """The last one of each neighbour whose link is up: what lies behind it, it knew where to send. Who is
        out of reach does not hear who comes, be it for the second time."""
        self._unheard: dict[str, dict[str, int]] = {}
        """Neighbours that were not waited for any longer: by client, which version tells them of it."""
        care.log.writing = self._writing

    def begin(
        self, pair: Pair, filters: list[tuple[str, int]], hold_point: HoldPoint, timeout: float
    ) -> bool:
        """SUBACK came. False: it stands until all have heard."""
        host, roster, log = self._host, self._care.roster, self._care.log
        client = pair.client.client_id
        entry = self._clients[client]
        wanted = {f: qos for f, qos in filters if shared_filter(f)[0] is None}
        nodes = roster.reachable()
        entry.silent = set(host.neighbours())
        host.sessions.returned(client, {}, host.now())
        subscribed, before_it = entry.asked.pop(0) if entry.asked else (log.open(), None)
        entry.open.append(subscribed)
        me, before = host.node_id, entry.last
        cutover = Cutover(subscribed, log.tick(), wanted, log, me=me, nodes=nodes, before=before)
        entry.last = cutover
        here = host.cut(me)
        cutover.reborn(me, here.epoch, here.sequences)
        if before is None:
            cutover.older = entry.older
            cutover.already([*entry.early, *pair.undelivered])
            cutover.received(entry.early)
        roster.flush()
        attempt = _Attempt(client, pair, cutover, hold_point, pair.hold_behind())
        attempt.version, attempt.unheard = roster.version, set(nodes)
        number = self.new_round()
        self._attempts[number] = attempt
        kept = self._care.queues.take(client, own_before=entry.own_before)
        self._offer(attempt, host.node_id, kept)
        self.ask(nodes, number, client, entry.own_before)
        host.count("queues_asked")
        attempt.wait_for(self._unanswered(pair, before_it, wanted))
        if attempt.unanswered:
            cutover.arriving(host.node_id)
            host.call_later(POLL_SECONDS, lambda: self._poll(number))
        attempt.timer = host.call_later(timeout, lambda: self._time_is_up(number))
        self._check(number)
        return not attempt.unheard

    def new_round(self) -> int:
        """The number by which nodes answer that are asked."""
        self._round += 1
        return self._round

    def ask(self, nodes: Iterable[str], number: int, client: str, own_before: float) -> None:
        """For all that they keep for a client; but of what they keep for it here only what is older."""
        age = max(self._host.now() - own_before, 0.0)
        ask = wire.encode_ask(wire.Ask(number, self._care.roster.table.since(client), client, age))
        for node in nodes:
            self._host.send_own(node, wire.ASK, ask)

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

    def _unanswered(
        self, own: Pair, before: list[int] | None, filters: Iterable[str]
    ) -> list[tuple[Pair, int]]:
        """What clients here published to these filters and the broker has yet to acknowledge; of the
        subscriber itself, what it had published `before` its SUBSCRIBE: the broker got the rest after that.
        """
        pairs = [record.owner for record in self._host.sessions.records.values()]
        waiting = [(pair, each) for pair in pairs if isinstance(pair, Pair) for each in pair.unanswered]
        wanted = {
            topic: any(matches(f, topic) for f in filters) for topic in {one.topic for _, one in waiting}
        }
        return [
            (pair, one.packet_id)
            for pair, one in waiting
            if wanted[one.topic] and (pair is not own or before is None or one.packet_id in before)
        ]

    def late(self, client: str, held: list[Held]) -> bool:
        """Something came for a client: whether it is judged with the rest."""
        for attempt in self._attempts.values():
            if attempt.client == client:
                attempt.cutover.offer(held)
                return True
        return False

    def interrupt(self, client: str) -> None:
        """Its connection ended."""
        for number in [number for number, attempt in self._attempts.items() if attempt.client == client]:
            if client in self._clients:
                self._clients[client].interrupted = True
            self._finish(number)

    def _offer(self, attempt: _Attempt, node: str, given: Iterable[Held]) -> None:
        offered = list(given)
        attempt.cutover.offer(offered)
        entry = self._clients.get(attempt.client)
        if offered and entry is not None:
            entry.sources.add(node)
            had = [one.id for one in offered if attempt.cutover.has(one)]
            if had:
                self._care.receipts.got(attempt.client, had, {node})

    # What is heard of others

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

    def answered(self, neighbour: str, answer: wire.Answer) -> bool:
        """False: what it is an answer to is over."""
        attempt = self._attempts.get(answer.round)
        if attempt is None or attempt.client != answer.client:
            return False
        self._offer(attempt, neighbour, answer.held)
        if answer.last:
            attempt.cutover.answered(neighbour)
            self._check(answer.round)
        return True

    def down(self, neighbour: str) -> None:
        """Nothing is heard of a node any more, nor does it hear anything."""
        self._cuts.pop(neighbour, None)
        self._unheard.pop(neighbour, None)
        for number, attempt in list(self._attempts.items()):
            attempt.cutover.dead(neighbour)
            attempt.unheard.discard(neighbour)
            attempt.arriving.pop(neighbour, None)
            self._check(number)

    def _is_here(self, neighbour: str, sent: tuple[int, ...]) -> bool:
        if neighbour not in self._host.neighbour_table:
            return True
        lanes = self._host.neighbour_table[neighbour].lanes
        return all(lane.taken >= last for lane, last in zip(lanes, sent, strict=False))

    # What is heard of the broker

    def _poll(self, number: int) -> None:
        attempt = self._attempts.get(number)
        if attempt is None:
            return
        left = [(pair, one) for pair, one in attempt.unanswered if pair.awaits(one)]
        if len(left) < len(attempt.unanswered):
            attempt.wait_for(left)
        if attempt.unanswered:
            self._host.call_later(POLL_SECONDS, lambda: self._poll(number))
        else:
            attempt.cutover.arrived(self._host.node_id)
            self._check(number)

    def _check(self, number: int) -> None:
        attempt = self._attempts.get(number)
        if attempt is None:
            return
        if not attempt.unheard:
            attempt.pair.end_hold(attempt.hold_point)
        self._look_at_broker(attempt)
        if attempt.cutover.complete:
            self._finish(number)
        elif attempt.cutover.heard and not attempt.unclear:
            attempt.unclear = True
            self._host.call_later(UNCLEAR_SECONDS, lambda: self._doubt(number))
            self._host.call_later(POLL_SECONDS, lambda: self._look_again(number))

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
        self._host.call_later(UNCLEAR_SECONDS, lambda: self._doubt(number))

    def _finish_next(self, number: int) -> None:
        """Not while the pair acts on what the broker said."""
        if number in self._attempts:
            self._attempts[number].answered = True
        self._host.call_later(0, lambda: self._finish(number))

    def _look_again(self, number: int) -> None:
        attempt = self._attempts.get(number)
        if attempt is None:
            return
        if self._look_at_broker(attempt) and attempt.cutover.complete:
            self._finish(number)
        else:
            self._host.call_later(POLL_SECONDS, lambda: self._look_again(number))

    def _look_at_broker(self, attempt: _Attempt) -> bool:
        """What the broker delivered since SUBACK stands behind it. Whether there was more of it."""
        deliveries, before = attempt.behind.behind, attempt.seen
        for _, content in deliveries[attempt.seen :]:
            if content is not None:
                attempt.cutover.live(content)
        attempt.seen = len(deliveries)
        return attempt.seen > before

    # The end

    def _time_is_up(self, number: int) -> None:
        if number in self._attempts:
            self._host.count("barrier_timeouts")
            self._finish(number)

    def _finish(self, number: int) -> None:
        attempt = self._attempts.pop(number, None)
        if attempt is None:
            return
        if attempt.timer is not None:
            attempt.timer.cancel()
        entry = self._clients.get(attempt.client)
        if entry is not None:
            self._host.sessions.returned(attempt.client, attempt.cutover.cuts)
            for node in attempt.unheard:
                self._unheard.setdefault(node, {})[attempt.client] = attempt.version
        self._look_at_broker(attempt)
        given = attempt.cutover.ready(self._host.now())
        self._host.count("redelivery_doubted", attempt.cutover.doubted)
        interrupted = entry is not None and entry.interrupted
        if entry is not None:
            self._care.receipts.routed(attempt.client, attempt.cutover.later, entry.keepers)
            self._care.receipts.got(attempt.client, attempt.cutover.known, entry.keepers)
        attempt.pair.end_hold(attempt.hold_point)
        if given and not interrupted:
            if attempt.cutover.doubtful and entry is not None and not attempt.sure:
                self._redelivery.suspect(attempt.client, entry, tuple(attempt.cutover.doubtful))
            self._redelivery.redeliver(attempt.pair, attempt.client, attempt.cutover, given, attempt.behind)
        else:
            attempt.pair.end_hold(attempt.behind)
        for later in [later for later, one in self._attempts.items() if one.client == attempt.client]:
            self._check(later)

    # Afterwards

    def _writing(self, identifier: MessageId) -> None:
        """The broker is about to get a publication."""
        told = self._redelivery.writing(identifier)
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
        known = self._care.log.find(identifier)
        publish = known.publish if known is not None else None
        if known is None or publish is None or known.hash is None:
            return
        for client in self._care.roster.table.clients_wanting(self._host.node_id, publish.topic):
            entry, record = self._clients.get(client), self._host.sessions.records.get(client)
            if entry is None or entry.last is None or client in told:
                continue
            here_before = record is not None and identifier in record.had
            if here_before or self._care.queues.had(client, identifier):
                self._redelivery.not_again(client, publish.topic, known.hash)
            else:
                entry.last.overtaken(identifier, publish.topic, known.hash)
