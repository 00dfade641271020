"""Looking for a site for one client after another.

Owns who is asked next, and for how long. Invariants: a client that nobody told anything yet is refused when
each site was asked once; one that lost its site is looked after until `seconds` are over. Must not know: how
a site is reached, what a tunnel does with a connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from brokerweave.gateway.transitions import ClientWay
from brokerweave.gateway.tunnel import Tunnel

AGAIN_SECONDS = 0.5


class Seeker(Protocol):
    @property
    def tunnel(self) -> Tunnel: ...


S = TypeVar("S", bound=Seeker)
S_contra = TypeVar("S_contra", bound=Seeker, contravariant=True)


class SearchHost(Protocol[S_contra]):
    def now(self) -> float: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> object: ...

    def place(self, client: S_contra, done: Callable[[tuple[str, ...]], None]) -> None:
        """Ask which sites are good for a client, the best first."""

    def dial(self, client: S_contra, site: str) -> None: ...


@dataclass(slots=True)
class _Search:
    until: float
    left: deque[str] = field(default_factory=deque)


class SiteSearch(Generic[S]):
    def __init__(self, host: SearchHost[S], seconds: float) -> None:
        self._host = host
        self._seconds = seconds
        self._searches: dict[S, _Search] = {}

    def __contains__(self, client: object) -> bool:
        return client in self._searches

    def seek(self, client: S) -> None:
        """Try the next site."""
        host, search = self._host, self._searches.get(client)
        if search is None:
            search = self._searches[client] = _Search(host.now() + self._seconds)
            self._ask(client, search)
        elif search.left:
            host.dial(client, search.left.popleft())
        elif client.tunnel.connack is None or host.now() > search.until:
            host.call_later(0.0, lambda: self._give_up(client))
        else:
            host.call_later(AGAIN_SECONDS, lambda: self._ask(client, search))

    def over(self, client: S) -> None:
        self._searches.pop(client, None)

    def _ask(self, client: S, search: _Search) -> None:
        def placed(sites: tuple[str, ...]) -> None:
            if self._searches.get(client) is search:
                search.left.extend(sites)
                self._host.call_later(0.0, lambda: self._first(client, search))

        if self._searches.get(client) is search:
            self._host.place(client, placed)

    def _first(self, client: S, search: _Search) -> None:
        if self._searches.get(client) is search:
            if search.left:
                self._host.dial(client, search.left.popleft())
            else:
                self._give_up(client)

    def _give_up(self, client: S) -> None:
        if client.tunnel.way in (ClientWay.SEEKING, ClientWay.ASKING):
            client.tunnel.hopeless()
