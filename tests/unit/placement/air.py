"""Datagrams between agents in virtual time: delayed, and lost, doubled and recorded on demand."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Protocol

from brokerweave.placement.controller_agent import ControllerAgent
from brokerweave.placement.core import CoreSettings
from brokerweave.placement.followed import KnownSite
from brokerweave.placement.gateway_agent import GatewayAgent
from brokerweave.placement.graph import GraphSite
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.policy import PlacementPolicy
from brokerweave.placement.prober import ProbeSettings
from brokerweave.placement.responder import Responder
from tests.unit.placement.networks import steady

Address = tuple[str, int]
KEY = b"the key of this cluster"


class Party(Protocol):
    def hear(self, data: bytes, source: Address, now: float) -> None: ...


class Timed(Party, Protocol):
    def tick(self, now: float) -> None: ...

    def next_due(self) -> float: ...


class Air:
    def __init__(self, seed: int = 1) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self.loss = self.doubled = 0.0
        self.delays: dict[frozenset[str], float] = {}
        self.sent: list[tuple[bytes, Address, Address]] = []
        self._parties: dict[Address, Party] = {}
        self._timed: dict[Address, Timed] = {}
        self._flying: list[tuple[float, int, bytes, Address, Address]] = []
        self._numbers = count()

    def join(self, address: Address, party: Party, timed: Timed | None = None) -> None:
        self._parties[address] = party
        if timed is not None:
            self._timed[address] = timed

    def leave(self, address: Address) -> None:
        self._parties.pop(address, None)
        self._timed.pop(address, None)

    def sender(self, source: Address) -> Callable[[bytes, Address], None]:
        return lambda data, to: self.send(data, source, to)

    def send(self, data: bytes, source: Address, to: Address) -> None:
        self.sent.append((data, source, to))
        for _ in range(1 + (self.random.random() < self.doubled)):
            if self.random.random() >= self.loss:
                delay = self.delays.get(frozenset({source[0], to[0]}), 0.005) / 2
                heappush(self._flying, (self.now + delay, next(self._numbers), data, source, to))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            arrives = self._flying[0][0] if self._flying else inf
            due = min((party.next_due() for party in self._timed.values()), default=inf)
            if min(arrives, due) > end:
                break
            self.now = max(min(arrives, due), self.now)
            if arrives <= due:
                _, _, data, source, to = heappop(self._flying)
                if to in self._parties:
                    self._parties[to].hear(data, source, self.now)
            else:
                for party in list(self._timed.values()):
                    if party.next_due() <= self.now:
                        party.tick(self.now)
        self.now = end


class FakeGateway:
    """The parts of a gateway that are not its agent's. Implements `AgentHost`."""

    def __init__(self, air: Air, name: str, controllers: list[Address], sites: list[KnownSite] | None = None):
        self.air = air
        self.address = (name, 1)
        self.moves: list[tuple[str, str]] = []
        self.outcome = MoveOutcome.DONE
        self.agent = GatewayAgent(
            name,
            KEY,
            air.random.getrandbits(63) + 1,
            controllers,
            sites or [],
            ProbeSettings(),
            air.random,
            self,
            air.now,
        )
        air.join(self.address, self.agent, self.agent)

    def send(self, data: bytes, to: Address) -> None:
        self.air.send(data, self.address, to)

    def sites_changed(self, sites: object) -> None:
        """The agent's own table is enough here."""

    def move(self, number: int, client: str, target: str) -> None:
        self.moves.append((client, target))
        if self.outcome is MoveOutcome.DONE:
            self.agent.client_at(client, target, self.air.now)
        self.agent.moved(number, self.outcome, "as it was told", self.air.now)

    def connect(self, client: str) -> list[str]:
        """A client comes and is placed; afterwards its site is in the list."""
        found: list[str] = []

        def placed(sites: tuple[str, ...]) -> None:
            found.extend(sites)
            self.agent.client_at(client, sites[0], self.air.now)

        self.agent.place(client, placed, self.air.now)
        return found


class Cluster:
    """Controllers, sites that answer pings, and gateways."""

    def __init__(self, *sites: str, controllers: tuple[str, ...] = ("c1",), seed: int = 1) -> None:
        self.air = Air(seed)
        self.sites = sites
        self.controllers: dict[str, ControllerAgent] = {}
        self.gateways: dict[str, FakeGateway] = {}
        for name in sites:
            self.start_site(name)
        for name in controllers:
            self.start_controller(name)

    def start_site(self, name: str) -> Responder:
        boot = self.air.random.getrandbits(63) + 1
        responder = Responder(KEY, boot, self.air.sender((name, 1)), lambda: 0.25)
        self.air.join((name, 1), responder)
        return responder

    def start_controller(self, name: str, policy: PlacementPolicy | None = None) -> ControllerAgent:
        agent = ControllerAgent(
            name,
            KEY,
            self.air.random.getrandbits(63) + 1,
            policy or steady(),
            CoreSettings(),
            self.air.random,
            self.air.sender((name, 1)),
            self.air.now,
            first=1 + int(self.air.now * 1000),
        )
        for site in self.sites:
            agent.core.site_here(GraphSite(site, (site, 1883), (site, 1)))
        self.controllers[name] = agent
        self.air.join((name, 1), agent, agent)
        return agent

    def gateway(self, name: str, sites: list[KnownSite] | None = None) -> FakeGateway:
        addresses = [(each, 1) for each in self.controllers]
        self.gateways[name] = FakeGateway(self.air, name, addresses, sites)
        return self.gateways[name]

    def distance(self, gateway: str, **milliseconds: float) -> None:
        for site, trip in milliseconds.items():
            self.air.delays[frozenset({gateway, site})] = trip / 1000

    def seen_by(self, controller: str) -> dict[str, str]:
        gateways = self.controllers[controller].core.graph.gateways.values()
        return {client.id: client.site for gateway in gateways for client in gateway.clients.values()}
