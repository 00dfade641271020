"""What a node does for clients that change or lose their site: each has a record at one home, with copies.

Owns the homes of clients here, and what came to this node. Invariants: a publication is in the queues of all
records here that want it before it is confirmed; what a client has is told to its holders; a client that
another site has claimed later has no pair here. Must not know: sockets, clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import ClassVar

from brokerweave.care import held as keeping
from brokerweave.care import wire
from brokerweave.care.claims import Claims
from brokerweave.care.copies import Copies
from brokerweave.care.disk import Life, RecordJournal
from brokerweave.care.held import Held
from brokerweave.care.holders import HolderStreams
from brokerweave.care.home import Home, Standing, State
from brokerweave.care.host import CareHost
from brokerweave.care.ids import MessageId
from brokerweave.care.interface import Care, Sender
from brokerweave.care.kept_topics import KeptTopics
from brokerweave.care.publishers import Publishers, Sent
from brokerweave.care.recent import Entering, RecentPublications
from brokerweave.care.record import Merged, Record, RecordTable, Snapshot, Stream
from brokerweave.care.wills import WILL_OF, AdoptedWills
from brokerweave.care.wire import LogEntry
from brokerweave.links.hybrid_clock import time_of
from brokerweave.links.journal import Journal
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import Publish, Will
from brokerweave.mqtt.publish import publish_head
from brokerweave.plugin import Cut
from brokerweave.plugin.sites import SiteBook, SiteEvents
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.pair import Pair

MOST_RECALLED = 10_000
"""Publications that were on their way to the broker before a restart, and are known again."""
_DUP = 0x08
_ALWAYS = 1 << 62
"""A version that every origin knows which is this node."""


class ClientCare(Care, SiteEvents):
    watches_deliveries: ClassVar[bool] = True

    def __init__(self, host: CareHost, sites: SiteBook) -> None:
        self._host = host
        self.sites = sites
        self.window = sites.window
        self._taken: dict[Stream, int] = {}
        self.place = RecordTable(self._taken, sites.client_bytes)
        self.place.heard[host.node_id, host.settings.epoch] = _ALWAYS
        self.homes: dict[str, Home] = {}
        self.disk = RecordJournal(host.now, self._write_later)
        self.holders = HolderStreams(host, sites, self.place, partial(self.disk.noted, self.life))
        self.claims = Claims(host, self)
        self.wills = AdoptedWills(host, self)
        self.copies = Copies(self._taken, sites.client_bytes, self.disk, self.claims.forward)
        self.publishers = Publishers()
        self._recent = RecentPublications()
        self._topics = KeptTopics()
        self._coming: dict[str, tuple[int, dict[str, int]]] = {}
        """Clients whose sessions here began in this turn."""
        self._known: dict[str, int] = {}
        """The version of what this site wants that each neighbour knows; what it sent before is here."""
        self._cuts: dict[str, tuple[int, Cut]] = {}
        self._lives: dict[str, int] = {}
        self._told: set[str] = set()
        self._wants: dict[str, dict[str, int]] = {}
        """By filter: the clients whose records want it."""
        self._coming_in: set[str] = set()
        """Clients whose SUBSCRIBE is on its way: their broker may deliver what nobody here wanted before."""
        self._entered: Entering | None = None
        self._tick = 0
        self._turning = False
        self._recall()
        sites.events = self
        host.controls |= {
            wire.LOG: self._log,
            wire.LOGGED: self._logged,
            wire.CLAIM: self.claims.claimed,
            wire.GIVE: self.claims.given,
            wire.RELEASE: self.claims.released,
        }

    def _recall(self) -> None:
        """What was on its way to the broker when the node ended the broker may deliver to those who come."""
        for lane, injector in enumerate(self._host.injectors):
            lane = lane if self._host.settings.ordered else 0
            for run in islice(injector.outbox.kept(), MOST_RECALLED):
                for held in _publications(run, lane):
                    self._recent.note(held)
                    self._turn_later()

    # The disk

    @property
    def life(self) -> Life:
        return self._host.node_id, self.sites.life

    def keep_in(self, open_journal: Callable[[], Journal | None]) -> None:
        journal = open_journal()
        if journal is None:
            return
        for each in self.disk.open(journal):
            self.copies.restore(each)
            if isinstance(each, Held):
                self._recent.note(each)
                self._turn_later()
        # after the sessions, which are remembered in this turn
        self._host.call_later(0, partial(self._soon, self.claims.restored))

    def _soon(self, callback: Callable[[], None]) -> None:
        self._host.call_later(0, callback)

    def _write_later(self) -> None:
        self._soon(self._write)

    def flush(self) -> None:
        self.disk.flush()

    def _write(self) -> None:
        self.disk.flush()
        places = (self.place, *(copy.place for copy in self.copies.homes.values()))
        self.disk.compact(sum(place.size for place in places), self._whole)

    def _whole(self, life: Life, client: str) -> LogEntry | None:
        copy = self.copies.homes.get(life)
        if life == self.life:
            place, names = self.place, self.holders.names
        elif copy is not None:
            place, names = copy.place, copy.holders
        else:
            return None
        record = place.records.get(client)
        if record is None:
            return None
        return LogEntry("record", client, record=place.snapshot(record), names=names)

    # What others know

    def all_know(self, nodes: Iterable[str], version: int, positions: dict[str, int]) -> bool:
        """Whether these know what this site wants, what they sent before is here, and holders have all."""
        others = (n for n in nodes if n != self._host.node_id)
        return all(self._known.get(n, 0) >= version for n in others) and self.holders.have(positions)

    def heard(self, neighbour: str, version: int, cut: Cut) -> None:
        self._cuts[neighbour] = (version, cut)
        self.took(neighbour)

    def took(self, neighbour: str) -> None:
        version, cut = self._cuts.get(neighbour, (0, None))
        if cut is None or neighbour not in self._host.neighbour_table:
            return
        lanes = self._host.neighbour_table[neighbour].lanes
        if all(lane.taken >= last for lane, last in zip(lanes, cut.sent, strict=False)):
            del self._cuts[neighbour]
            self._known[neighbour] = version
            self.place.heard[neighbour, cut.epoch] = version
            self.holders.heard((neighbour, cut.epoch), version)
            self._look()

    def down(self, neighbour: str) -> None:
        self._cuts.pop(neighbour, None)
        self._told.discard(neighbour)
        self.holders.down(neighbour)
        for home in self.homes.values():
            if home.claiming is not None:
                home.claiming.released.discard(neighbour)
        self._look()

    def told(self, neighbour: str) -> None:
        life = self.sites.life_of(neighbour)
        if self._lives.get(neighbour) != life:
            self._lives[neighbour] = life
            self._known.pop(neighbour, None)
            self.claims.lives()
        if neighbour not in self._told:
            self._told.add(neighbour)
            self.holders.up(neighbour)
            self.claims.up(neighbour)
            self._look()

    def forgotten(self, neighbour: str) -> None:
        """What it sent meanwhile went to who adopted this site's clients: they are claimed again."""
        self._known.pop(neighbour, None)
        for home in list(self.homes.values()):
            if home.state is State.HOME:
                self.claims.come(home, home.record.generation + 1)

    def lives(self) -> None:
        self.holders.choose()
        self.claims.lives()
        self._look()

    def died(self, node: str) -> None:
        self._known.pop(node, None)
        for each in self._host.neighbours():
            self._host.retained.missed(each)

    def repaired(self) -> None:
        for each in self._host.neighbours():
            self._host.retained.missed(each)

    def _look(self) -> None:
        self.claims.look()
        for home in list(self.homes.values()):
            self.progress(home)

    # What records here want

    def want(self, record: Record) -> None:
        for each, qos in record.filters.items():
            before = self._wants.setdefault(each, {})
            most = max(before.values(), default=-1)
            before[record.client] = qos
            if qos > most:
                self.sites.want({each: qos})

    def want_no_more(self, record: Record, filters: Iterable[str] | None = None) -> None:
        for each in record.filters if filters is None else filters:
            clients = self._wants.get(each, {})
            if clients.pop(record.client, None) is not None:
                most = max(clients.values(), default=-1)
                if most < 0:
                    del self._wants[each]
                self.sites.want({each: most if most >= 0 else None})

    # The copies of others

    def _log(self, neighbour: str, payload: bytes) -> None:
        life, last, entries = wire.decode_log(payload, self._host.now())
        self.copies.log((neighbour, life), entries)
        self.copies.heard((neighbour, life))
        self.disk.flush()
        self._host.send_own(neighbour, wire.LOGGED, wire.encode_logged(life, last))

    def _logged(self, neighbour: str, payload: bytes) -> None:
        life, last = wire.decode_logged(payload)
        if life == self.sites.life:
            self.holders.acknowledged(neighbour, last)
            self._look()

    # Clients come and go

    def since(self, client: str) -> int:
        return self.claims.generation(client)

    def joined(self, client: str, since: int) -> None:
        self._coming[client] = since, {}
        self._host.call_later(0, lambda: self._remembered(client))

    def _remembered(self, client: str) -> None:
        """The node was started, and its broker may have a session that a client left."""
        since, filters = self._coming.pop(client, (0, {}))
        if since and client not in self.homes and not client.startswith("\0"):
            home = self.homes[client] = Home(self.place.open(client), session=True)
            self._tick += 1
            home.grant(filters, self._tick)
            self.place.set_filters(home.record, dict(filters))
            self.claims.come(home, since)

    def wants(self, client: str, filters: Mapping[str, int | None]) -> None:
        home = self.homes.get(client)
        if client in self._coming:
            self._coming[client][1].update({f: q for f, q in filters.items() if q is not None})
        elif home is not None and home.state is State.HOME and home.session and filters:
            self._change(home, filters)

    def _change(self, home: Home, filters: Mapping[str, int | None]) -> None:
        record = home.record
        new = {f: qos for f, qos in filters.items() if record.filters.get(f) != qos}
        for each in [f for f, qos in filters.items() if qos is None]:
            home.delivering.granted.pop(each, None)
        if new:
            self.place.unsettle(record)
            self.want_no_more(record, [f for f, qos in new.items() if qos is None])
            self.place.set_filters(record, new)
            self.want(record)
            self.holders.filters(record)
            self.claims.changed(home)

    def is_owed(self, client: str, clean_start: bool) -> bool:
        home = self.homes.get(client)
        return not clean_start or (home is not None and home.claiming is not None)

    def accepted(self, pair: Pair, session_present: bool, lost: bool) -> None:
        client = pair.client.client_id
        since, filters = self._coming.pop(client, (0, {}))
        if not client:
            return
        home = self.homes.get(client)
        if home is None:
            home = self.homes[client] = Home(self.place.open(client))
        elif home.state is State.HOME and home.session:
            self._goes_on(home, pair, session_present, filters)
            return
        home.pair, home.session = pair, True
        home.delivering.interrupted()
        home.delivering.lost()
        if session_present:
            self._tick += 1
            home.grant(filters, self._tick)
        self.place.set_filters(home.record, dict(filters))
        self.claims.come(home, since)
        self.wills.came(home, pair)
        self._stand(home, session_present)

    def _goes_on(self, home: Home, pair: Pair, session_present: bool, filters: dict[str, int]) -> None:
        """A client was here before."""
        home.pair = pair
        home.delivering.interrupted()
        if not session_present:
            home.delivering.lost()
        else:
            self._tick += 1
            home.grant({f: q for f, q in filters.items() if f not in home.delivering.granted}, self._tick)
        self._change(home, dict(filters))
        self.wills.came(home, pair)
        self._stand(home, session_present)

    def _stand(self, home: Home, session_present: bool) -> None:
        """The broker goes on with a session: what it delivers waits until it is known what the client has."""
        assert home.pair is not None
        waits = home.claiming is not None or home.waiting(self._host.now())
        if session_present and waits:
            home.delivering.standing.append(Standing(home.pair.hold_behind(), 0, {}))
        self.progress(home)

    def left(self, client: str) -> None:
        home = self.homes.get(client)
        if home is not None and home.state is State.HOME:
            self.want_no_more(home.record)
            for giver in home.claiming.givers if home.claiming is not None else ():
                release = wire.encode_release(wire.Release(client, home.record.generation))
                self._host.send_own(giver, wire.RELEASE, release)
            self.drop(home, home.record.generation)
            self.claims.drop_copies(client, self._host.node_id)
            self.holders.flush()  # the node may be about to stop: nobody is to go on with it then
            self.disk.flush()

    def drop(self, home: Home, ended: int = 0) -> None:
        """`ended`: the generation with which its session ended."""
        self.copies.note_end(home.client, ended)
        self.want_no_more(home.record)
        self.place.drop(home.client)
        self.homes.pop(home.client, None)
        self.holders.note(LogEntry("drop", home.client, generation=ended))

    def forget(self, home: Home) -> None:
        """Another site has the client, or its session ended there."""
        self.drop(home)
        self._forget_session(home.client)

    def _forget_session(self, client: str) -> None:
        record = self._host.sessions.records.get(client)
        if record is not None:
            self._host.sessions.forget(record)

    def close(self, home: Home) -> None:
        """Another site has claimed the client [MQTT-3.1.4-3]."""
        pair, home.pair = home.pair, None
        home.delivering.interrupted()
        home.delivering.lost()
        home.session = False
        self._forget_session(home.client)
        if pair is not None:
            pair.close_taken_over(session_ends=True)

    def adopt(self, copied: Record) -> Home:
        """A client whose home is gone."""
        home = self.homes[copied.client] = Home(self.place.open(copied.client))
        home.record.will = copied.will
        self._host.call_later(self.window, lambda: self._give_up(home))
        self.wills.adopted(home)
        return home

    def _give_up(self, home: Home) -> None:
        """It did not come."""
        if self.homes.get(home.client) is home and not home.session and home.state is State.HOME:
            self._host.count("clients_given_up")
            self.drop(home)

    def ended(self, pair: Pair, unexpected: bool) -> None:
        self._coming_in.discard(pair.client.client_id)
        home = self.homes.get(pair.client.client_id)
        if home is None or home.pair is not pair:
            return
        home.pair = None
        home.delivering.interrupted()
        self.wills.ended(home)
        record = self._host.sessions.of(pair)
        if record is None:
            return
        if unexpected and home.claiming is not None:
            record.lost = True  # its session may end with its connection; what it is to get stays
        if record.lost:
            home.delivering.lost()

    # They subscribe

    def subscribing(self, pair: Pair) -> None:
        self._coming_in.add(pair.client.client_id)

    def expects(self, pair: Pair) -> bool:
        home = self.homes.get(pair.client.client_id)
        return home is not None and home.pair is pair

    def begin(
        self, pair: Pair, filters: list[tuple[str, int]], hold_point: HoldPoint, timeout: float
    ) -> bool:
        home = self.homes[pair.client.client_id]
        self._coming_in.discard(home.client)
        self._tick += 1
        home.grant(dict(filters), self._tick)
        standing = Standing(hold_point, self.sites.announce(), self.holders.position())
        home.delivering.standing.append(standing)

        def late() -> None:
            if standing in home.delivering.standing:
                self._host.count("barrier_timeouts")
                standing.late = True
                self.progress(home)

        self._host.call_later(timeout, late)
        self.progress(home)
        return False

    # Claims

    def merge(self, home: Home, told: Snapshot) -> Merged:
        """What another copy of a record knows. The holders hear what is new."""
        record = home.record
        learned = self.place.merge(record, told)
        self._count_dropped(home, learned.dropped)
        # The broker may have refused it when it came. If it did not, what it delivers is swallowed.
        again = {held.id for held in told.queue} - home.delivering.flight
        home.delivering.by_broker -= again
        if learned.filters and home.state is State.HOME:
            self.want(record)
            self.holders.filters(record)
        for held in learned.new:
            home.told[held.id] = told.generation
            self.holders.learned(record, held)
        if learned.had:
            self.holders.has(record, learned.had)
        return learned

    def forget_before(self, home: Home, ended: int) -> None:
        """A session of the client ended: what others told of it is of no use in this one."""
        home.record.born = ended
        told = [one for one in home.record.queue if one in home.told and home.told[one] <= ended]
        for each in told:
            self.place.received(home.record, each)
        if told:
            self.holders.has(home.record, told)
        self.holders.filters(home.record)

    def settled(self, home: Home, version: int) -> None:
        self.place.settle(home.record, version)
        self.holders.note(LogEntry("settled", home.client, version=version))

    def progress(self, home: Home) -> None:
        """Whatever may go on now does."""
        if home.state is not State.HOME:
            return
        claiming, delivering = home.claiming, home.delivering
        linked = self.sites.linked()
        if not delivering.opened:
            delivering.opened = (
                claiming is None
                or claiming.late
                or (
                    self.sites.ready()
                    and self.claims.answered(home, linked)
                    and self.claims.sourced(home)
                    and self.all_know(linked, claiming.version, claiming.positions)
                )
            )
        self.claims.settle(home)
        self.pump(home)

    def pump(self, home: Home) -> None:
        """Give the client what is its turn."""
        pair, delivering = home.pair, home.delivering
        if pair is None or home.state is not State.HOME or not delivering.opened:
            return
        linked = self.sites.linked()
        ready = []
        for standing in delivering.standing:
            if not (standing.late or self.all_know(linked, standing.version, standing.positions)):
                break
            ready.append(standing)
        del delivering.standing[: len(ready)]
        if not delivering.giving and (ready or not delivering.standing):
            waiting = home.waiting(self._host.now())
            if waiting:
                delivering.flight.update(held.id for held, _ in waiting)
                delivering.giving = True
                publishes = [publish for _, publish in waiting]
                self._host.redelivering(home.client, publishes)
                point = ready.pop(0).point if ready else None
                pair.redeliver(publishes, lambda: self._gave(home, pair), point)
        for standing in ready:
            pair.end_hold(standing.point)

    def _gave(self, home: Home, pair: Pair) -> None:
        if home.pair is pair:
            home.delivering.giving = False
            self._host.call_later(0, lambda: self.pump(home))

    # They receive

    def keeps(self, topic: bytes) -> bool:
        return topic in self._topics

    def swallows(self, pair: Pair, content: bytes, must_see: bool) -> bool:
        """Whether the client has what its broker delivers, or gets it from the node."""
        home = self.homes.get(pair.client.client_id)
        if home is None or home.pair is not pair:
            return False
        found, delivering = self._found(home, content), home.delivering
        for held in found:
            if held.id in home.record.queue and held.id not in delivering.flight:
                if not must_see and held.id not in delivering.by_broker:
                    return True  # the node gives it, in its turn
                delivering.flight.add(held.id)
                return False
        for entering in self._recent.entering(content):
            if home.client not in entering.shown and not self._has_name(entering):
                entering.shown.add(home.client)
                return False
        for held in found:
            had = self.place.has(home.record, held) and self._is_for(home, held)
            if had or held.id in delivering.flight:
                return not must_see and held.id not in home.record.dropped
        # It came before this node knew that the client is to get it.
        delivering.flight.update(held.id for held in found[:1])
        return False

    def _has_name(self, entering: Entering) -> bool:
        """Whether its publisher sends again what is known here."""
        sent = self.publishers.find(entering.publisher, entering.packet_id, entering.content)
        return entering.again and sent is not None

    def _is_for(self, home: Home, held: Held) -> bool:
        """Whether the record was looked through for it: it wants it, or did until it was withdrawn."""
        topic, client = held.publish.topic, home.client
        withdrawn = client not in self._coming_in and home.delivering.qos_of(topic) < 0
        return withdrawn or client in self.place.matching(topic)

    def _found(self, home: Home, content: bytes) -> list[Held]:
        found = self._recent.of(content)
        return found or [held for held in home.record.queue.values() if held.hash == content]

    def received(self, pair: Pair, hashes: list[bytes], more: bool) -> None:
        home = self.homes.get(pair.client.client_id)
        if home is None:
            return
        ids = []
        for content in hashes:
            identifier = home.received(self._found(home, content))
            if identifier is not None:
                self.place.received(home.record, identifier)
                ids.append(identifier)
                continue
            for entering in self._recent.entering(content):
                if home.client in entering.shown:
                    entering.had.add(home.client)
        if ids:
            self.holders.has(home.record, ids)
            if more:
                self.holders.flush()
            if home.state is State.LEAVING:
                told = Snapshot(home.client, home.record.generation, {}, [], {}, set(ids))
                self.claims.forward(home.to, told)
            self.pump(home)

    # They publish

    def publishing(self, topic: str) -> None:
        self._topics.note(topic.encode())

    def entering(self, pair: Pair, publish: Publish) -> None:
        """Something at QoS 1 or 2 is about to go to the broker."""
        self._turn_later()
        self._tick += 1
        content = content_hash(publish.topic, publish.payload)
        client, packet_id = pair.client.client_id, publish.packet_id
        self._recent.enter(Entering(client, packet_id, content, self._tick, publish.dup))

    def resent(self, pair: Pair, publish: Publish) -> bool:
        client = pair.client.client_id
        content = content_hash(publish.topic, publish.payload)
        return bool(client) and self.publishers.find(client, publish.packet_id, content) is not None

    def sender(
        self, publish: Publish, pair: Pair, holds: tuple[str, ...], resent: bool
    ) -> tuple[Sender | None, tuple[str, ...]]:
        client = pair.client.client_id
        return ((client, publish.packet_id) if client and publish.packet_id else None), holds

    def name(self, run: Run) -> Run:
        """A publication of a client here, under the name that it had when it was sent first."""
        if run.sender is None:
            return run
        head = publish_head(run.blob, run.version)
        content = content_hash(head.topic, run.blob[head.payload_start :])
        sent = self.publishers.find(*run.sender, content) if run.blob[0] & _DUP else None
        if sent is None:
            return run
        self._host.count("publications_resent")
        if not sent.id.epoch:
            return run.stamped(sent.id.origin, sent.id.sequence)
        return run.named(sent.id.origin, sent.id.epoch, sent.id.sequence)

    def named(self, client: str, packet_id: int, content: bytes, name: MessageId) -> None:
        """Another site knows the name of what a client published."""
        if self.publishers.find(client, packet_id, content) is None:
            self._turn_later()
            self.publishers.note(client, packet_id, content, Sent(name, True, ""))

    def published(self, run: Run, lane: int, publish: Publish, pair: Pair, resent: bool) -> None:
        content = content_hash(publish.topic, publish.payload)
        self._entered = self._recent.entered(pair.client.client_id, publish.packet_id, content)

    def left_unanswered(self, run: Run, lane: int, holds: tuple[str, ...]) -> None:
        if run.sender is not None:
            head = publish_head(run.blob, run.version)
            content = content_hash(head.topic, run.blob[head.payload_start :])
            self._entered = self._recent.entered(*run.sender, content)

    def will_due(self, pair: Pair, will: Will) -> Sender | None:
        if will.qos:
            self._topics.note(will.topic.encode())
        return self.wills.mark(pair, will) if pair.client.client_id else None

    # Publications go out, and arrive

    def hold(self, run: Run, lane: int) -> None:
        entered, self._entered = self._entered, None
        self._note_sender(run, lane, bool(run.blob[0] & _DUP))
        in_turn = run.origin == self._host.node_id
        self._apply(run, lane if self._host.settings.ordered else 0, entered, in_turn)
        self.disk.flush()

    def arrived(self, run: Run, lane: int, neighbour: str) -> Run | None:
        lane = lane if self._host.settings.ordered else 0
        if run.sender is not None and not self._note_sender(run, lane, bool(run.blob[0] & _DUP)):
            return None
        if run.max_qos:
            self._apply(run, lane, None, in_turn=run.origin == neighbour and not run.repair)
            if not run.cap:
                run = replace(run, cap=self._qos_here(run))
        if run.blob[0] & _DUP:
            return run.without_dup()
        return run

    def _qos_here(self, run: Run) -> int:
        """Its origin may not know yet who wants more here; at QoS 0 nobody would hear who has it."""
        if self._coming_in:
            return 2
        topic = publish_head(run.blob, run.version).topic.decode()
        return max(self.place.matching(topic).values(), default=0)

    def _note_sender(self, run: Run, lane: int, dup: bool) -> bool:
        """Remember what a publisher may send again. False: it sent this before, under another name."""
        if run.sender is None:
            return True
        self._turn_later()
        client, packet_id = run.sender
        head = publish_head(run.blob, run.version)
        content = content_hash(head.topic, run.blob[head.payload_start :])
        name = _name(run, lane)
        sent = self.publishers.find(client, packet_id, content)
        dup = dup or client.startswith(WILL_OF)
        if sent is not None and sent.id != name and (dup or (sent.again and sent.at != run.origin)):
            return False
        if sent is None or sent.id != name:
            self.publishers.note(client, packet_id, content, Sent(name, dup, run.origin))
        return True

    def _apply(self, run: Run, lane: int, entered: Entering | None, in_turn: bool) -> None:
        """`in_turn`: all that its origin sent here before on its lane has come."""
        stream = run.origin, run.epoch, lane
        touched: dict[str, Home] = {}
        for held in _publications(run, lane):
            topic = held.publish.topic
            self._topics.note(topic.encode())
            self._turn_later()
            wanted = False
            for client in self.place.matching(topic):
                home = self.homes[client]
                wanted = True
                if self._add(home, held, entered):
                    touched[client] = home
            # after those: a copy of what such a client wanted elsewhere says nothing new then
            wanted = self.copies.came(topic, held) or wanted
            if wanted:
                self.disk.came(held)
            if wanted or self._coming_in:
                self._recent.note(held)
        if in_turn:
            self._taken[stream] = max(run.first + run.count - 1, self._taken.get(stream, 0))
        for home in touched.values():
            self.pump(home)

    def _add(self, home: Home, held: Held, entered: Entering | None) -> bool:
        """A client here is to get this. Whether the node may have to give it."""
        record, delivering = home.record, home.delivering
        if self.place.seen(record, held):
            return False
        self._count_dropped(home, self.place.add(record, held))
        # HolderStreams may have had it from its origin before they knew the record.
        self.holders.add(record, held, everybody=not held.id.epoch or record.version is None)
        if entered is not None and home.client in entered.had:
            self.place.received(record, held.id)
            self.holders.has(record, [held.id])
            return False
        if home.state is State.LEAVING:
            self.claims.forward(home.to, Snapshot(home.client, record.generation, {}, [held]))
            return False
        self._tick += 1
        if entered is not None and home.client in entered.shown:
            delivering.flight.add(held.id)
            delivering.by_broker.add(held.id)
        elif delivering.granted_before(held.publish.topic, entered.tick if entered else self._tick):
            delivering.by_broker.add(held.id)
        return held.id not in delivering.by_broker

    def _count_dropped(self, home: Home, dropped: list[MessageId]) -> None:
        if dropped:
            self._host.count("held_dropped", len(dropped))
            home.delivering.by_broker.difference_update(dropped)

    def _turn_later(self) -> None:
        if not self._turning:
            self._turning = True
            self._host.call_later(self.window, self._turn)

    def _turn(self) -> None:
        oldest = self._host.now() - 2 * self.window
        for place in (self.place, *(copy.place for copy in self.copies.homes.values())):
            place.forget_retained(lambda stamp: time_of(stamp) < oldest)
        left = [self._recent.turn(), self.publishers.turn(), self._topics.turn()]
        self._turning = False
        if any(left):
            self._turn_later()

    # What an operator sees

    def status(self) -> dict[str, object]:
        queues = [len(record.queue) for record in self.place]
        copied = [len(copy.place.records) for copy in self.copies.homes.values()]
        return {
            "clients": len(self.homes),
            "publications": sum(queues),
            "bytes": self.place.size,
            "copied_clients": sum(copied),
            "claiming": sum(home.claiming is not None for home in self.homes.values()),
            "holders": list(self.holders.names),
        }

    def counters(self) -> dict[str, int]:
        return {
            "resends_forgotten": self.publishers.overflows,
            "recent_forgotten": self._recent.forgotten,
            "held_disk_failures": self.disk.failures,
        }

    def check(self) -> None:
        """Raises AssertionError if an invariant is broken: for the simulator and tests."""
        self.place.check()
        for copy in self.copies.homes.values():
            copy.place.check()
        for client, home in self.homes.items():
            assert home.record is self.place.records.get(client), "a home without its record"


def _name(run: Run, lane: int) -> MessageId:
    """A will is known by its client, what is to be retained by its version: they may come another way."""
    if run.sender is not None and run.sender[0].startswith(WILL_OF):
        return MessageId(WILL_OF + content_hash(*run.sender[:1], b"").hex(), 0, 0, run.sender[1])
    if run.stamp:
        return MessageId(run.origin, 0, 0, run.stamp)
    return MessageId(run.origin, run.epoch, lane, run.first)


def _publications(run: Run, lane: int) -> Iterator[Held]:
    """Those of QoS 1 and 2. Raises RemoteProtocolError if a frame is damaged."""
    for offset in range(run.count if run.max_qos else 0):
        part = run.part(offset, 1)
        publish = codec.decode(part.blob, part.version)
        if isinstance(publish, Publish) and publish.qos:
            yield keeping.hold(_name(part, lane), publish, part.version, part.born)
