"""What a node does for clients that change or lose their site: each has a record at one home, with copies.

Owns the parts, and how clients come and go. Invariants: a publication is in the queues of all records here
that want it before it is confirmed; what a client has is told to its holders; a client that another site has
claimed later has no pair here. Must not know: sockets, clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from brokerweave.care import wire
from brokerweave.care.adoption import Adoption
from brokerweave.care.claims import Claims
from brokerweave.care.copies import Copies
from brokerweave.care.deliveries import ClientDeliveries
from brokerweave.care.disk import Came, Life, RecordJournal
from brokerweave.care.hearing import Hearing
from brokerweave.care.home import Home, Standing, State
from brokerweave.care.homes import Homes
from brokerweave.care.host import CareHost
from brokerweave.care.ids import MessageId
from brokerweave.care.interface import Care, Sender
from brokerweave.care.publications import RecordedPublications, content_of
from brokerweave.care.publishers import Publishers
from brokerweave.care.recent import RecentPublications
from brokerweave.care.record import Snapshot, told_of
from brokerweave.care.room import Room
from brokerweave.care.wills import AdoptedWills
from brokerweave.care.wire import LogEntry
from brokerweave.links.journal import Journal
from brokerweave.links.run import Run
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import Publish, Will
from brokerweave.plugin import Cut
from brokerweave.plugin.sites import SiteBook, SiteEvents
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.pair import Pair


class ClientCare(Care, SiteEvents):
    watches_deliveries: ClassVar[bool] = True

    def __init__(self, host: CareHost, sites: SiteBook) -> None:
        self._host = host
        self.sites = sites
        self.window = sites.window
        self._disk = RecordJournal(host.now, lambda: self._soon(self._write))
        room = Room(sites.client_bytes, sites.max_bytes)
        self.copies = Copies(room, self._disk, self._forward)
        self.homes = Homes(host, sites, room, self._disk, self.copies.note_end)
        self._hearing = Hearing(host, sites, self.homes.holders, self.homes.table)
        self._publishers, self._recent = Publishers(), RecentPublications()
        self.deliveries = ClientDeliveries(
            host, sites, self.homes, self._hearing, self._recent, self._publishers
        )
        pump = self.deliveries.pump
        self.publications = RecordedPublications(
            host,
            self.window,
            self.homes,
            self.copies,
            self._disk,
            self._recent,
            self._publishers,
            self._forward,
            pump,
        )
        self.claims = Claims(
            host, sites, self.homes, self.copies, self._hearing, self.publications, self._recent, pump
        )
        self._wills = AdoptedWills(host, self.window, self.homes, self._publishers)
        self._adoption = Adoption(host, sites, self.homes, self.copies, self.claims, self._wills)
        self._coming: dict[str, tuple[int, dict[str, int]]] = {}
        """Clients whose sessions here began in this turn."""
        self.publications.recall()
        sites.events = self
        self._listen()

    def _listen(self) -> None:
        self._host.controls |= {
            wire.LOG: self._log,
            wire.LOGGED: self._logged,
            wire.CLAIM: self.claims.claimed,
            wire.GIVE: self.claims.given,
            wire.RELEASE: self._released,
        }

    def _forward(self, to: str, told: Snapshot) -> None:
        self.claims.forward(to, told)

    # The disk

    def keep_in(self, open_journal: Callable[[], Journal | None]) -> None:
        journal = open_journal()
        if journal is None:
            return
        for each in self._disk.open(journal):
            self.copies.restore(each)
            if isinstance(each, Came):
                self.publications.restore(each)
        # after the sessions, which are remembered in this turn
        self._soon(lambda: self._soon(self._adoption.restored))

    def _soon(self, callback: Callable[[], None]) -> None:
        self._host.call_later(0, callback)

    def flush(self) -> None:
        self._disk.flush()

    def _write(self) -> None:
        self._disk.flush()
        tables = (self.homes.table, *(copy.table for copy in self.copies.homes.values()))
        self._disk.compact(sum(table.size for table in tables), self._whole)

    def _whole(self, life: Life, client: str) -> LogEntry | None:
        """A record as it is now, for the disk."""
        copy = self.copies.homes.get(life)
        if life == self.homes.life:
            table, holders = self.homes.table, self.homes.holders.lives
        elif copy is not None:
            table, holders = copy.table, copy.holders
        else:
            return None
        record = table.records.get(client)
        if record is None:
            return None
        return LogEntry("record", client, record=table.snapshot(record), holders=holders)

    # Other sites

    def heard(self, neighbour: str, version: int, cut: Cut) -> None:
        before = self._hearing.known(neighbour)
        if self._hearing.heard(neighbour, version, cut):
            self.claims.heard(before, self._hearing.known(neighbour))

    def took(self, neighbour: str) -> None:
        before = self._hearing.known(neighbour)
        if self._hearing.took(neighbour):
            self.claims.heard(before, self._hearing.known(neighbour))

    def down(self, neighbour: str) -> None:
        self._hearing.down(neighbour)
        self.homes.holders.down(neighbour)
        self._tell_homes(neighbour, dead=False)
        self.claims.down(neighbour)
        self.claims.look()

    def told(self, neighbour: str) -> None:
        another_life, new_link = self._hearing.told(neighbour)
        if another_life:
            self._adoption.lives()
            self._tell_homes(neighbour)
        if new_link:
            self._adoption.goes_on((neighbour, self.sites.life_of(neighbour)))
            self.homes.holders.up(neighbour)
            self.claims.up(neighbour)
            life = neighbour, self.sites.life_of(neighbour)
            self.copies.tell_home(life, self._hearing.is_over)
        self.claims.look()

    def forgotten(self, neighbour: str) -> None:
        """What it sent meanwhile went to who adopted this site's clients: they are claimed again."""
        self._hearing.forgot(neighbour)
        for home in self.homes:
            if home.state is State.HOME:
                self.claims.come(home, home.record.generation + 1)

    def lives(self) -> None:
        self.homes.holders.choose()
        self._adoption.lives()

    def died(self, node: str) -> None:
        self._hearing.forgot(node)
        self._tell_homes(node)
        self.homes.holders.gone(node)
        self.repaired()

    def _tell_homes(self, node: str, dead: bool = True) -> None:
        """An origin is gone, or was started again: what it sent here may never come to the homes. If it is
        not `dead` but out of reach, this is so at homes that took it for dead."""
        for (home, life), copy in list(self.copies.homes.items()):
            if home != node and (dead or node in copy.gone) and self.claims.is_home(home, life):
                self.copies.tell_home((home, life), lambda held: held.id.origin == node)

    def repaired(self) -> None:
        for each in self._host.neighbours():
            self._host.retained.missed(each)

    def _log(self, neighbour: str, payload: bytes) -> None:
        """What the home of other clients says."""
        life, last, entries = wire.decode_log(payload, self._host.now())
        self.copies.log((neighbour, life), entries)
        self.copies.heard((neighbour, life), self.homes.table.came)
        for gone in [each.client for each in entries if each.kind == "gone"]:
            if gone not in self.sites.linked():
                self._tell_homes(gone, dead=False)
        if any(each.kind != "has" for each in entries):
            self._disk.flush()
            self._host.send_own(neighbour, wire.LOGGED, wire.encode_logged(life, last))

    def _logged(self, neighbour: str, payload: bytes) -> None:
        life, last = wire.decode_logged(payload)
        if life != self.sites.life:
            return
        holders = self.homes.holders
        before, names = holders.has_up_to(neighbour), holders.names
        holders.acknowledged(neighbour, last)
        if holders.names == names:
            self.claims.logged(neighbour, before, holders.has_up_to(neighbour))
        else:
            self.claims.look()

    def _released(self, neighbour: str, payload: bytes) -> None:
        self.claims.releases.released(neighbour, payload)
        self._adoption.released()

    # Clients come

    def since(self, client: str) -> int:
        return self.claims.generation(client)

    def joined(self, client: str, since: int) -> None:
        self._coming[client] = since, {}
        self._soon(lambda: self._remembered(client))

    def _remembered(self, client: str) -> None:
        """The node was started, and its broker may have a session that a client left."""
        since, filters = self._coming.pop(client, (0, {}))
        if since and self.homes.get(client) is None and not client.startswith("\0"):
            home = self.homes.open(client, session=True)
            home.grant(filters, self.homes.moment())
            self.homes.table.set_filters(home.record, dict(filters))
            home.record.session = home.since = since
            self.claims.come(home, since)

    def wants(self, client: str, filters: Mapping[str, int | None]) -> None:
        home = self.homes.get(client)
        if client in self._coming:
            self._coming[client][1].update({f: q for f, q in filters.items() if q is not None})
        elif home is not None and home.state is State.HOME and home.session and filters:
            self._change(home, filters)

    def _change(self, home: Home, filters: Mapping[str, int | None]) -> None:
        if self.homes.change(home, filters):
            self.claims.changed(home)

    def is_owed(self, client: str, clean_start: bool) -> bool:
        home = self.homes.get(client)
        return not clean_start or (home is not None and home.claiming is not None)

    def accepted(self, pair: Pair, session_present: bool) -> None:
        client = pair.client.client_id
        since, filters = self._coming.pop(client, (0, {}))
        if not client:
            return
        home = self.homes.get(client)
        here = home is not None and home.state is State.HOME and home.session
        home = home or self.homes.open(client, session=True)
        home.pair, home.session, home.since = pair, True, since
        home.interrupted()
        if not (here and session_present):
            home.delivering.lost()
        if session_present:
            new = {f: qos for f, qos in filters.items() if f not in home.delivering.granted}
            home.grant(new, self.homes.moment())
        if here:
            self._change(home, dict(filters))
        else:
            self.homes.table.set_filters(home.record, dict(filters))
            self.claims.come(home, since)
        self._wills.came(home, pair)
        # What the broker of a session that goes on delivers waits until it is known what the client has.
        if session_present and (home.claiming is not None or home.waiting(self._host.now())):
            home.delivering.standing.append(Standing(None, pair.hold_behind(), 0, {}))
            self.homes.waiting.add(home, 0, {})
        self.claims.progress(home)

    # Clients go

    def left(self, client: str) -> None:
        home = self.homes.get(client)
        if home is not None and home.state is State.HOME:
            self.claims.end(home, home.record.generation)
            self.homes.holders.flush()  # the node may be about to stop: nobody is to go on with it then
            self._disk.flush()

    def moves_away(self, pair: Pair) -> bool:
        home = self.homes.get(pair.client.client_id)
        return home is not None and home.pair is pair and home.state is State.DRAINING

    def ended(self, pair: Pair, unexpected: bool) -> None:
        client = pair.client.client_id
        self.homes.subscribing.discard(client)
        home = self.homes.get(client)
        if home is None or home.pair is not pair:
            return
        if home.state is State.DRAINING:
            self.claims.moves.end(home)
            return
        owed = home.claiming is not None or home.awaits_subscription
        home.pair = None
        home.interrupted()
        self._wills.ended(home)
        record = self._host.sessions.of(pair)
        if record is None:
            return
        if unexpected and owed and record.expiry <= 0:
            record.lost = True  # its session ends with its connection; what it is to get stays
        if record.lost:
            home.delivering.lost()

    def closed(self, pair: Pair) -> None:
        self.claims.moves.over(pair)

    # They subscribe, and receive

    def may_subscribe(self, pair: Pair) -> bool:
        """Only a client that moves is asked for: its old site has to give first, or both would deliver."""
        home = self.homes.get(pair.client.client_id)
        return home is not None and home.pair is pair and home.delivering.opened

    def subscribing(self, pair: Pair) -> None:
        self.deliveries.subscribing(pair)

    def expects(self, pair: Pair) -> bool:
        home = self.homes.get(pair.client.client_id)
        return home is not None and home.pair is pair

    def begin(
        self, pair: Pair, filters: list[tuple[str, int]], hold_point: HoldPoint, timeout: float
    ) -> bool:
        self.deliveries.granted(self.homes[pair.client.client_id], pair, filters, hold_point, timeout)
        return False

    def keeps(self, topic: bytes) -> bool:
        return topic in self.publications.topics

    def swallows(self, pair: Pair, name: bytes, must_see: bool) -> bool:
        return self.deliveries.swallows(pair, name, must_see)

    def received(self, pair: Pair, names: list[bytes], more: bool) -> None:
        self.deliveries.received(pair, names, more, self._received_elsewhere)

    def _received_elsewhere(self, home: Home, ids: set[MessageId]) -> None:
        """The client is where it was, after all, and another site is to know what it has."""
        self.claims.forward(home.to, told_of(home.record, had=ids))

    # They publish

    def publishing(self, topic: str) -> None:
        self.publications.topics.note(topic.encode())

    def entering(self, pair: Pair, publish: Publish) -> None:
        self.publications.entering(pair, publish)

    def publication_name(self, pair: Pair, publish: Publish) -> bytes:
        return self.publications.stamp_entering(pair, publish)

    def resent(self, pair: Pair, publish: Publish) -> bool:
        client, content = pair.client.client_id, content_hash(publish.topic, publish.payload)
        sent = self._publishers.find(client, publish.packet_id, content) if client else None
        return sent is not None and sent.taken

    def sender(self, pair: Pair, publish: Publish) -> Sender | None:
        client = pair.client.client_id
        return (client, publish.packet_id) if client and publish.packet_id else None

    def name(self, run: Run) -> Run:
        return self.publications.name(run)

    def published(self, pair: Pair, publish: Publish, run: Run, lane: int) -> None:
        content = content_hash(publish.topic, publish.payload)
        self.publications.entered((pair.client.client_id, publish.packet_id), content, run, lane, taken=True)

    def left_unanswered(self, run: Run, lane: int) -> None:
        if run.sender is not None:
            self.publications.entered(run.sender, content_of(run), run, lane, taken=False)

    def will_due(self, pair: Pair, will: Will) -> Sender | None:
        if will.qos:
            self.publications.topics.note(will.topic.encode())
        return self._wills.mark(pair, will) if pair.client.client_id else None

    def hold(self, run: Run, lane: int) -> None:
        self.publications.hold(run, lane)
        self.claims.moves.look()

    def arrived(self, run: Run, lane: int, neighbour: str) -> Run | None:
        return self.publications.arrived(run, lane, neighbour)

    def not_injected(self, run: Run, lane: int) -> None:
        self.publications.not_injected(run, lane)

    # What an operator sees

    def status(self) -> dict[str, object]:
        copies = self.copies.homes.values()
        return {
            "clients": len(self.homes),
            "publications": sum(len(record.queue) for record in self.homes.table),
            "bytes": self.homes.table.size,
            "copied_clients": sum(len(copy.table.records) for copy in copies),
            "copied_bytes": sum(copy.table.size for copy in copies),
            "claiming": sum(home.claiming is not None for home in self.homes),
            "draining": len(self.claims.moves),
            "holders": list(self.homes.holders.names),
        }

    def counters(self) -> dict[str, int]:
        return {
            "copies_dropped": self.copies.dropped,
            "resends_forgotten": self._publishers.overflows,
            "recent_forgotten": self._recent.forgotten,
            "held_disk_failures": self._disk.failures,
        }

    def check(self) -> None:
        self.homes.check()
        for copy in self.copies.homes.values():
            copy.table.check()
