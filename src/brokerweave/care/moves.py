"""Planned moves: the old site of a client drains before it gives the record; the new one says how it went.

Owns the drains of this site, and the results of moves that led here. Invariants: while a client's connection
drains, nothing new goes to it; a drain ends when nothing is in flight, when its time is up, or with the
connection; each move has one result. Must not know: what a claim is answered with, tickets.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from brokerweave.care.home import Draining, Home, State
from brokerweave.care.host import CareHost
from brokerweave.care.recent import Entering, RecentPublications
from brokerweave.care.wire import ClientClaim
from brokerweave.plugin.sites import SiteBook
from brokerweave.session.move_ticket import PlannedMove
from brokerweave.session.pair import Pair


class MoveEnd(enum.Enum):
    DRAINED = "drained"
    """The client is here, and nothing was in flight at its old site any more."""
    LATE = "late"
    """It is here; some publications were in flight there still, and may come twice."""
    NOTHING = "nothing"
    """It is here. Its old site had no connection of it, or was out of reach: no planned move after all."""
    REFUSED = "refused"
    """It is not here: its broker refused it, or its connection ended too early."""


@dataclass(frozen=True, slots=True)
class MoveResult:
    move: PlannedMove
    outcome: MoveEnd
    in_flight: int = 0
    """Publications that were begun at the old site, either way, and not done."""


class Moves:
    def __init__(
        self,
        host: CareHost,
        sites: SiteBook,
        recent: RecentPublications,
        give: Callable[[Home, ClientClaim, int], None],
    ) -> None:
        """`give`: a home leaves; its claim is answered, with so many publications in flight."""
        self._host = host
        self._sites = sites
        self._recent = recent
        self._give = give
        self._draining: set[Home] = set()

    def __len__(self) -> int:
        return len(self._draining)

    # At the old site

    def drains(self, home: Home, claim: ClientClaim, neighbour: str) -> bool:
        """Whether a claim that this home yields to is answered later, when its connection has drained."""
        draining = home.draining
        if draining is not None:
            same_life = home.to_life == self._sites.life_of(neighbour)
            if claim.planned and home.to == neighbour and same_life:
                draining.claim = claim
                return True
            self.end(home)
            return False
        if not claim.planned or home.state is not State.HOME or home.pair is None:
            return False
        home.state, home.to, home.to_life = State.DRAINING, neighbour, self._sites.life_of(neighbour)
        home.claiming = home.unsettled = None
        home.draining = draining = Draining(claim, home.pair)
        self._draining.add(home)
        # Who claimed it waits for all of `patience`.
        self._host.call_later(self._sites.patience / 2, partial(self._late, home, draining))
        self._drain(home, draining)
        return True

    def _drain(self, home: Home, draining: Draining) -> None:
        """When the turn is over in which the last answer came, it has gone on."""

        def answered() -> None:
            self._host.call_later(0, partial(self._drained, home, draining))

        draining.pair.drain(answered)

    def _drained(self, home: Home, draining: Draining) -> None:
        if home.draining is not draining:
            return
        if draining.pair.in_flight:
            self._drain(home, draining)
        elif not any(map(self._is_unnamed, self._recent.shown(home.client))):
            self.end(home)

    def _is_unnamed(self, entering: Entering) -> bool:
        """Whether a publication gets its id when the broker acknowledges it, and only then can be told of."""
        record = self._host.sessions.records.get(entering.publisher)
        publisher = record.owner if record is not None else None
        return isinstance(publisher, Pair) and publisher.awaits(entering.packet_id)

    def _late(self, home: Home, draining: Draining) -> None:
        if home.draining is draining:
            self.end(home)

    def look(self) -> None:
        """A publication got its name: it may have been all that a drain waited for."""
        for home in list(self._draining):
            if home.draining is not None:
                self._drained(home, home.draining)

    def end(self, home: Home) -> None:
        """The client's old connection has drained, or is not waited for any longer."""
        draining = home.draining
        if draining is not None:
            self._forget(home)
            self._give(home, draining.claim, draining.pair.in_flight)

    def call_off(self, home: Home) -> None:
        """The client stays here after all."""
        if home.draining is not None:
            home.draining.pair.go_on()
            self._forget(home)

    def _forget(self, home: Home) -> None:
        home.draining = None
        self._draining.discard(home)

    # At the new site

    @staticmethod
    def planned(home: Home, node: str) -> bool:
        """Whether a client's connection at another site is to drain, for one here."""
        return home.pair is not None and home.pair.move is not None and home.pair.move.old == node

    def answered(self, home: Home, neighbour: str, in_flight: int) -> None:
        """The old site of a client has drained."""
        if home.pair is not None and self.planned(home, neighbour):
            self._ended(home.pair, MoveEnd.LATE if in_flight else MoveEnd.DRAINED, in_flight)

    def opened(self, pair: Pair) -> None:
        """The stream to a client that is here opens."""
        self._ended(pair, MoveEnd.NOTHING)
        if pair.wants_pause:
            self._host.call_later(0, pair.subscribe_now)

    def over(self, pair: Pair) -> None:
        """A connection has ended."""
        self._ended(pair, MoveEnd.REFUSED)

    def _ended(self, pair: Pair, outcome: MoveEnd, in_flight: int = 0) -> None:
        move, pair.move = pair.move, None
        if move is not None:
            self._host.move_ended(MoveResult(move, outcome, in_flight))
