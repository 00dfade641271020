"""A gateway's side: it measures sites, tells controllers of its clients, and obeys one of the controllers.

Owns the prober, the list of clients and what is known of each controller. Of the controllers that answer, the
one with the lowest id is followed; without one, the gateway goes on with what it measured last. Invariants:
an order is carried out once, however often it comes, and only if it is from the controller that is followed;
a question where a new client should go is always answered within `PLACE_SECONDS`; datagrams that are refused
change nothing and are counted. Must not know: sockets, clients' packets, how a client is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from random import Random
from typing import Protocol

from brokerweave.errors import RemoteProtocolError
from brokerweave.membership.agenda import Agenda
from brokerweave.placement import messages
from brokerweave.placement.channel import Channel, OpenedDatagram
from brokerweave.placement.client_list import ClientList
from brokerweave.placement.followed import Address, Controllers, KnownController, KnownSite, SiteDirectory
from brokerweave.placement.gateway_records import OrderBook, Questions, Readings
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.messages import (
    ROOM,
    Message,
    MoveRequest,
    PlaceAnswer,
    PlaceRequest,
    Report,
    ReportReceipt,
    SitePage,
    SitePing,
    SitePong,
    SiteReading,
    client_key,
    measured_size,
)
from brokerweave.placement.prober import Prober, ProbeSettings
from brokerweave.placement.quality import Sample

REPORT_SECONDS = 5.0
SOON = 0.2
"""Seconds that a change of clients waits for others, to be told in one datagram."""
PLACE_SECONDS = 0.3
PAGES = 8
"""Of the list of clients, that are sent before a receipt."""


class AgentHost(Protocol):
    """The gateway. None of these may call back into the agent at once, but `move` may call `moved`."""

    def send(self, data: bytes, to: Address) -> None:
        """One datagram. It may be lost."""

    def sites_changed(self, sites: Mapping[str, KnownSite]) -> None:
        """These are the sites now: of the controller's list, or those that were configured."""

    def move(self, number: int, client: str, target: str) -> None:
        """Move this client (its `client_key`) to that site, and say `GatewayAgent.moved(number, ...)` in the
        end. Each number comes once."""


class GatewayAgent:
    """Call `tick(now)` at `next_due()`, which may change with every other call."""

    def __init__(
        self,
        gateway: str,
        key: bytes,
        boot: int,
        controllers: Iterable[Address],
        sites: Iterable[KnownSite],
        probing: ProbeSettings,
        random: Random,
        host: AgentHost,
        now: float,
    ) -> None:
        """`sites`: to begin with, or for good where there is no controller. `key`, `boot`: see `Channel`."""
        self.id = gateway
        self._host = host
        self._channel = Channel(key, boot, host.send)
        self._controllers = Controllers(controllers)
        self._agenda = Agenda()
        self._report_at, self._report_due = inf, self._agenda.at(inf, self._report)
        self._questions = Questions()
        self._orders = OrderBook(gateway)
        self._readings = Readings()
        self._sites = SiteDirectory(sites)
        self.clients = ClientList(gateway)
        self.prober = Prober(probing, random, self)
        self._now = now
        self._adopt({})
        self._report_soon(0.0)

    @property
    def follows(self) -> str:
        """The id of the controller that is followed; empty if none answers."""
        return self._controllers.follows

    def round_trips(self) -> dict[str, float]:
        """As they were measured here, in seconds."""
        return self.prober.estimates()

    @property
    def sites(self) -> Mapping[str, KnownSite]:
        return self._sites.known

    # What the gateway says and asks

    def client_at(self, client: str, site: str, now: float, rate: float = 0.0) -> None:
        """The client is connected there now: it came, or it was moved. `rate`: messages a second."""
        self._now = now
        self.clients.at(client_key(client), site, rate)
        self._clients_changed()

    def client_gone(self, client: str, now: float) -> None:
        self._now = now
        self.clients.gone(client_key(client))
        self._clients_changed()

    def place(self, client: str, done: Callable[[tuple[str, ...]], None], now: float) -> None:
        """Ask where a new client should go. `done` is called once, with all sites, best first: as the
        controller that is followed says, or by what was measured here if it does not answer."""
        self._now = now
        leader = self._leader()
        if leader is None:
            done(self._by_own_measure(()))
            return
        seq = self._questions.ask(done)
        self._agenda.at(now + PLACE_SECONDS, lambda later: self._placed(seq, ()))
        self._say(leader, PlaceRequest(seq, self.id, client_key(client)))

    def moved(self, number: int, outcome: MoveOutcome, note: str, now: float) -> None:
        """How a move ended. Where the client is then is said with `client_at`, before this."""
        self._now = now
        told = self._orders.end(number, outcome, note)
        if told is not None:
            for controller in self._controllers:
                if controller.id == told[0]:
                    self._say(controller, told[1])

    @property
    def refused(self) -> dict[str, int]:
        return self._channel.refused

    # Time and datagrams

    def next_due(self) -> float:
        return min(self._agenda.next_due(), self.prober.next_due())

    def tick(self, now: float) -> None:
        self._now = now
        self.prober.tick(now)
        self._agenda.run(now)

    def hear(self, data: bytes, source: Address, now: float) -> None:
        self._now = now
        heard = self._channel.hear(data, source, now)
        if heard is None:
            return
        try:
            message = messages.decode(heard.kind, heard.content)
        except RemoteProtocolError:
            self._channel.refuse()
            return
        if isinstance(message, SitePong):
            self._ponged(message, source, now)
            return
        controller = self._controllers.at(source)
        if controller is None or not self._from_controller(message, controller, heard):
            self._channel.refuse()

    # Sites

    def ping(self, site: str, seq: int) -> bool:
        """Of `ProbeHost`."""
        monitor = self.sites[site].monitor if site in self.sites else None
        if monitor is None or not self._channel.knows(monitor, self._now):
            return False
        return self._channel.say(monitor, *messages.encode(SitePing(seq)), self._now)

    def measured(self, site: str, sample: Sample) -> None:
        """Of `ProbeHost`."""
        if site in self.sites:
            self._readings.add(site, sample)
            if sample.pings > 1:
                self._report_soon(SOON)

    def _ponged(self, pong: SitePong, source: Address, now: float) -> None:
        site = self.prober.answered(pong.seq, now)
        if site is not None and site in self.sites and self.sites[site].monitor == source:
            self._readings.cpu(site, pong.cpu)

    def _adopt(self, guesses: Mapping[str, float | None]) -> None:
        """The sites are others now, and their addresses may be. `guesses`: how far they may be."""
        sites = self._sites.known
        self.prober.set_sites(
            {name: guesses.get(name) for name, site in sites.items() if site.monitor is not None}, self._now
        )
        self._readings.keep(sites)
        self._host.sites_changed(sites)

    # Controllers

    def _from_controller(self, message: Message, controller: KnownController, heard: OpenedDatagram) -> bool:
        """Whether it is something that a controller may say."""
        if isinstance(message, ReportReceipt):
            self._received(message, controller, heard.boot)
        elif isinstance(message, SitePage):
            self._site_page(message, controller)
        elif isinstance(message, PlaceAnswer):
            self._placed(message.seq, message.sites)
        elif isinstance(message, MoveRequest):
            self._ordered(message, controller)
        else:
            return False
        return True

    def _received(self, receipt: ReportReceipt, controller: KnownController, boot: int) -> None:
        if boot != controller.boot:
            controller.sent, controller.pages = 0, {}
            self._readings.all_again()
            self._report_soon(SOON)
        controller.id, controller.boot, controller.heard = receipt.controller, boot, self._now
        controller.held = receipt.clients
        self._choose()
        if controller.held < self.clients.revision and controller.held >= controller.sent:
            self._send_clients(controller)

    def _choose(self) -> None:
        if self._controllers.choose(self._now):
            self._report_soon(0.0)

    def _leader(self) -> KnownController | None:
        self._choose()
        return self._controllers.leader()

    def _site_page(self, page: SitePage, controller: KnownController) -> None:
        entries = controller.page(page) if controller.id == self.follows else None
        if entries is not None:
            self._adopt(self._sites.told(page.digest, entries))

    def _ordered(self, order: MoveRequest, controller: KnownController) -> None:
        key = (controller.id, order.number)
        if controller.id != self.follows:
            return
        if key in self._orders:
            result = self._orders.result(key)
            if result is not None:
                self._say(controller, result)
            return
        number, site = self._orders.begin(key), self.clients.site_of(order.client)
        if order.target not in self.sites:
            refusal = f"the gateway knows no site {order.target}"
            self.moved(number, MoveOutcome.REFUSED, refusal, self._now)
        elif site is None:
            self.moved(number, MoveOutcome.REFUSED, "the client is not connected", self._now)
        elif site == order.target:
            self.moved(number, MoveOutcome.DONE, "it is there already", self._now)
        else:
            self._host.move(number, order.client, order.target)

    def _placed(self, seq: int, sites: tuple[str, ...]) -> None:
        done = self._questions.answered(seq)
        if done is not None:
            done(self._by_own_measure(sites))

    def _by_own_measure(self, first: tuple[str, ...]) -> tuple[str, ...]:
        """These first, then the others, the nearest first."""
        known = [name for name in first if name in self.sites]
        trips = self.prober.estimates()
        others = self.sites.keys() - set(known)
        return (*known, *sorted(others, key=lambda name: (trips.get(name, inf), name)))

    # Reports

    def _clients_changed(self) -> None:
        self.prober.set_used(self.clients.sites(), self._now)
        self._report_soon(SOON)

    def _report_soon(self, seconds: float) -> None:
        """Only ever sooner than it would be."""
        at = self._now + seconds
        if self._controllers and at < self._report_at:
            self._report_due.cancel()
            self._report_at, self._report_due = at, self._agenda.at(at, self._report)

    def _report(self, now: float) -> None:
        self._choose()
        entries = self._readings.take(now)
        room = ROOM - len(self.id.encode()) - len(self.follows.encode()) - 16
        while True:
            page: list[SiteReading] = []
            size = 0
            while entries and size + measured_size(entries[0]) <= room:
                size += measured_size(entries[0])
                page.append(entries.pop(0))
            report = Report(self.id, self.follows, self._sites.digest, self.clients.revision, tuple(page))
            for controller in self._controllers:
                self._say(controller, report)
            if not entries:
                break
        for controller in self._controllers:
            if controller.id and controller.held < self.clients.revision and now - controller.sent_at > 1.0:
                self._send_clients(controller)
        self._report_at = now + REPORT_SECONDS
        self._report_due = self._agenda.at(self._report_at, self._report)

    def _send_clients(self, controller: KnownController) -> None:
        for page in self.clients.pages(controller.held, PAGES):
            controller.sent, controller.sent_at = page.upto, self._now
            self._say(controller, page)

    def _say(self, controller: KnownController, message: Message) -> None:
        self._channel.say(controller.address, *messages.encode(message), self._now)
