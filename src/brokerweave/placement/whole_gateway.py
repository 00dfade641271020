"""A gateway's side of EMMA's own procedure: all its clients are at one site, and are moved together.

What `GatewayAgent` is where datagrams are sealed. Owns which clients are on their way for an order of the
controller, and the answer when all of them have arrived or failed. Invariants: an order is answered at most
once, the last one always; a new client goes where the gateway is. Must not know: sockets, Table I's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from brokerweave.placement.emma_agents import EmmaGatewayAgent
from brokerweave.placement.followed import Address, KnownSite
from brokerweave.placement.gateway_agent import AgentHost
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.table_one import NOWHERE


class WholeGatewayAgent:
    def __init__(
        self,
        gateway: str,
        controller: Address,
        sites: Iterable[KnownSite],
        random: Random,
        host: AgentHost,
        now: float,
    ) -> None:
        """`sites`: with names. Another one, that the controller sends the gateway to, is called by its
        address."""
        self._host = host
        self._controller = controller
        self._sites = {site.name: site for site in sites}
        self._clients: dict[str, str] = {}
        self._order: tuple[int, KnownSite] | None = None
        self._under_way: set[int] = set()
        self._arrived = 0
        self._number = 0
        self._now = now
        self._emma = EmmaGatewayAgent(gateway, controller, random, self, now)
        host.sites_changed(self._sites)

    @property
    def follows(self) -> str:
        """Table I does not name the controller: its address, once it has placed the gateway."""
        return "" if self._emma.site == NOWHERE else f"{self._controller[0]}:{self._controller[1]}"

    @property
    def refused(self) -> dict[str, int]:
        return self._emma.refused

    def round_trips(self) -> dict[str, float]:
        """Only the controller knows them: it asks for each measurement."""
        return {}

    # What the gateway says and asks

    def client_at(self, client: str, site: str, now: float, rate: float = 0.0) -> None:
        """If all of them are elsewhere, for their site has died, the gateway registers anew."""
        self._now, self._clients[client] = now, site
        known = self._sites.get(site)
        gone = self._emma.site != NOWHERE and set(self._clients.values()) == {site}
        if self._order is None and gone and known is not None and known.clients != self._emma.site:
            self._emma.reconnected(0, known.clients, now)

    def client_gone(self, client: str, now: float) -> None:
        self._clients.pop(client, None)

    def place(self, client: str, done: Callable[[tuple[str, ...]], None], now: float) -> None:
        """`done` is called once, with all sites: first the one where the gateway is."""
        at = [name for name, site in self._sites.items() if site.clients == self._emma.site]
        done((*at, *sorted(self._sites.keys() - set(at))))

    def moved(self, number: int, outcome: MoveOutcome, note: str, now: float) -> None:
        if number in self._under_way:
            self._now = now
            self._under_way.discard(number)
            self._arrived += outcome is MoveOutcome.DONE
            if not self._under_way:
                self._answer()

    # Time and datagrams

    def next_due(self) -> float:
        return self._emma.next_due()

    def tick(self, now: float) -> None:
        self._now = now
        self._emma.tick(now)

    def hear(self, data: bytes, source: Address, now: float) -> None:
        self._now = now
        self._emma.hear(data, source, now)

    # Of `EmmaHost`

    def send(self, data: bytes, to: Address) -> None:
        self._host.send(data, to)

    def reconnect(self, number: int, site: Address) -> None:
        target = next((each for each in self._sites.values() if each.clients == site), None)
        if target is None:
            target = KnownSite(f"{site[0]}:{site[1]}", site)
            self._sites[target.name] = target
            self._host.sites_changed(self._sites)
        leaving = [client for client, at in self._clients.items() if at != target.name]
        moves = {self._number + 1 + place: client for place, client in enumerate(leaving)}
        self._number += len(moves)
        self._order, self._under_way, self._arrived = (number, target), set(moves), 0
        if not moves:
            self._answer()
        for each, client in moves.items():
            self._host.move(each, client, target.name)

    def _answer(self) -> None:
        """Those that could not be moved stay where they are; the gateway has not moved if nobody did."""
        order, self._order = self._order, None
        if order is not None:
            number, target = order
            stays = bool(self._clients) and not self._arrived and target.name not in self._clients.values()
            self._emma.reconnected(number, self._emma.site if stays else target.clients, self._now)
