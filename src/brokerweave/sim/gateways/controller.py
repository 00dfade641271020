"""A controller in virtual time: the real agent with the real core, on a datagram network.

Owns its timer and its lives. Invariant: every decision is the agent's. Must not know: gateways' insides.
"""

from __future__ import annotations

from collections import Counter

from brokerweave.errors import ConfigError
from brokerweave.placement.controller_agent import ControllerAgent
from brokerweave.placement.core import CoreSettings
from brokerweave.placement.graph import GraphSite
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.policy import PolicySettings
from brokerweave.placement.steady import SteadyPolicy
from brokerweave.sim.datagrams import Address, DatagramNetwork
from brokerweave.sim.gateways.gateway import site_address
from brokerweave.sim.node import KEY
from brokerweave.sim.promises import Broken
from brokerweave.sim.world import ScheduledEvent, VirtualHost, World

SETTINGS = CoreSettings(round=5.0, gateway_timeout=15.0, order_timeout=20.0, at_once=10, per_second=10.0)


class SimController:
    agent: ControllerAgent

    def __init__(self, world: World, datagrams: DatagramNetwork, name: str) -> None:
        self.world = world
        self.name = name
        self.address: Address = (name, 1)
        self.host = VirtualHost(world, name)
        self.issued: Counter[tuple[str, str]] = Counter()
        """Orders by client and target, of all lives."""
        self._datagrams = datagrams
        self._alarm: ScheduledEvent | None = None
        datagrams.attach(self.address, self)

    def start(self, sites: list[str]) -> None:
        self.host.start()
        self._alarm = None
        random = self.world.random(f"{self.name}/{self.host.life}")
        now = self.world.now
        policy = SteadyPolicy(PolicySettings())
        boot, first = random.getrandbits(63) + 1, int(now * 1000)
        self.agent = ControllerAgent(self.name, KEY, boot, policy, SETTINGS, random, self._send, now, first)
        for site in sites:
            self.site_here(site)
        self._look()

    def kill(self) -> None:
        if self.host.up:
            self.world.note(self.name, "is killed")
            self._note_orders()
            self.host.die()

    def order(self, client: str, site: str) -> bool:
        """As `controller move` does. Whether it was accepted."""
        if not self.host.up:
            return False
        try:
            self.agent.core.move(client, site, self.world.now)
        except ConfigError as error:
            self.world.note(self.name, str(error))
            return False
        self._look()
        return True

    def site_here(self, site: str) -> None:
        self.agent.core.site_here(GraphSite(site, site_address(site)))

    def site_gone(self, site: str) -> None:
        self.agent.core.site_gone(site)
        self._look()

    def check(self) -> None:
        """Raises `Broken` if an order has no result, or two."""
        if self.host.up:
            orders = self.agent.core.orders
            counters = orders.counters
            ended = sum(counters.values()) - counters[MoveOutcome.ORDERED.value]
            if counters[MoveOutcome.ORDERED.value] != ended + len(orders):
                raise Broken(f"{self.name} gave {counters}, and {len(orders)} are under way")

    def unsettled(self) -> str:
        if not self.host.up:
            return f"{self.name} is down"
        under_way = [f"{order.client} to {order.target}" for order in self.agent.core.orders.under_way()]
        return f"{self.name} waits for {under_way}" if under_way else ""

    def decisions(self) -> Counter[tuple[str, str]]:
        """Orders of all lives, by client and target."""
        here = Counter(self._decided()) if self.host.up else Counter()
        return self.issued + here

    def _decided(self) -> list[tuple[str, str]]:
        history = self.agent.core.history
        moves = [decision.move for decision in history.last(len(history), self.world.now)]
        return [(move.client or "", move.target) for move in moves]

    def _note_orders(self) -> None:
        self.issued.update(self._decided())

    def received(self, data: bytes, source: Address) -> None:
        self.agent.hear(data, source, self.world.now)
        self._look()

    def _send(self, data: bytes, to: Address) -> None:
        self._datagrams.send(data, self.address, to)

    def _look(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.host.later(self.agent.next_due() - self.world.now, self._tick)

    def _tick(self) -> None:
        self.agent.tick(self.world.now)
        self._look()
