"""Who gave a client's record lets it go, when nothing can come for the client here any more.

Owns what this site was released of. Invariants: a site goes on wanting what a client does while a site lives,
as it sees it, that does not know where the client is; it passes on what comes until all sites have heard that
it does not want it any more, and what they sent before has come. Must not know: who claims, brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from brokerweave.care import wire
from brokerweave.care.copies import Copies
from brokerweave.care.hearing import Hearing
from brokerweave.care.home import State
from brokerweave.care.homes import Homes
from brokerweave.care.host import CareHost
from brokerweave.care.waiting import Thresholds
from brokerweave.care.wire import DONE, Give
from brokerweave.plugin.sites import SiteBook


@dataclass(slots=True, eq=False)
class _Releasing:
    """A claimer has the client; what was sent here before is yet to come."""

    client: str
    to: str
    life: int
    generation: int
    unheard: frozenset[str]
    """Sites that the claimer does not reach: while one of them lives, this site goes on."""
    version: int = 0
    """Of what this site wants since it does not want what the client does; 0: it still does."""


class Releases:
    def __init__(
        self,
        host: CareHost,
        sites: SiteBook,
        homes: Homes,
        copies: Copies,
        hearing: Hearing,
        is_home: Callable[[str, int], bool],
    ) -> None:
        """`is_home`: whether a life of a site goes on, as far as is known."""
        self._host = host
        self._sites = sites
        self._homes = homes
        self._copies = copies
        self._hearing = hearing
        self._is_home = is_home
        self._of: dict[str, _Releasing] = {}
        """By client."""
        self._waiting: Thresholds[_Releasing] = Thresholds()

    def released(self, neighbour: str, payload: bytes) -> None:
        release = wire.decode_release(payload)
        life, unheard = self._sites.life_of(neighbour), frozenset(release.unheard)
        releasing = _Releasing(release.client, neighbour, life, release.generation, unheard)
        self._of[release.client] = releasing
        self._want_no_more(releasing)

    def forget(self, client: str) -> None:
        """It came here again."""
        self._of.pop(client, None)

    def goes_on(self, client: str, to: str) -> bool:
        """Whether this site is yet to be released of what it knows of a client that another one claimed."""
        releasing = self._of.get(client)
        return releasing is None or releasing.to != to or not releasing.version

    def _want_no_more(self, releasing: _Releasing) -> None:
        if releasing.version or releasing.unheard & self._sites.live:
            return
        home = self._homes.get(releasing.client)
        if home is not None and home.state is State.LEAVING and home.to == releasing.to:
            self._homes.want_no_more(home.record)
        releasing.version = self._sites.announce()
        self._waiting.add(releasing.version, releasing, self._waits)
        self._let_go_if_nothing_comes(releasing)

    def _waits(self, releasing: _Releasing) -> bool:
        return self._of.get(releasing.client) is releasing

    # Somebody heard something

    def look(self) -> None:
        """Something changed that may concern all who wait."""
        for each in list(self._of.values()):
            self._let_go_if_nothing_comes(each)

    def heard(self, before: int, version: int) -> None:
        """A neighbour knows a version of what this site wants, and knew another one before."""
        for each in self._waiting.passed(before, version):
            if self._waits(each):
                self._let_go_if_nothing_comes(each)

    def lives(self) -> None:
        """Who is not home any more has left what it was released from to its own holders."""
        for each in list(self._of.values()):
            if self._is_home(each.to, each.life):
                self._want_no_more(each)
            else:
                self._let_go(each)

    def _let_go_if_nothing_comes(self, releasing: _Releasing) -> None:
        """Also who is away may have sent something here before it heard where the client is."""
        others, version = self._sites.remembered - {self._host.node_id}, releasing.version
        if version and releasing.to in self._sites.linked() and self._hearing.all_know(others, version, {}):
            self._let_go(releasing)
            done = wire.encode_give(Give(releasing.client, releasing.generation, DONE), self._host.now())
            self._host.send_own(releasing.to, wire.GIVE, done)

    def _let_go(self, releasing: _Releasing) -> None:
        client = releasing.client
        del self._of[client]
        home = self._homes.get(client)
        if home is not None and home.state is State.LEAVING and home.to == releasing.to:
            self._homes.drop(home)
        self.drop_copies(client, releasing.to)

    def drop_copies(self, client: str, to: str) -> None:
        """Who claimed a client has all that copies here have. A home that lives says itself what it drops."""
        for life, copy, _ in self._copies.of(client):
            if copy.to.get(client, ("", 0, 0))[0] == to:
                del copy.to[client]
                if not self._is_home(*life):
                    self._copies.drop(life, client)
