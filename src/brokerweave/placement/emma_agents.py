"""EMMA's own procedure, in the six packets of Table I: a gateway and its controller, without a key.

A gateway is a client here, as in the paper: it is moved as a whole. It registers, and says that it is there,
by RECONNACK with number 0; the controller asks it each round to measure each site (QOSREQ), and sends it to
another one (RECONNREQ). For loopback and tests: whoever reaches the port is believed. Invariants: what cannot
be read, or answers nothing, changes nothing and is counted. Must not know: sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import Protocol

from brokerweave.membership.agenda import Agenda
from brokerweave.placement import table_one
from brokerweave.placement.core import ControllerCore, CoreSettings
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.orders import MoveOrder
from brokerweave.placement.policy import PlacementPolicy
from brokerweave.placement.prober import Prober, ProbeSettings
from brokerweave.placement.quality import Sample
from brokerweave.placement.table_one import (
    NOWHERE,
    PingRequest,
    PingResponse,
    QosRequest,
    QosResponse,
    Reconnect,
    Reconnected,
    TableOne,
)

Address = tuple[str, int]
REGISTER_SECONDS = 5.0
MASK = 0xFFFFFFFF


class EmmaHost(Protocol):
    def send(self, data: bytes, to: Address) -> None: ...

    def reconnect(self, number: int, site: Address) -> None:
        """Go to the site whose clients connect there, and say `EmmaGatewayAgent.reconnected`."""


class EmmaGatewayAgent:
    def __init__(self, gateway: str, controller: Address, random: Random, host: EmmaHost, now: float) -> None:
        self.id = gateway
        self.site = NOWHERE
        self.refused = {"malformed": 0}
        self._controller = controller
        self._host = host
        self._prober = Prober(ProbeSettings(), random, self)
        self._monitors: dict[str, Address] = {}
        self._agenda = Agenda()
        self._under_way: int | None = None
        self._now = now
        self._agenda.at(now, self._register)

    def next_due(self) -> float:
        return min(self._agenda.next_due(), self._prober.next_due())

    def tick(self, now: float) -> None:
        self._now = now
        self._agenda.run(now)
        self._prober.tick(now)

    def hear(self, data: bytes, source: Address, now: float) -> None:
        self._now = now
        packet = table_one.decode(data)
        if isinstance(packet, PingResponse):
            self._prober.answered(packet.number, now)
        elif isinstance(packet, QosRequest) and source == self._controller:
            self._measure(packet, now)
        elif isinstance(packet, Reconnect) and source == self._controller:
            self._reconnect(packet)
        else:
            self.refused["malformed"] += 1

    def reconnected(self, number: int, site: Address, now: float) -> None:
        """Where the gateway is now, whether that is where it was to go or not."""
        self._now, self.site, self._under_way = now, site, None
        self._say(Reconnected(number, self.id, site))

    def ping(self, site: str, seq: int) -> bool:
        """Of `ProbeHost`."""
        self._host.send(table_one.encode(PingRequest(seq)), self._monitors[site])
        return True

    def measured(self, site: str, sample: Sample) -> None:
        """Of `ProbeHost`: nothing is measured unasked."""

    def _measure(self, request: QosRequest, now: float) -> None:
        name = f"{request.target[0]}:{request.target[1]}"
        self._monitors[name] = request.target
        self._prober.measure(
            name, request.pings, now, lambda sample: self._say(QosResponse(request.number, sample.mean))
        )

    def _reconnect(self, request: Reconnect) -> None:
        if request.site == self.site:
            self._say(Reconnected(request.number, self.id, self.site))
        elif self._under_way != request.number:
            self._under_way = request.number
            self._host.reconnect(request.number, request.site)

    def _register(self, now: float) -> None:
        self._say(Reconnected(0, self.id, self.site))
        self._agenda.at(now + REGISTER_SECONDS, self._register)

    def _say(self, packet: TableOne) -> None:
        self._host.send(table_one.encode(packet), self._controller)


class EmmaControllerAgent:
    def __init__(
        self,
        controller: str,
        policy: PlacementPolicy,
        settings: CoreSettings,
        send: Callable[[bytes, Address], None],
        now: float,
        first: int,
    ) -> None:
        self.core = ControllerCore(controller, policy, settings, self._order, now, first)
        self.refused = {"malformed": 0}
        self._send = send
        self._addresses: dict[str, Address] = {}
        self._asked: dict[int, tuple[str, str]] = {}
        """Gateway and site of each measurement that was asked for, the last ones."""
        self._number = 0
        self._measure_at = now

    def next_due(self) -> float:
        return min(self.core.next_due(), self._measure_at)

    def tick(self, now: float) -> None:
        self.core.tick(now)
        if now >= self._measure_at:
            self._measure_at = now + self.core.settings.round
            for gateway in self._addresses.keys() - self.core.graph.gateways.keys():
                del self._addresses[gateway]
            for gateway in self._addresses:
                self._ask(gateway)

    def hear(self, data: bytes, source: Address, now: float) -> None:
        packet = table_one.decode(data)
        if isinstance(packet, QosResponse):
            understood = self._measured(packet, source, now)
        elif isinstance(packet, Reconnected):
            understood = self._reconnected(packet, source, now)
        else:
            understood = False
        self.refused["malformed"] += not understood

    def _ask(self, gateway: str) -> None:
        for site in self.core.graph.sites.values():
            if site.present and site.monitor is not None:
                self._number = self._number % MASK + 1
                self._asked[self._number] = (gateway, site.name)
                self._send(table_one.encode(QosRequest(self._number, site.monitor)), self._addresses[gateway])
        most = 2 * len(self._addresses) * len(self.core.graph.sites)
        for number in list(self._asked)[: max(len(self._asked) - most, 0)]:
            del self._asked[number]  # whoever did not answer by now does not

    def _measured(self, packet: QosResponse, source: Address, now: float) -> bool:
        gateway, site = self._asked.pop(packet.number, ("", ""))
        if self._addresses.get(gateway) != source or site not in self.core.graph.sites:
            return False
        loss = 1.0 if packet.mean == inf else 0.0
        self.core.graph.measured(gateway, site, Sample(now, packet.mean, 0.0, loss))
        return True

    def _reconnected(self, packet: Reconnected, source: Address, now: float) -> bool:
        gateway, new = packet.gateway, packet.gateway not in self._addresses
        self._addresses[gateway] = source
        self.core.gateway_heard(gateway, "", now)
        if new:
            self._ask(gateway)
        sites = {site.clients: site.name for site in self.core.graph.sites.values()}
        at = sites.get(packet.site)
        if at is not None:
            self.core.client_at(gateway, gateway, at)
        elif packet.site == NOWHERE:
            self._place(gateway, now)
        for order in list(self.core.orders.under_way()):
            if packet.number and order.gateway == gateway and order.number & MASK == packet.number:
                outcome = MoveOutcome.DONE if at == order.target else MoveOutcome.REFUSED
                self.core.orders.finished(gateway, order.number, outcome, f"the gateway is at {at}", now)
        return True

    def _place(self, gateway: str, now: float) -> None:
        """It asks for its first site (V-B.2)."""
        places = self.core.place(gateway, gateway, now)
        if places:
            self._tell(gateway, 0, places[0])

    def _order(self, order: MoveOrder) -> None:
        self._tell(order.gateway, order.number & MASK, order.target)

    def _tell(self, gateway: str, number: int, site: str) -> None:
        packet = Reconnect(number, gateway, self.core.graph.sites[site].clients)
        if gateway in self._addresses:
            self._send(table_one.encode(packet), self._addresses[gateway])
