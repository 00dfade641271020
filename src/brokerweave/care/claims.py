"""Who has a client: a site claims it, others give what they know, and let go when nothing can come any more.

Owns the course of a claim, at the site that a client came to and at those that knew it. Invariants: of two
claims the better hold counts, then the higher (generation, site); who gave a record passes on what comes for
it, until all sites have heard where the client is and what they sent before has come; a client whose home is
gone is claimed by the first of its holders that lives. Must not know: brokers, what a client is given when.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from brokerweave.care import wire
from brokerweave.care.copies import Copy
from brokerweave.care.home import Claiming, Hold, Home, State
from brokerweave.care.record import Record, RecordTable, Snapshot, part
from brokerweave.care.wire import ANSWER, DONE, LATE, STALE, ClientClaim, Give, Release

if TYPE_CHECKING:
    from brokerweave.care.client_care import ClientCare
    from brokerweave.care.host import CareHost

MOST_GENERATIONS = 200_000
LOOK_SECONDS = 0.2
"""How often a node that was started looks whether it knows the others."""


@dataclass(slots=True, eq=False)
class _Releasing:
    """A claimer has the client; what was sent here before is yet to come."""

    client: str
    to: str
    generation: int
    version: int


class Claims:
    def __init__(self, host: CareHost, care: ClientCare) -> None:
        self._host = host
        self._care = care
        self._generations: dict[str, tuple[int, str]] = {}
        self._releasing: list[_Releasing] = []
        self._adopted: set[tuple[str, int]] = set()

    def generation(self, client: str) -> int:
        """The last that is known of a client."""
        return self._generations.get(client, (0, ""))[0]

    def _learn(self, client: str, generation: int, node: str) -> None:
        known = self._generations.pop(client, (0, ""))
        self._generations[client] = max(known, (generation, node))
        if len(self._generations) > MOST_GENERATIONS:
            del self._generations[next(iter(self._generations))]

    # The site that a client came to

    def come(self, home: Home, generation: int) -> None:
        """A client came here, or its home is gone and this is the first of its holders."""
        care, record = self._care, home.record
        home.sources = self._sources(home)
        record.generation = max(generation, self.generation(home.client) + 1)
        self._learn(home.client, record.generation, self._host.node_id)
        home.state, home.to = State.HOME, ""
        home.answered.clear()
        record.born = max(record.born, care.copies.ended.get(home.client, 0))
        care.place.unsettle(record)
        for (node, life), copy, kept in care.copies.of(home.client):
            care.merge(home, copy.place.snapshot(kept))
            copy.to[home.client] = self._host.node_id, record.generation
            if not self._is_home(node, life):
                copy.to.pop(home.client)
                care.copies.drop((node, life), home.client)
        care.holders.whole(record)
        care.want(record)
        home.claiming = Claiming(care.sites.announce(), care.holders.position())
        for node in care.sites.linked():
            self._ask(home, node)
        self._host.call_later(care.sites.patience, partial(self._late, home, home.claiming))
        care.progress(home)

    def _sources(self, home: Home) -> frozenset[str]:
        """The site that had the client last, as far as is known, and its holders: one has to answer."""
        at = self._generations.get(home.client, (0, ""))[1]
        if at == self._host.node_id:
            return frozenset() if home.claiming is None else home.sources
        return frozenset((at, *self._care.sites.holders_of(at))) if at else frozenset()

    def _ask(self, home: Home, node: str) -> None:
        claim = ClientClaim(home.client, home.record.generation, home.hold)
        self._host.send_own(node, wire.CLAIM, wire.encode_claims([claim]))

    def _late(self, home: Home, claiming: Claiming) -> None:
        if home.claiming is claiming and not home.delivering.opened and home.pair is not None:
            self._host.count("claims_late")
            claiming.late = True
            self._care.progress(home)

    def answered(self, home: Home, nodes: Iterable[str]) -> bool:
        """Whether these know that the client is here, and have given what they knew."""
        lives = self._care.sites.life_of
        return all(home.answered.get(node, -1) == lives(node) for node in nodes)

    def sourced(self, home: Home) -> bool:
        """Whether one has answered that knows what the client has, or none lives."""
        me, live = self._host.node_id, self._care.sites.live
        sources = home.sources & live
        return not sources or me in sources or any(self.answered(home, (node,)) for node in sources)

    def changed(self, home: Home) -> None:
        """What a client wants where it is has changed: origins have to hear it, and holders."""
        version, positions = self._care.sites.announce(), self._care.holders.position()
        if home.claiming is None:
            home.claiming = Claiming(version, positions)
        else:
            home.claiming.version, home.claiming.positions = version, positions

    def settle(self, home: Home) -> None:
        """Let the givers go if nothing else is missing, then be done."""
        care, claiming = self._care, home.claiming
        if claiming is None or home.state is not State.HOME:
            return
        claiming.givers &= care.sites.live
        others = care.sites.live - {self._host.node_id}
        if (
            not care.sites.ready()
            or not self.answered(home, others)
            or not care.all_know(others, claiming.version, claiming.positions)
        ):
            return
        for giver in sorted(claiming.givers - claiming.released):
            claiming.released.add(giver)
            payload = wire.encode_release(Release(home.client, home.record.generation))
            self._host.send_own(giver, wire.RELEASE, payload)
        if not claiming.givers:
            home.claiming = None
            home.told.clear()
            self.drop_copies(home.client, self._host.node_id)
            care.settled(home, claiming.version)

    def given(self, neighbour: str, payload: bytes) -> None:
        give, care = wire.decode_give(payload, self._host.now()), self._care
        home = care.homes.get(give.client)
        for packet_id, content, name in give.names:
            care.named(give.client, packet_id, content, name)
        if home is None:
            if give.kind == LATE:
                self._not_here(neighbour, give)
            return
        if home.state is State.LEAVING:
            if give.kind == STALE and give.home != self._host.node_id and give.home in care.sites.live:
                self._learn(give.client, give.generation, give.home)
                home.to = give.home
                self._forward(give.home, care.place.snapshot(home.record))
            if give.record is not None and (learned := care.merge(home, give.record)):
                self._forward(home.to, part(home.record, learned))
            return
        claiming = home.claiming
        if home.record.born < give.ended < home.record.generation:
            care.forget_before(home, give.ended)
        if give.kind == STALE:
            self._learn(give.client, give.generation, give.home)
            later = (give.generation, give.home) > (home.record.generation, self._host.node_id)
            if later and home.pair is not None:
                self.come(home, give.generation + 1)
            elif later and give.home in care.sites.live:  # it claims what is here when it is in reach
                self._leave(home, give.home)
                self._forward(give.home, care.place.snapshot(home.record))
            return
        if give.record is not None and (learned := care.merge(home, give.record)):
            if learned.filters:
                self.changed(home)
            elif claiming is not None:
                claiming.positions = care.holders.position()
            claiming = home.claiming
        if claiming is not None and give.generation == home.record.generation:
            if give.kind == ANSWER:
                home.answered[neighbour] = care.sites.life_of(neighbour)
                if give.record is not None:
                    claiming.givers.add(neighbour)
            elif give.kind == DONE:
                claiming.givers.discard(neighbour)
        care.progress(home)

    def _not_here(self, neighbour: str, give: Give) -> None:
        """Somebody passes on what comes for a client that has left."""
        generation, at = self._generations.get(give.client, (0, ""))
        if at not in (self._host.node_id, neighbour) and at in self._care.sites.live:
            self._give(neighbour, Give(give.client, generation, STALE, home=at))
        else:
            release = wire.encode_release(Release(give.client, give.generation))
            self._host.send_own(neighbour, wire.RELEASE, release)

    # Those that knew it

    def claimed(self, neighbour: str, payload: bytes) -> None:
        for claim in wire.decode_claims(payload):
            self._claimed(neighbour, claim)

    def _claimed(self, neighbour: str, claim: ClientClaim) -> None:
        care, client, me = self._care, claim.client, self._host.node_id
        home = care.homes.get(client)
        if home is not None and home.state is State.HOME and self._stays(home, claim, neighbour):
            self._learn(client, claim.generation, neighbour)
            if home.record.generation <= claim.generation:
                self.come(home, claim.generation + 1)
            self._give(neighbour, Give(client, home.record.generation, STALE, home=me))
            return
        generation, at = self._generations.get(client, (0, ""))
        if (
            generation > claim.generation
            and claim.hold < Hold.CONNECTED
            and at in care.sites.live - {me, neighbour}
        ):
            self._give(neighbour, Give(client, generation, STALE, home=at))
            return
        self._learn(client, claim.generation, neighbour)
        known = RecordTable({}, care.sites.client_bytes)
        record = known.open(client)
        gave = home is not None
        record.born = ended = care.copies.ended.get(client, 0)
        if home is not None:
            self._leave(home, neighbour)
            record.generation = home.record.generation
            known.merge(record, care.place.snapshot(home.record))
        for (node, life), copy, kept in care.copies.of(client):
            if (node, life) == (neighbour, care.sites.life_of(neighbour)):
                continue
            copy.to[client] = neighbour, claim.generation
            record.generation = max(kept.generation, record.generation)
            known.merge(record, copy.place.snapshot(kept))
            gave = True
        told = known.snapshot(record) if gave else None
        names = care.publishers.last(client)
        self._give(neighbour, Give(client, claim.generation, ANSWER, told, names, ended=ended))

    def _stays(self, home: Home, claim: ClientClaim, neighbour: str) -> bool:
        mine = home.hold, home.record.generation, self._host.node_id
        return mine > (claim.hold, claim.generation, neighbour)

    def _leave(self, home: Home, to: str) -> None:
        home.state, home.to, home.claiming = State.LEAVING, to, None
        self._care.close(home)

    def _give(self, neighbour: str, give: Give) -> None:
        self._host.send_own(neighbour, wire.GIVE, wire.encode_give(give, self._host.now()))

    def forward(self, to: str, told: Snapshot) -> None:
        """Something came for a client that another site has claimed."""
        if to == self._host.node_id:
            home = self._care.homes.get(told.client)
            if home is not None and home.state is State.HOME:
                self._care.merge(home, told)
                self._care.pump(home)
        else:
            self._forward(to, told)

    def _forward(self, to: str, told: Snapshot) -> None:
        self._give(to, Give(told.client, told.generation, LATE, told))

    def released(self, neighbour: str, payload: bytes) -> None:
        release = wire.decode_release(payload)
        care, home = self._care, self._care.homes.get(release.client)
        if home is not None and home.state is State.LEAVING and home.to == neighbour:
            care.want_no_more(home.record)
        version = care.sites.announce()
        self._releasing.append(_Releasing(release.client, neighbour, release.generation, version))
        self.look()

    def look(self) -> None:
        """Let go of what nothing can come for any more."""
        care = self._care
        for each in list(self._releasing):
            if each.to not in care.sites.live:
                self._releasing.remove(each)
            elif each.to in care.sites.linked() and care.all_know(care.sites.linked(), each.version, {}):
                self._releasing.remove(each)
                self._let_go(each)

    def _let_go(self, releasing: _Releasing) -> None:
        care, client = self._care, releasing.client
        home = care.homes.get(client)
        if home is not None and home.state is State.LEAVING and home.to == releasing.to:
            care.drop(home)
        self.drop_copies(client, releasing.to)
        self._give(releasing.to, Give(client, releasing.generation, DONE))

    def drop_copies(self, client: str, to: str) -> None:
        """Who claimed a client has all that copies here have."""
        for life, copy, _ in self._care.copies.of(client):
            if copy.to.get(client, ("", 0))[0] == to:
                del copy.to[client]
                self._care.copies.drop(life, client)

    # Sites come and go

    def up(self, neighbour: str) -> None:
        """A neighbour may not have heard of who came lately."""
        care = self._care
        for home in list(care.homes.values()):
            if home.state is State.HOME and not self.answered(home, (neighbour,)):
                if home.claiming is None:
                    self.changed(home)
                self._ask(home, neighbour)
            elif home.state is State.LEAVING and home.to == neighbour:
                self._forward(neighbour, care.place.snapshot(home.record))
        for copy in care.copies.homes.values():
            for client, (to, _) in copy.to.items():
                if to == neighbour and client in copy.place.records:
                    self._forward(neighbour, copy.place.snapshot(copy.place.records[client]))

    def lives(self) -> None:
        """Other sites live, or one began another life: clients without a home get one."""
        care, live = self._care, self._care.sites.live
        for home in list(care.homes.values()):
            if home.state is State.LEAVING and home.to not in live:
                self.come(home, home.record.generation + 1)
        for (node, life), copy in list(care.copies.homes.items()):
            for client in [c for c, (to, _) in copy.to.items() if to not in live]:
                del copy.to[client]
            if self._is_home(node, life):
                continue
            self._drop_claimed((node, life), copy)
            heir = next((holder for holder in copy.holders if holder in live), None)
            if heir == self._host.node_id and care.sites.ready():
                self._adopt(node, life)
            elif not copy.place.records:
                del care.copies.homes[node, life]
        self.look()

    def restored(self) -> None:
        """After a restart: go on with what the disk has of clients that were here."""
        care, me = self._care, self._host.node_id
        for life, copy in list(care.copies.homes.items()):
            for record in copy.place if life[0] == me else ():
                record.will = b""  # the others have it, and the broker here
                self._take(life, record)
        self._when_ready()

    def _when_ready(self) -> None:
        if self._care.sites.ready():
            self.lives()
        else:
            self._host.call_later(LOOK_SECONDS, self._when_ready)

    def _drop_claimed(self, life: tuple[str, int], copy: Copy) -> None:
        """What came here for clients whose home was another site, and is this one since: it is gone."""
        for client in [c for c, (to, _) in copy.to.items() if to == self._host.node_id]:
            record, home = copy.place.records.get(client), self._care.homes.get(client)
            if record is not None and home is not None:
                self._care.merge(home, copy.place.snapshot(record))
            self._care.copies.drop(life, client)
            del copy.to[client]

    def _is_home(self, node: str, life: int) -> bool:
        """Whether a life of a site goes on, as far as is known."""
        if node == self._host.node_id:
            return life == self._care.sites.life
        return node in self._care.sites.live and self._care.sites.life_of(node) in (0, life)

    def _adopt(self, node: str, life: int) -> None:
        care = self._care
        copy = care.copies.homes[node, life]
        for record in copy.place:
            if record.client not in copy.to:
                self._take((node, life), record)
        if (node, life) not in self._adopted:
            self._adopted.add((node, life))
            care.sites.adopted(frozenset(self._adopted))
            self._host.call_later(care.window, lambda: self._forget(node, life))

    def _take(self, life: tuple[str, int], record: Record) -> None:
        """A client whose home is gone."""
        care = self._care
        home = care.homes.get(record.client)
        if home is None:
            home = care.adopt(record)
            self._host.count("clients_adopted")
            self.come(home, record.generation)
        else:
            self.forward(self._host.node_id, care.copies.homes[life].place.snapshot(record))
            care.copies.drop(life, record.client)

    def _forget(self, node: str, life: int) -> None:
        self._adopted.discard((node, life))
        self._care.sites.adopted(frozenset(self._adopted))
        copy = self._care.copies.homes.get((node, life))
        for record in copy.place if copy is not None else ():
            self._care.copies.drop((node, life), record.client)
        self._care.copies.homes.pop((node, life), None)
