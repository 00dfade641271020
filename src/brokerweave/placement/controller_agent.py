"""The controller's side towards gateways: their reports become the graph, its decisions become orders.

Owns what is known of each gateway's process: where it is, and the copy of its list of clients. Invariants: a
gateway that restarted begins with no clients; what a gateway says of a site that is not known is ignored;
what is refused changes nothing and is counted. Must not know: sockets, how decisions are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, isfinite
from random import Random
from zlib import crc32

from brokerweave.errors import RemoteProtocolError
from brokerweave.placement import messages
from brokerweave.placement.channel import Channel, OpenedDatagram
from brokerweave.placement.client_list import ClientListCopy
from brokerweave.placement.coordinates import Coordinates
from brokerweave.placement.core import ControllerCore, CoreSettings
from brokerweave.placement.messages import (
    ROOM,
    ClientPage,
    Message,
    MoveRequest,
    OrderResult,
    PlaceAnswer,
    PlaceRequest,
    Report,
    ReportReceipt,
    SiteEntry,
    SitePage,
    site_size,
)
from brokerweave.placement.orders import MoveOrder
from brokerweave.placement.policy import PlacementPolicy
from brokerweave.placement.quality import Sample

Address = tuple[str, int]
MOST_PLACES = 8
"""Sites that an answer names."""
SITES_SECONDS = 1.0
"""Between two times that a gateway is told all sites."""


class _Gateway:
    __slots__ = ("address", "boot", "copy", "told")

    def __init__(self, address: Address, boot: int) -> None:
        self.address = address
        self.boot = boot
        self.copy = ClientListCopy()
        self.told = -inf


class ControllerAgent:
    """Call `tick(now)` at `next_due()`, and after anything was asked of `core`."""

    def __init__(
        self,
        controller: str,
        key: bytes,
        boot: int,
        policy: PlacementPolicy,
        settings: CoreSettings,
        random: Random,
        send: Callable[[bytes, Address], None],
        now: float,
        first: int,
    ) -> None:
        """`key`, `boot`: see `Channel`. `first`: see `Orders`."""
        self.core = ControllerCore(controller, policy, settings, self._order, now, first)
        self.coordinates = Coordinates(random)
        self._channel = Channel(key, boot, send)
        self._gateways: dict[str, _Gateway] = {}

    @property
    def refused(self) -> dict[str, int]:
        return self._channel.refused

    def next_due(self) -> float:
        return self.core.next_due()

    def tick(self, now: float) -> None:
        self.core.tick(now)
        for gateway in self._gateways.keys() - self.core.graph.gateways.keys():
            del self._gateways[gateway]  # it begins anew if it comes back
            self.coordinates.forget(f"gateway {gateway}")

    def hear(self, data: bytes, source: Address, now: float) -> None:
        heard = self._channel.hear(data, source, now)
        if heard is None:
            return
        try:
            message = messages.decode(heard.kind, heard.content)
        except RemoteProtocolError:
            self._channel.refuse()
            return
        if not self._understood(message, heard, now):
            self._channel.refuse()

    def _understood(self, message: Message, heard: OpenedDatagram, now: float) -> bool:
        """Whether it is something that a gateway may say."""
        if isinstance(message, Report):
            self._reported(message, heard, now)
            return True
        if not isinstance(message, (ClientPage, PlaceRequest, OrderResult)):
            return False
        gateway = self._gateways.get(message.gateway)
        if gateway is None or gateway.boot != heard.boot:
            return False  # its report was lost, or it is an earlier process: what follows repairs it
        if isinstance(message, ClientPage):
            self._page(message, gateway, now)
            self._receipt(gateway)
        elif isinstance(message, PlaceRequest):
            sites = tuple(self.core.place(message.gateway, message.client, now)[:MOST_PLACES])
            self._tell(gateway, PlaceAnswer(message.seq, sites))
        else:
            self.core.orders.finished(message.gateway, message.number, message.outcome, message.note, now)
        return True

    def _reported(self, report: Report, heard: OpenedDatagram, now: float) -> None:
        gateway = self._gateways.get(report.gateway)
        if gateway is None or gateway.boot != heard.boot:
            if report.gateway in self.core.graph.gateways:
                self.core.gateway_gone(report.gateway, now)
            gateway = self._gateways[report.gateway] = _Gateway(heard.address, heard.boot)
        gateway.address = heard.address
        self.core.gateway_heard(report.gateway, report.follows, now)
        for each in report.measured:
            site = self.core.graph.sites.get(each.site)
            if site is not None:
                sample = Sample(now - each.age, each.mean, each.jitter, each.loss, each.pings)
                self.core.graph.measured(report.gateway, each.site, sample)
                site.cpu = each.cpu
                if isfinite(each.mean):
                    self.coordinates.heard(f"gateway {report.gateway}", f"site {each.site}", each.mean)
        if report.sites != self._digest() and now - gateway.told >= SITES_SECONDS:
            gateway.told = now
            for page in self._site_pages(report.gateway):
                self._tell(gateway, page)
        self._receipt(gateway)

    def _page(self, page: ClientPage, gateway: _Gateway, now: float) -> None:
        for entry in gateway.copy.take(page):
            if entry.site:
                self.core.client_at(page.gateway, entry.client, entry.site, entry.rate)
            else:
                self.core.client_gone(page.gateway, entry.client, now)

    def _receipt(self, gateway: _Gateway) -> None:
        self._tell(gateway, ReportReceipt(self.core.id, gateway.copy.held))

    def _order(self, order: MoveOrder) -> None:
        gateway = self._gateways.get(order.gateway)
        if gateway is not None:
            self._tell(gateway, MoveRequest(order.number, order.client, order.origin, order.target))

    def _tell(self, gateway: _Gateway, message: Message) -> None:
        self._channel.tell(gateway.address, gateway.boot, *messages.encode(message))

    # The list of sites

    def _entries(self, gateway: str = "") -> Iterator[SiteEntry]:
        for site in sorted(self.core.graph.sites.values(), key=lambda each: each.name):
            if site.present:
                guess = self.coordinates.guess(f"gateway {gateway}", f"site {site.name}") if gateway else None
                yield SiteEntry(site.name, site.clients, site.monitor, guess)

    def _digest(self) -> int:
        """The same for the same sites, whichever controller tells them; never 0, which stands for none."""
        _, content = messages.encode(SitePage(0, 0, 1, tuple(self._entries())))
        return crc32(content) or 1

    def _site_pages(self, gateway: str) -> list[SitePage]:
        pages: list[list[SiteEntry]] = [[]]
        size = 0
        for entry in self._entries(gateway):
            if size + site_size(entry) > ROOM - 16:
                pages.append([])
                size = 0
            pages[-1].append(entry)
            size += site_size(entry)
        digest = self._digest()
        return [SitePage(digest, number, len(pages), tuple(page)) for number, page in enumerate(pages)]
