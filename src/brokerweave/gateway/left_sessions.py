"""What clients leave: sessions of those that are away, with their subscriptions, and those that are to end.

Invariants: a client that left a session from here comes back to its site, and what it wants is known; no
connection of a client is opened at a site while another one ends its session there, which would take it over;
what is remembered is bounded. Must not know: how a session is ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from brokerweave.gateway.tunnel import OpenAtClient, Tunnel
from brokerweave.mqtt.packets import Connect, Subscription
from brokerweave.mqtt.properties import Properties, Property, get_int

MOST_SESSIONS = 10_000
"""Of clients that are away, that are remembered."""
ClearSite = Callable[[str, Connect, Callable[[bool], None]], None]


class _Left(NamedTuple):
    site: str
    wanted: dict[str, tuple[Subscription, Properties]] | None
    """None: it is not known."""
    open: OpenAtClient


class LeftSessions:
    def __init__(self, clear: ClearSite, not_cleared: Callable[[], None]) -> None:
        """`clear`: connect to a site without a session, in a client's stead, and leave; it says within a
        bounded time whether that worked."""
        self._clear = clear
        self._not_cleared = not_cleared
        self._left: OrderedDict[str, _Left] = OrderedDict()
        self._clearing: dict[tuple[str, str], list[Callable[[], None]]] = {}
        """By site and client: what waits for the end."""

    def came(self, tunnel: Tunnel) -> None:
        """A client was accepted by its first site."""
        assert tunnel.connect is not None
        assert tunnel.connack is not None
        left = self._left.pop(tunnel.connect.client_id, None)
        if tunnel.connack.session_present:
            known = left.wanted if left is not None and left.site == tunnel.session_at else None
            tunnel.session_known = known is not None
            tunnel.wanted.granted.update(known or {})
            if left is not None and known is not None:
                tunnel.resume(left.open)

    def gone(self, tunnel: Tunnel) -> None:
        connect = tunnel.connect
        if connect is not None and is_persistent(connect):
            known = tunnel.wanted.granted if tunnel.session_known else None
            self._left[connect.client_id] = _Left(tunnel.session_at, known, tunnel.open)
            if len(self._left) > MOST_SESSIONS:
                self._left.popitem(last=False)

    def at_first(self, client: str, sites: tuple[str, ...], at: str) -> tuple[str, ...]:
        """Where to look for a site for a client that comes: where its session is, before all others. If the
        client went elsewhere, that would stay, and its broker would queue for it. `at`: the site of another
        connection of the client, if there is one."""
        left = self._left.get(client)
        site = at or (left.site if left is not None else "")
        return (site, *(each for each in sites if each != site)) if site in sites else sites

    def end(self, site: str, connect: Connect) -> None:
        """A client has left a session there."""
        key = site, connect.client_id
        waiting = self._clearing.setdefault(key, [])

        def done(worked: bool) -> None:
            if not worked:
                self._not_cleared()
            if self._clearing.get(key) is waiting:
                del self._clearing[key]
            for each in waiting:
                each()

        self._clear(site, connect, done)

    def when_ended(self, site: str, client: str, then: Callable[[], None]) -> None:
        """Now, if nothing is to end there."""
        waiting = self._clearing.get((site, client))
        if waiting is None:
            then()
        else:
            waiting.append(then)


def is_persistent(connect: Connect) -> bool:
    if connect.version == 5:
        return get_int(connect.properties, Property.SESSION_EXPIRY_INTERVAL) > 0
    return not connect.clean_start
