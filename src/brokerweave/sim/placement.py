"""Gateways and sites in virtual time: the real prober of each gateway, the real controller, a model network.

Owns where everybody is, and what a ping takes: the distance, the way through both access networks, noise, and
now and then no answer. Must not know: what the prober and the controller make of it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import hypot
from random import Random

from brokerweave.placement.coordinates import Coordinates
from brokerweave.placement.core import ControllerCore, CoreSettings
from brokerweave.placement.graph import GraphSite
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.latency_groups import group_of
from brokerweave.placement.orders import MoveOrder
from brokerweave.placement.policy import PlacementPolicy
from brokerweave.placement.prober import Prober, ProbeSettings
from brokerweave.placement.quality import Sample

ACROSS = 0.150
"""Seconds of round trip from one edge of the plane to the other."""
LOSS = 0.01
NOISE = 0.05
"""The share by which round trips differ, on average."""
PING_BYTES = 2 * (46 + 48)
"""A sealed ping and its answer, with 48 bytes of headers each, as the paper counts them (EMMA VI-D)."""


class ModelGateway:
    """Implements `ProbeHost`."""

    def __init__(self, world: PlacementWorld, name: str, settings: ProbeSettings) -> None:
        self.name = name
        self.prober = Prober(settings, Random(world.random.random()), self)
        self._world = world

    def ping(self, site: str, seq: int) -> bool:
        self._world.ping(self, site, seq)
        return True

    def measured(self, site: str, sample: Sample) -> None:
        self._world.core.graph.measured(self.name, site, sample)
        self._world.coordinates.heard(self.name, site, sample.mean)


class PlacementWorld:
    def __init__(
        self,
        gateways: int,
        sites: int,
        policy: PlacementPolicy,
        seed: int,
        settings: ProbeSettings | None = None,
    ) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.orders: list[MoveOrder] = []
        boundless = CoreSettings(at_once=1_000_000, per_second=1e6)
        self.core = ControllerCore("c", policy, boundless, self.orders.append, 0.0)
        self.coordinates = Coordinates(Random(seed))
        self._numbers = count()
        self._events: list[tuple[float, int, ModelGateway, int]] = []
        names = [f"s{number}" for number in range(sites)]
        self.gateways = [
            ModelGateway(self, f"g{number}", settings or ProbeSettings()) for number in range(gateways)
        ]
        self._places = {name: self._somewhere() for name in [*names, *(each.name for each in self.gateways)]}
        for name in names:
            self.core.site_here(GraphSite(name, ("192.0.2.1", 1883)))

    def _somewhere(self) -> tuple[float, float, float]:
        """Across, down, and the way through the access network."""
        draw = self.random.random
        return draw() * ACROSS, draw() * ACROSS, 0.0002 + 0.001 * draw()

    def round_trip(self, one: str, other: str) -> float:
        """Without noise."""
        a, b = self._places[one], self._places[other]
        return hypot(a[0] - b[0], a[1] - b[1]) + a[2] + b[2]

    def nearest(self, gateway: str) -> str:
        return min(self.core.graph.sites, key=lambda site: self.round_trip(gateway, site))

    def ping(self, gateway: ModelGateway, site: str, seq: int) -> None:
        if self.random.random() >= LOSS:
            trip = self.round_trip(gateway.name, site) * (1 + self.random.expovariate(1 / NOISE))
            heappush(self._events, (self.now + trip, next(self._numbers), gateway, seq))

    def start(self) -> None:
        """All learn of the sites, one after another, and the later ones with guesses."""
        for gateway in self.gateways:
            guesses = {site: self.coordinates.guess(gateway.name, site) for site in self.core.graph.sites}
            gateway.prober.set_sites(guesses, self.now)
            self._wake(gateway)

    def settle(self, site_of: Callable[[int], str], clients: int) -> None:
        """Each gateway's clients come, all to the site that is named for its number."""
        for number, gateway in enumerate(self.gateways):
            self.core.gateway_heard(gateway.name, "", self.now)
            for client in range(clients):
                self.core.client_at(gateway.name, f"{gateway.name}-{client}", site_of(number))
            self._use(gateway)

    def decide(self) -> int:
        """A round, if it is time for one. Returns how many orders there are to obey."""
        for gateway in self.gateways:
            self.core.gateway_heard(gateway.name, "", self.now)
        self.core.tick(self.now)
        return len(self.orders)

    def obey(self) -> None:
        for order in self.orders:
            self.core.orders.finished(order.gateway, order.number, MoveOutcome.DONE, "", self.now)
        self.orders.clear()
        for gateway in self.gateways:
            self._use(gateway)

    def groups_apart(self, gateway: str) -> int:
        """Latency groups between the best site and the worst that its clients are at."""
        clients = self.core.graph.gateways[gateway].clients.values()
        worst = max(group_of(self.round_trip(gateway, client.site)) for client in clients)
        return worst - group_of(self.round_trip(gateway, self.nearest(gateway)))

    def _use(self, gateway: ModelGateway) -> None:
        clients = self.core.graph.gateways[gateway.name].clients.values()
        gateway.prober.set_used({client.site for client in clients}, self.now)
        self._wake(gateway)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, gateway, seq = heappop(self._events)
            if seq:
                gateway.prober.answered(seq, self.now)
                self._wake(gateway)
            elif gateway.prober.next_due() <= self.now:
                gateway.prober.tick(self.now)
                self._wake(gateway)
        self.now = end

    def _wake(self, gateway: ModelGateway) -> None:
        heappush(self._events, (gateway.prober.next_due(), next(self._numbers), gateway, 0))
