"""Who has a client: a site claims it, and others give what they know.

Owns the course of a claim, at the site that a client came to and at those that knew it. Invariants: of two
claims the better hold counts, then the higher (generation, site); who gave a record passes on what comes for
it, until it is released; a client whose home is gone is claimed by the first of its holders that lives. Must
not know: brokers, what a client is given when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from brokerweave.care import wire
from brokerweave.care.copies import Copies
from brokerweave.care.hearing import Hearing
from brokerweave.care.home import Claiming, Hold, Home, State
from brokerweave.care.homes import Homes
from brokerweave.care.host import CareHost
from brokerweave.care.moves import Moves
from brokerweave.care.publications import RecordedPublications
from brokerweave.care.recent import RecentPublications
from brokerweave.care.record import Snapshot, merged, part
from brokerweave.care.releases import Releases
from brokerweave.care.wire import ANSWER, DONE, LATE, STALE, ClientClaim, Give, Release
from brokerweave.plugin.sites import SiteBook

MOST_GENERATIONS = 200_000


class Claims:
    def __init__(
        self,
        host: CareHost,
        sites: SiteBook,
        homes: Homes,
        copies: Copies,
        hearing: Hearing,
        publications: RecordedPublications,
        recent: RecentPublications,
        pump: Callable[[Home], None],
    ) -> None:
        """`pump`: a client may have something to be given."""
        self.moves = Moves(host, sites, recent, self._drained)
        self.releases = Releases(host, sites, homes, copies, hearing, self.is_home)
        self._host = host
        self._sites = sites
        self._homes = homes
        self._copies = copies
        self._hearing = hearing
        self._publications = publications
        self._pump = pump
        self._generations: dict[str, tuple[int, str]] = {}
        self._sessions: dict[str, int] = {}
        """The last generation in which a client was connected anywhere, as far as is known."""
        self._since: dict[str, int] = {}
        """When a client last came anywhere, as far as is known."""
        self._ready = False

    def generation(self, client: str) -> int:
        """The last that is known of a client."""
        return self._generations.get(client, (0, ""))[0]

    def _learn(
        self, client: str, generation: int, node: str, hold: int = Hold.CONNECTED, since: int = 0
    ) -> None:
        known = self._generations.pop(client, (0, ""))
        self._generations[client] = max(known, (generation, node))
        if hold == Hold.CONNECTED:
            self._sessions[client] = max(self._sessions.get(client, 0), generation)
        self._since[client] = max(self._since.get(client, 0), since)
        if len(self._generations) > MOST_GENERATIONS:
            oldest = next(iter(self._generations))
            del self._generations[oldest]
            self._sessions.pop(oldest, None)
            self._since.pop(oldest, None)

    # The site that a client came to

    def come(self, home: Home, generation: int) -> None:
        """A client came here, or its home is gone and this is the first of its holders."""
        homes, record = self._homes, home.record
        self.moves.call_off(home)
        home.sources = self._sources(home)
        home.elsewhere = bool(home.sources)
        record.generation = max(generation, self.generation(home.client) + 1)
        ended = self._copies.ended.get(home.client, 0)
        if home.hold is Hold.CONNECTED and record.session <= ended:
            if ended and self._sessions.get(home.client, 0) <= ended:
                homes.begin(record)
            record.session = record.generation
        self._learn(home.client, record.generation, self._host.node_id, home.hold, home.since)
        self.releases.forget(home.client)
        home.state, home.to = State.HOME, ""
        home.unsettled = None
        home.answered.clear()
        record.born = max(record.born, ended)
        homes.table.unsettle(record)
        for (node, life), copy, kept in self._copies.of(home.client):
            homes.merge(home, copy.table.snapshot(kept))
            copy.to[home.client] = self._host.node_id, record.generation, self._sites.life
            if not self.is_home(node, life):
                copy.to.pop(home.client)
                self._copies.drop((node, life), home.client)
        homes.holders.whole(record)
        homes.want(record)
        home.claiming = Claiming(self._sites.announce(), homes.holders.position())
        homes.waiting.add(home, home.claiming.version, home.claiming.positions)
        for node in self._sites.linked():
            self._ask(home, node)
        self._host.call_later(self._sites.patience, partial(self._late, home, home.claiming))
        self.progress(home)

    def _sources(self, home: Home) -> frozenset[str]:
        """The site that had the client last, as far as is known, and its holders: one has to answer."""
        at = self._generations.get(home.client, (0, ""))[1]
        if at == self._host.node_id:
            return frozenset() if home.claiming is None else home.sources
        return frozenset((at, *self._sites.holders_of(at))) if at else frozenset()

    def is_home(self, node: str, life: int) -> bool:
        """Whether a life of a site goes on, as far as is known."""
        if node == self._host.node_id:
            return life == self._sites.life
        return node in self._sites.live and self._sites.life_of(node) in (0, life)

    def _ask(self, home: Home, node: str) -> None:
        record = home.record
        filters = tuple(record.filters) if home.elsewhere else ()
        since = home.since if home.session else self._since.get(home.client, 0)
        planned = self.moves.planned(home, node)
        session = record.session
        claim = ClientClaim(home.client, record.generation, home.hold, filters, session, planned, since)
        self._host.send_own(node, wire.CLAIM, wire.encode_claims([claim]))

    def _late(self, home: Home, claiming: Claiming) -> None:
        if home.claiming is claiming and not home.delivering.opened and home.pair is not None:
            self._host.count("claims_late")
            claiming.late = True
            self.progress(home)

    def answered(self, home: Home, nodes: Iterable[str]) -> bool:
        """Whether these know that the client is here, and have given what they knew."""
        lives = self._sites.life_of
        return all(home.answered.get(node, -1) == lives(node) for node in nodes)

    def _sourced(self, home: Home) -> bool:
        """Whether one has answered that knows what the client has, or none lives."""
        me, live = self._host.node_id, self._sites.live
        sources = home.sources & live
        return not sources or me in sources or any(self.answered(home, (node,)) for node in sources)

    def changed(self, home: Home) -> None:
        """What a client wants where it is has changed: origins have to hear it, and holders."""
        version, positions = self._sites.announce(), self._homes.holders.position()
        self._homes.waiting.add(home, version, positions)
        home.unsettled = None
        if home.claiming is None:
            home.claiming = Claiming(version, positions)
            return
        home.claiming.version, home.claiming.positions = version, positions
        if home.elsewhere:
            for node in self._sites.linked():  # before they hear the version: what matches is yet to come
                self._ask(home, node)

    def progress(self, home: Home) -> None:
        """Whatever may go on now does."""
        if home.state is State.HOME:
            if not home.delivering.opened and self._may_open(home):
                home.delivering.opened = True
                if home.pair is not None:
                    self.moves.opened(home.pair)
            self._keep(home)
            self._let_givers_go(home)
            self._settle(home)
            self._pump(home)

    def _may_open(self, home: Home) -> bool:
        """Whether all in reach have told what they had for the client, and know that it is here."""
        claiming, linked = home.claiming, self._sites.linked()
        return (
            claiming is None
            or claiming.late
            or (
                self._sites.ready()
                and self.answered(home, linked)
                and self._sourced(home)
                and self._hearing.all_know(linked, claiming.version, claiming.positions)
            )
        )

    def _keep(self, home: Home) -> None:
        """Once holders have the record, origins that hear so need not be stood in for. If all sites are in
        reach, the record settles in a moment, which says the same."""
        claiming, record, holders = home.claiming, home.record, self._homes.holders
        if claiming is None or record.kept is not None or not holders.names:
            return
        away = self._sites.remembered - {*self._sites.linked(), self._host.node_id}
        if away and holders.all_have(claiming.positions):
            record.kept = self._sites.announce()

    def _let_givers_go(self, home: Home) -> None:
        """Let the givers go if nothing else is missing, then be done."""
        sites, claiming = self._sites, home.claiming
        if claiming is None:
            return
        claiming.givers &= sites.live
        if not sites.ready() or not self._knows(home, claiming, sites.live):
            return
        for giver in sorted(claiming.givers & set(sites.linked())):
            away = sites.remembered - sites.live
            unheard = frozenset(each for each in away if not self._knows(home, claiming, (each,)))
            if claiming.released.get(giver) != unheard:
                claiming.released[giver] = unheard
                self._release(giver, home.client, home.record.generation, unheard)
        if not claiming.givers:
            home.claiming, home.unsettled = None, claiming.version
            home.told.clear()
            self.releases.drop_copies(home.client, self._host.node_id)

    def _knows(self, home: Home, claiming: Claiming, nodes: Iterable[str]) -> bool:
        """Whether these have given what they knew, and send here what the client wants."""
        others = [node for node in nodes if node != self._host.node_id]
        version, positions = claiming.version, claiming.positions
        return self.answered(home, others) and self._hearing.all_know(others, version, positions)

    def _settle(self, home: Home) -> None:
        """No ids need be listed once nobody has anything from before; also who is away may have."""
        others, version = self._sites.remembered - {self._host.node_id}, home.unsettled
        if (
            version is not None
            and self.answered(home, others)
            and self._hearing.all_know(others, version, {})
        ):
            home.unsettled = None
            self._homes.settle(home, version)

    def _release(
        self, giver: str, client: str, generation: int, unheard: frozenset[str] = frozenset()
    ) -> None:
        release = Release(client, generation, tuple(sorted(unheard)))
        self._host.send_own(giver, wire.RELEASE, wire.encode_release(release))

    def end(self, home: Home, generation: int) -> None:
        """Its session, up to this generation, is over, here or elsewhere: nobody has to pass anything on."""
        for giver in home.claiming.givers if home.claiming is not None else ():
            self._release(giver, home.client, home.record.generation)
        self._homes.drop(home, generation)
        self.releases.drop_copies(home.client, self._host.node_id)

    def given(self, neighbour: str, payload: bytes) -> None:
        give = wire.decode_give(payload, self._host.now())
        for packet_id, content, name in give.names:
            self._publications.named(give.client, packet_id, content, name)
        home = self._homes.get(give.client)
        if home is None:
            if give.kind == LATE or give.in_flight is not None:
                self._not_here(neighbour, give)
        elif home.state is not State.HOME:
            self._given_on_leaving(home, give)
        elif home.hold is Hold.ADOPTED and home.record.session <= give.ended > 0:
            self.end(home, give.ended)  # what was adopted is of that session
        elif give.kind == STALE:
            self._stale(home, give)
        else:
            self._given_home(home, neighbour, give)

    def _given_on_leaving(self, home: Home, give: Give) -> None:
        """What comes for a client that another site has claimed is passed on."""
        homes = self._homes
        drains = home.state is State.DRAINING and give.home == home.to
        others = self._sites.live - {self._host.node_id}
        if give.kind == STALE and give.home in others and not drains:
            self.moves.end(home)
            self._learn(give.client, give.generation, give.home)
            home.to, home.to_life = give.home, self._sites.life_of(give.home)
            self._forward(give.home, homes.table.snapshot(home.record))
        if give.record is not None and (learned := homes.merge(home, give.record)):
            self._forward(home.to, part(home.record, learned))

    def _ended_before(self, home: Home, give: Give) -> None:
        if home.record.born < give.ended < home.record.generation:
            self._homes.forget_before(home, give.ended)

    def _stale(self, home: Home, give: Give) -> None:
        """The client came elsewhere later, or is connected there."""
        self._ended_before(home, give)
        self._learn(give.client, give.generation, give.home)
        later = (give.generation, give.home) > (home.record.generation, self._host.node_id)
        if later and home.pair is not None:
            self.come(home, give.generation + 1)
        elif later and give.home in self._sites.live:  # it claims what is here when it is in reach
            self._leave(home, give.home)
            self._forward(give.home, self._homes.table.snapshot(home.record))

    def _given_home(self, home: Home, neighbour: str, give: Give) -> None:
        self._ended_before(home, give)
        if give.record is not None and not home.elsewhere and home.claiming is not None:
            home.elsewhere = True
            self.changed(home)
        if give.record is not None and (learned := self._homes.merge(home, give.record)):
            if learned.filters:
                self.changed(home)
            elif home.claiming is not None:
                home.claiming.positions = self._homes.holders.position()
                self._homes.waiting.add(home, home.claiming.version, home.claiming.positions)
        if give.in_flight is not None:
            self.moves.answered(home, neighbour, give.in_flight)
        claiming = home.claiming
        if claiming is not None and give.generation == home.record.generation:
            if give.kind == ANSWER:
                home.answered[neighbour] = self._sites.life_of(neighbour)
                if give.record is not None:
                    claiming.givers.add(neighbour)
            elif give.kind == DONE:
                claiming.givers.discard(neighbour)
        self.progress(home)

    def _not_here(self, neighbour: str, give: Give) -> None:
        """Somebody passes on what comes for a client that has left."""
        generation, at = self._generations.get(give.client, (0, ""))
        if at not in (self._host.node_id, neighbour) and at in self._sites.live:
            self._give(neighbour, Give(give.client, generation, STALE, home=at))
        else:
            self._release(neighbour, give.client, give.generation)

    # Those that knew it

    def claimed(self, neighbour: str, payload: bytes) -> None:
        for claim in wire.decode_claims(payload):
            self._claimed(neighbour, claim)

    def _claimed(self, neighbour: str, claim: ClientClaim) -> None:
        client, me, live = claim.client, self._host.node_id, self._sites.live
        home = self._homes.get(client)
        if home is not None and home.state is State.HOME and self._stays(home, claim, neighbour):
            self._learn(client, claim.generation, neighbour, claim.hold, claim.since)
            if home.record.generation <= claim.generation:
                self.come(home, claim.generation + 1)
            self._give(neighbour, Give(client, home.record.generation, STALE, home=me))
            return
        generation, at = self._generations.get(client, (0, ""))
        later = generation > claim.generation and at in live - {me, neighbour}
        if later and self._hold(client, claim.hold, claim.since) == Hold.ADOPTED:
            self._give(neighbour, Give(client, generation, STALE, home=at))
            return
        self._learn(client, claim.generation, neighbour, claim.hold, claim.since)
        if home is not None and self.moves.drains(home, claim, neighbour):
            self._send_again(neighbour, claim)
            return
        if home is not None:
            self._leave(home, neighbour)
        self._answer(neighbour, claim, home)

    def _drained(self, home: Home, claim: ClientClaim, in_flight: int) -> None:
        """The old connection of a client that moved as planned ends."""
        to = home.to
        self._leave(home, to, planned=True)
        self._answer(to, claim, home, in_flight)

    def _send_again(self, neighbour: str, claim: ClientClaim) -> None:
        """What is not confirmed, before who claims hears that this site knows what it wants."""
        again = self._publications.unconfirmed(neighbour, claim.filters) if claim.filters else []
        if again:
            self._forward(
                neighbour, Snapshot(claim.client, claim.generation, {}, again, session=claim.session)
            )

    def _answer(
        self, neighbour: str, claim: ClientClaim, home: Home | None, in_flight: int | None = None
    ) -> None:
        """Give all that is known of a client here; what still comes for it is passed on."""
        client, ended = claim.client, self._copies.ended.get(claim.client, 0)
        known = [] if home is None else [self._homes.table.snapshot(home.record)]
        for (node, life), copy, kept in self._copies.of(client):
            if (node, life) == (neighbour, self._sites.life_of(neighbour)):
                self._copies.tell_home((node, life), self._hearing.is_over, client)
            else:
                copy.to[client] = neighbour, claim.generation, self._sites.life_of(neighbour)
                known.append(copy.table.snapshot(kept))
        self._send_again(neighbour, claim)
        told = merged(known, ended) if known else None
        names = self._publications.last_of(client)
        give = Give(client, claim.generation, ANSWER, told, names, ended=ended, in_flight=in_flight)
        self._give(neighbour, give)

    def _stays(self, home: Home, claim: ClientClaim, neighbour: str) -> bool:
        client = claim.client
        mine = self._hold(client, home.hold, home.since, claim.since)
        theirs = self._hold(client, claim.hold, claim.since, home.since)
        place = mine, home.record.generation, self._host.node_id
        return place > (theirs, claim.generation, neighbour)

    def _hold(self, client: str, hold: int, since: int, elsewhere: int = 0) -> int:
        """As it counts: a session whose client came elsewhere later is no better than a record."""
        left = since < max(elsewhere, self._since.get(client, 0))
        return Hold.ADOPTED if hold == Hold.SESSION and left else hold

    def _leave(self, home: Home, to: str, planned: bool = False) -> None:
        home.state, home.to, home.to_life = State.LEAVING, to, self._sites.life_of(to)
        home.claiming = home.unsettled = None
        self._homes.close(home, planned)

    def _give(self, neighbour: str, give: Give) -> None:
        self._host.send_own(neighbour, wire.GIVE, wire.encode_give(give, self._host.now()))

    def forward(self, to: str, told: Snapshot) -> None:
        """Something came for a client that another site has claimed."""
        if to == self._host.node_id:
            home = self._homes.get(told.client)
            if home is not None and home.state is not State.LEAVING:
                self._homes.merge(home, told)
                self._pump(home)
        else:
            self._forward(to, told)

    def _forward(self, to: str, told: Snapshot) -> None:
        self._give(to, Give(told.client, told.generation, LATE, told))

    # Somebody heard something

    def look(self) -> None:
        """Something changed that may concern all who wait: who lives, whose links are up, who are holders."""
        self.releases.look()
        for home in self._homes.waiting.all():
            self._go_on(home)

    def heard(self, before: int, version: int) -> None:
        """A neighbour knows a version of what this site wants, and knew another one before."""
        if self._has_become_ready():
            self.look()
            return
        self.releases.heard(before, version)
        for home in self._homes.waiting.heard(before, version):
            self._go_on(home)

    def logged(self, node: str, before: int, position: int) -> None:
        """A holder has its log up to a position."""
        if self._has_become_ready():
            self.look()
            return
        for home in self._homes.waiting.had(node, before, position):
            self._go_on(home)

    def _has_become_ready(self) -> bool:
        before, self._ready = self._ready, self._ready or self._sites.ready()
        return self._ready and not before

    def _go_on(self, home: Home) -> None:
        self.progress(home)
        if home.claiming is None and home.unsettled is None and not home.delivering.standing:
            self._homes.waiting.discard(home.client)

    # Links come and go

    def down(self, neighbour: str) -> None:
        for home in self._homes:
            if home.claiming is not None:
                home.claiming.released.pop(neighbour, None)

    def up(self, neighbour: str) -> None:
        """A neighbour may not have heard of who came lately."""
        for home in self._homes:
            if home.state is State.HOME and not self.answered(home, (neighbour,)):
                if home.claiming is None:
                    self.changed(home)
                self._ask(home, neighbour)
            elif home.state is State.LEAVING and home.to == neighbour:
                self._forward(neighbour, self._homes.table.snapshot(home.record))
        for copy in self._copies.homes.values():
            for client, (to, *_) in copy.to.items():
                if to == neighbour and client in copy.table.records:
                    self._forward(neighbour, copy.table.snapshot(copy.table.records[client]))
