"""Clients whose home is gone: the first of its holders that lives becomes their home.

Owns which lives of sites this one has adopted. Invariants: a client whose home died, or began another life,
is claimed by one that has a copy of its record, if one lives; that is said until others have forgotten that
life. Must not know: what clients get, brokers.
"""

from __future__ import annotations

from functools import partial

from brokerweave.care.claims import Claims
from brokerweave.care.copies import Copies, Copy
from brokerweave.care.disk import Life
from brokerweave.care.home import State
from brokerweave.care.homes import Homes
from brokerweave.care.host import CareHost
from brokerweave.care.record import Record
from brokerweave.care.wills import AdoptedWills
from brokerweave.plugin.sites import SiteBook

LOOK_SECONDS = 0.2
"""How often a node that was started looks whether it knows the others."""


class Adoption:
    def __init__(
        self,
        host: CareHost,
        sites: SiteBook,
        homes: Homes,
        copies: Copies,
        claims: Claims,
        wills: AdoptedWills,
    ) -> None:
        self._host = host
        self._sites = sites
        self._homes = homes
        self._copies = copies
        self._claims = claims
        self._wills = wills
        self._given: dict[Life, Copy] = {}
        """Lives that it has adopted, but for clients that others claimed and that it goes on with."""
        self._adopted: set[Life] = set()

    def lives(self) -> None:
        """Other sites live, or one began another life: clients without a home get one."""
        is_home = self._claims.is_home
        self._claims.releases.lives()
        for home in self._homes:
            if home.state is not State.HOME and not is_home(home.to, home.to_life):
                self._claims.come(home, home.record.generation + 1)
        for life, copy in list(self._copies.homes.items()):
            for client in [c for c, (to, _, at) in copy.to.items() if not is_home(to, at)]:
                del copy.to[client]
            if not is_home(*life):
                self._home_is_gone(life, copy)
        self._claims.look()

    def _home_is_gone(self, life: Life, copy: Copy) -> None:
        self._drop_claimed(life, copy)
        me, is_home = self._host.node_id, self._claims.is_home
        heir = next((node for node, holds in copy.holders if is_home(node, holds)), me)
        if heir == me and self._sites.ready():
            self._adopt(life, copy)
        elif not copy.table.records:
            self._copies.end(life)

    def _drop_claimed(self, life: Life, copy: Copy) -> None:
        """What came here for clients whose home was another site, and is this one since: it is gone."""
        for client in [c for c, (to, *_) in copy.to.items() if to == self._host.node_id]:
            record, home = copy.table.records.get(client), self._homes.get(client)
            if record is not None and home is not None:
                self._homes.merge(home, copy.table.snapshot(record))
            self._copies.drop(life, client)
            del copy.to[client]

    def _adopt(self, life: Life, copy: Copy) -> None:
        for record in copy.table:
            if record.client not in copy.to:
                self._take(life, record)
        self._given[life] = copy
        self.released()

    def released(self) -> None:
        """This site may have been released of what it knew of some clients. Only when it goes on with none of
        those that were claimed elsewhere others forget what their home wanted."""
        for life, copy in list(self._given.items()):
            if not any(self._claims.releases.goes_on(client, to) for client, (to, *_) in copy.to.items()):
                del self._given[life]
                self._say(life)

    def _say(self, life: Life) -> None:
        if life not in self._adopted:
            self._adopted.add(life)
            self._sites.adopted(frozenset(self._adopted))
            self._host.call_later(self._sites.window, partial(self._forget, life))

    def _take(self, life: Life, record: Record) -> None:
        """A client whose home is gone."""
        home = self._homes.get(record.client)
        if record.session <= self._copies.ended.get(record.client, 0) > 0:
            self._copies.drop(life, record.client)
            return
        if home is not None:
            self._claims.forward(self._host.node_id, self._copies.homes[life].table.snapshot(record))
            self._copies.drop(life, record.client)
            return
        home = self._homes.open(record.client, session=False)
        home.record.will = record.will
        self._host.call_later(self._sites.window, partial(self._homes.give_up, home))
        self._wills.adopted(home)
        self._host.count("clients_adopted")
        self._claims.come(home, record.generation)

    def goes_on(self, life: Life) -> None:
        """It was only out of reach, and is the home of its clients again."""
        self._given.pop(life, None)
        if life in self._adopted:
            self._adopted.discard(life)
            self._sites.adopted(frozenset(self._adopted))

    def _forget(self, life: Life) -> None:
        self._adopted.discard(life)
        self._sites.adopted(frozenset(self._adopted))
        copy = self._copies.homes.get(life)
        for record in copy.table if copy is not None else ():
            self._copies.drop(life, record.client)
        self._copies.end(life)

    # After a start

    def restored(self) -> None:
        """Go on with what the disk has of clients that were here."""
        for life, copy in list(self._copies.homes.items()):
            for record in copy.table if life[0] == self._host.node_id else ():
                record.will = b""  # the others have it, and the broker here
                self._take(life, record)
        self._when_ready()

    def _when_ready(self) -> None:
        if self._sites.ready():
            self.lives()
        else:
            self._host.call_later(LOOK_SECONDS, self._when_ready)
