"""All clients of one gateway: where they are, who looks for a site, who moves, and what those who left want.

Owns what is decided for a client around its tunnel, so that a gateway's process and the simulator's do the
same. Invariants: each order has one result; a client without a site is looked after; a connection that comes
too late is closed; a client is told of under one name at a time. Must not know: sockets, datagrams, clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from brokerweave.gateway.left_sessions import LeftSessions, is_persistent
from brokerweave.gateway.link import SiteLink
from brokerweave.gateway.orders import MoveTask, MoveTasks
from brokerweave.gateway.search import Seeker, SiteSearch
from brokerweave.gateway.transitions import ClientWay, MoveStep
from brokerweave.mqtt.packets import Connect


class TunnelEnd(Seeker, Protocol):
    """The sockets of one client."""

    def set_deadline(self, seconds: float, overdue: Callable[[], None]) -> None:
        """In place of the one that is set."""

    def drop_deadline(self) -> None: ...

    def look(self) -> None:
        """Something was said: who may pass, and who is read?"""


_ON_ITS_WAY = frozenset({ClientWay.GREETING, ClientWay.DRAINING, ClientWay.ASKING})
E = TypeVar("E", bound=TunnelEnd)


class GatewayCoreHost(Protocol[E]):
    """The process. What is asked for here is answered later, not from within the call."""

    def now(self) -> float: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> object: ...

    def place(self, client: E, done: Callable[[tuple[str, ...]], None]) -> None:
        """Ask which sites are good for a client, the best first."""

    def open(self, client: E, site: str, drains: bool) -> None:
        """Connect; `opened` or `unreachable` follows within a bounded time. `drains`: of `SiteLink`."""

    def probe(self, site: str, done: Callable[[bool], None]) -> None:
        """Does the site take clients?"""

    def clear(self, site: str, connect: Connect, done: Callable[[bool], None]) -> None:
        """Of `LeftSessions`."""

    def client_at(self, name: str, site: str) -> None:
        """It came there, or was moved there."""

    def client_gone(self, name: str) -> None: ...

    def order_ended(self, task: MoveTask[E], step: MoveStep, why: str) -> None: ...


@dataclass(frozen=True, slots=True)
class GatewayRules:
    """Times are seconds."""

    answer: float
    """For a site, to answer CONNECT."""
    drain: float
    """For the old site, once the new one has accepted the client."""
    search: float
    """For looking after a client that lost its site."""
    at_once: int
    """Moves under way."""
    planned: bool
    """Sites agree on moves, where both are nodes of one mesh."""
    bare: frozenset[str] = frozenset()
    """Sites that are not."""


class GatewayCore(Generic[E]):
    def __init__(self, host: GatewayCoreHost[E], rules: GatewayRules, name: Callable[[str], str]) -> None:
        """`name`: what a client is called outside, by its id."""
        self.rules = rules
        self._name = name
        self.counters: Counter[str] = Counter()
        self.clients: dict[E, str] = {}
        """With their names; empty until they have a site."""
        self.named: dict[str, E] = {}
        self._behind: dict[E, list[E]] = {}
        """New connections of clients that move still, or are about to leave."""
        self.tasks = MoveTasks(rules.at_once, self._begin, self._task_ended)
        self.sessions = LeftSessions(host.clear, lambda: self._count("sessions_not_cleared"))
        self._host = host
        self._search = SiteSearch(self, rules.search)

    def _count(self, what: str) -> None:
        self.counters[what] += 1

    # Clients

    def connected(self, client: E) -> None:
        self.clients[client] = ""

    def arrived(self, client: E) -> None:
        """It said CONNECT. If it is here already, and on its way, the site to go to is yet to be seen."""
        connect = client.tunnel.connect
        assert connect is not None
        before = self.named.get(self._name(connect.client_id)) if connect.client_id else None
        if before is not None and before.tunnel.way in _ON_ITS_WAY:
            before.tunnel.client_gone()
            if before.tunnel.way in _ON_ITS_WAY:
                self._behind.setdefault(before, []).append(client)
                return
        self.seek(client)

    def _next(self, client: E) -> None:
        for each in self._behind.pop(client, ()):
            if each.tunnel.way is ClientWay.SEEKING:
                self.seek(each)

    def seek(self, client: E) -> None:
        self._search.seek(client)

    def gone(self, client: E) -> None:
        """Its tunnel ended."""
        self._search.over(client)
        name = self.clients.pop(client, "")
        if name and self.named.get(name) is client:
            self.sessions.gone(client.tunnel)
            del self.named[name]
            self._host.client_gone(name)
        self._next(client)

    def _is_at(self, client: E, site: str) -> None:
        connect = client.tunnel.connect
        assert connect is not None
        name = self._name(connect.client_id)
        if not self.clients.get(client):
            self.clients[client] = name
            self.named[name] = client
            self.sessions.came(client.tunnel)
        else:
            self._count("site_changes")
        self._host.client_at(name, site)

    # Connections to sites; of `SearchHost`, too

    def now(self) -> float:
        return self._host.now()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> object:
        return self._host.call_later(seconds, callback)

    def place(self, client: E, done: Callable[[tuple[str, ...]], None]) -> None:
        connect = client.tunnel.connect
        name = connect.client_id if connect is not None else ""
        before = self.named.get(self._name(name))
        at = before.tunnel.session_at if before is not None and before is not client else ""
        self._host.place(client, lambda sites: done(self.sessions.at_first(name, sites, at)))

    def dial(self, client: E, site: str) -> None:
        """Connect there, when nothing of the client's is left there that would come late: MQTT 5 says that in
        CONNECT."""
        tunnel, rules = client.tunnel, self.rules
        old = tunnel.link.site if tunnel.link is not None else site
        drains = rules.planned and not {site, old} & rules.bare
        connect, told = tunnel.connect, tunnel.connack
        assert connect is not None

        def free() -> None:
            left = told is not None and not drains and connect.version < 5 and is_persistent(connect)
            if left:
                self._host.clear(site, connect, cleared)
            else:
                self._host.open(client, site, drains)

        def cleared(worked: bool) -> None:
            if worked:
                self._host.open(client, site, drains)
            else:
                self.unreachable(client, f"{site}: a session that was left there could not be ended")

        self.sessions.when_ended(site, connect.client_id, free)

    def dial_target(self, client: E) -> None:
        self.dial(client, self.tasks.target(client))

    def opened(self, client: E, link: SiteLink) -> bool:
        """A connection to a site is there. False: it is too late; close it."""
        tunnel = client.tunnel
        if tunnel.way not in (ClientWay.DIALING, ClientWay.SEEKING) or tunnel.other is not None:
            return False
        tunnel.opened(link)
        client.look()
        return True

    def unreachable(self, client: E, why: str) -> None:
        if client.tunnel.way in (ClientWay.DIALING, ClientWay.SEEKING):
            client.tunnel.unreachable(why)
            client.look()

    def announces(self, client: E, link: SiteLink, old: str) -> bool:
        """CONNECT goes to a site now. Is a planned move to be announced before it?"""
        client.set_deadline(self.rules.answer, partial(self._overdue, client, False))
        return bool(old) and link.drains

    def _overdue(self, client: E, drained: bool) -> None:
        """A site did not answer in time; but where it has, the old one has longer."""
        tunnel = client.tunnel
        if tunnel.way is ClientWay.DRAINING and not drained:
            client.set_deadline(self.rules.drain, partial(self._overdue, client, True))
        elif tunnel.way in (ClientWay.GREETING, ClientWay.ASKING, ClientWay.DRAINING):
            tunnel.overdue()
            client.look()

    def site_lost(self, client: E, link: SiteLink) -> None:
        """A connection to a site ended by itself. Did the site die?"""
        tunnel = client.tunnel
        if link is tunnel.link and tunnel.way is ClientWay.AT_REST and not link.last_word:
            self._host.probe(link.site, partial(self._own_lost, client, link))
        else:
            tunnel.lost(link)
            client.look()

    def _own_lost(self, client: E, link: SiteLink, alive: bool) -> None:
        tunnel = client.tunnel
        if tunnel.link is not link or tunnel.way is ClientWay.ENDED:
            return
        if alive and tunnel.way is ClientWay.AT_REST:
            self._count("sent_away_by_site")
            tunnel.end()
        else:
            self._count("sites_lost")
            tunnel.lost(link)
            client.look()

    # Moves

    def move(self, client: E, target: str, number: int | None) -> str:
        """Why it cannot be moved; empty: the order will have a result."""
        why = self.tasks.obstacle(client)
        if not why:
            self.tasks.add(client, target, number)
            self._host.call_later(0.0, self.tasks.go_on)
        return why

    def settled(self, client: E, step: MoveStep, why: str) -> None:
        """A search or a move of a tunnel ended."""
        client.drop_deadline()
        tunnel = client.tunnel
        self._search.over(client)
        if tunnel.link is not None and tunnel.way is ClientWay.AT_REST:
            self._is_at(client, tunnel.link.site)
        self.counters["moves_late"] += step is MoveStep.LATE
        self.tasks.settled(client, step, why)
        self._next(client)
        self._host.call_later(0.0, self.tasks.go_on)

    def _begin(self, client: E) -> None:
        client.tunnel.order()
        client.look()

    def _task_ended(self, task: MoveTask[E], step: MoveStep, why: str) -> None:
        self._host.order_ended(task, step, why)

    def check(self) -> None:
        """Raises `AssertionError` if an invariant does not hold."""
        self.tasks.check()
        for client, name in self.clients.items():
            way = client.tunnel.way
            assert way is not ClientWay.ENDED, f"{name} is kept though its tunnel ended"
            assert way is not ClientWay.SEEKING or name == "" or client.tunnel.link is None, name
