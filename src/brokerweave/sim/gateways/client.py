"""One client of a simulated gateway: its connection, and those to sites, as `runtime.gateway_relay` has them.

Owns the pipes, and back-pressure between them. Invariants: a side that does not read stops the other's
reading; the end of the tunnel ends all connections. Must not know: what frames mean, which site is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerweave.gateway.link import SiteLink
from brokerweave.gateway.transitions import ClientWay, MoveStep
from brokerweave.gateway.tunnel import Tunnel
from brokerweave.mqtt.packets import Connect
from brokerweave.session import proxy_header
from brokerweave.session.move_ticket import PlannedMove, make
from brokerweave.sim.gateways.seen import SeenClient, SeenSending
from brokerweave.sim.node import KEY
from brokerweave.sim.pipes import Handler, PipeEnd
from brokerweave.sim.world import ScheduledEvent

if TYPE_CHECKING:
    from brokerweave.sim.gateways.gateway import SimGateway

MAX_PACKET = 1 << 20
QUEUE = 64 << 10
TICKET_SECONDS = 1e6
"""Nodes' clocks may jump."""


class GatewayedClient:
    """Implements `TunnelHost` and `TunnelEnd`."""

    def __init__(self, gateway: SimGateway, end: PipeEnd) -> None:
        self.end = end
        self.sites: dict[SiteLink, _SiteHalf] = {}
        self.tunnel = Tunnel(self, MAX_PACKET, QUEUE)
        self._gateway = gateway
        self._deadline: ScheduledEvent | None = None
        self._seen: SeenClient | None = None
        self._at: SiteLink | None = None
        """The site where users see it."""
        self._since = 0.0
        """When the last move began."""
        self._drained = False
        """Its old site has ended the connection as planned."""
        self._replayed: SiteLink | None = None
        """Where all that it wants was granted."""

    # Pipes

    def received(self, data: bytes) -> None:
        self.tunnel.from_client(data)
        if self._seen is not None:
            self._seen.passed()
        self.look()

    def lost(self) -> None:
        self.tunnel.client_gone()

    def writable_again(self) -> None:
        self.look()

    def open_site(self, site: str, drains: bool) -> Callable[[PipeEnd], Handler]:
        """What a connection to a site is for."""

        def made(end: PipeEnd) -> Handler:
            link = SiteLink(site, drains, MAX_PACKET, QUEUE, lambda file, data: len(data))
            half = self.sites[link] = _SiteHalf(self, end, link, self._gateway)
            if not self._gateway.core.opened(self, link):
                self.close_site(link)
            return half

        return made

    def from_site(self, link: SiteLink, data: bytes) -> None:
        if link in self.sites:
            self.tunnel.from_site(link, data)
            self.look()

    def site_lost(self, link: SiteLink) -> None:
        if self.sites.pop(link, None) is not None:
            self._drained = link is self.tunnel.link and self.tunnel.way is ClientWay.DRAINING
            self._gateway.core.site_lost(self, link)
            self._drained = False

    # Of `TunnelEnd`

    def set_deadline(self, seconds: float, overdue: Callable[[], None]) -> None:
        self.drop_deadline()
        self._deadline = self._gateway.host.later(seconds, overdue)

    def drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def look(self) -> None:
        tunnel = self.tunnel
        link = tunnel.link
        site = self.sites.get(link) if link is not None else None
        _set_reading(self.end, not (tunnel.full or (site is not None and not site.end.writable)))
        for each, half in self.sites.items():
            _set_reading(half.end, self.end.writable and each.early_bytes <= QUEUE)
        self._follow()

    # Of `TunnelHost`

    def to_client(self, data: bytes) -> None:
        self._follow()
        self.end.write(data)
        if self._seen is not None:
            self._seen.wrote()

    def to_site(self, link: SiteLink, data: bytes) -> None:
        half = self.sites.get(link)
        if half is not None:
            half.write(data)

    def close_site(self, link: SiteLink) -> None:
        half = self.sites.pop(link, None)
        if half is not None:
            half.end.close()

    def close_client(self) -> None:
        self.drop_deadline()
        self._gateway.core.gone(self)
        self.end.close()

    def arrived(self) -> None:
        self._seen = self._gateway.seen(self)
        self._gateway.core.arrived(self)

    def seek(self) -> None:
        self._gateway.core.seek(self)

    def dial(self) -> None:
        self._gateway.core.dial_target(self)

    def announcement(self, link: SiteLink, old: str) -> bytes:
        gateway, connect = self._gateway, self.tunnel.connect
        self._since = gateway.now()
        if not gateway.core.announces(self, link, old) or connect is None:
            return b""
        move = PlannedMove(connect.client_id, old, link.site, gateway.ticket_number())
        ticket = make(KEY, move, gateway.now() + TICKET_SECONDS)
        header = proxy_header.encode(None, None, (proxy_header.TICKET, ticket))
        self.sites[link].header = len(header)
        return header

    def clear_session(self, site: str, connect: Connect) -> None:
        self._gateway.core.sessions.end(site, connect)

    def draw_id(self) -> str:
        raise AssertionError("model clients have ids")

    def settled(self, step: MoveStep, why: str) -> None:
        self._follow()
        self._gateway.core.settled(self, step, why)

    # What users see

    def _follow(self) -> None:
        """Its site may be another one now, and may have granted what it wants."""
        link, seen = self.tunnel.link, self._seen
        if seen is None:
            return
        if link is not self._at:
            was, self._at = self._at, link
            if was is not None:
                seen.left(self._since if self._drained else None)
            if link is not None and link in self.sites and link.connack is not None:
                seen.is_at(link.site, self.sites[link].end, link.connack.session_present)
                if self._replayed is None:
                    self._replayed = link  # nothing was wanted before
        if link is not None and self._replayed is not link and not link.replay.subscribing:
            self._replayed = link
            granted = self.tunnel.wanted.granted
            seen.granted({each: subscription.qos for each, (subscription, _) in granted.items()})


class _SiteHalf:
    def __init__(self, client: GatewayedClient, end: PipeEnd, link: SiteLink, gateway: SimGateway) -> None:
        self.end = end
        self.header = 0
        """Bytes before CONNECT."""
        self._client = client
        self._link = link
        self._sending = SeenSending(gateway.observer.history, link.site)

    def write(self, data: bytes) -> None:
        self.end.write(data)
        self._sending.sent(data[self.header :])
        self.header = 0

    def received(self, data: bytes) -> None:
        self._client.from_site(self._link, data)

    def lost(self) -> None:
        self._client.site_lost(self._link)

    def writable_again(self) -> None:
        self._client.look()


def _set_reading(end: PipeEnd, reads: bool) -> None:
    if reads:
        end.resume()
    else:
        end.pause()
