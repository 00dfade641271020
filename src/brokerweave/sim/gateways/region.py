"""All gateways of a run with their controller: which clients are behind one, and what is done to them.

Owns their making from a seed, and the faults that strike them. Invariants: everything is drawn from the seed;
a strike at what is not there any more does nothing. Must not know: what nodes do, what users are promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerweave.gateway.transitions import ClientWay
from brokerweave.placement.history import MoveOutcome
from brokerweave.sim.client import ModelClient
from brokerweave.sim.datagrams import DatagramNetwork, Faults
from brokerweave.sim.gateways.client import GatewayedClient
from brokerweave.sim.gateways.controller import SimController
from brokerweave.sim.gateways.gateway import SimGateway
from brokerweave.sim.gateways.seen import GatewayObserver, SeenClient
from brokerweave.sim.pipes import PipeEnd
from brokerweave.sim.promises import Broken

if TYPE_CHECKING:
    from brokerweave.sim.pipes import StreamNetwork
    from brokerweave.sim.users_view.history import History
    from brokerweave.sim.world import World

GATEWAYS = ("g1", "g2")
CONTROLLER = "ctl"
BEHIND = 0.7
"""The part of the clients that is behind a gateway."""
LOSS = (0.0, 0.1, 0.3)
DOUBLED = (0.0, 0.2)
LOOK_SECONDS = 0.5
NOTICED_SECONDS = 1.0
"""Until the controller knows of a site that is down, or back, as membership tells it."""


class GatewayRegion:
    """Implements `GatewayWatcher`."""

    def __init__(
        self,
        world: World,
        network: StreamNetwork,
        history: History,
        sites: list[str],
        well: Callable[[str], bool],
    ) -> None:
        """`well`: whether a site takes clients."""
        random = world.random("gateways")
        self.counts: Counter[str] = Counter()
        self.observer = GatewayObserver(history)
        self.clients: dict[str, ModelClient] = {}
        """Those behind a gateway."""
        datagrams = DatagramNetwork(
            world, Faults(random.choice(LOSS), random.choice(DOUBLED), delay=0.02, jitter=0.02)
        )
        self.controller = SimController(world, datagrams, CONTROLLER)
        addresses = [self.controller.address]
        self.gateways = {
            name: SimGateway(world, network, datagrams, name, addresses, sites, self, self.observer)
            for name in GATEWAYS
        }
        self._world = world
        self._network = network
        self._history = history
        self._sites = sites
        self._well = well
        self._since: dict[str, tuple[bool, float]] = dict.fromkeys(sites, (True, world.now))
        self._told: set[str] = set(sites)
        self._begun: Counter[tuple[str, str]] = Counter()
        """Orders that agents handed on, by client and target."""
        self._random = random

    def takes(self, client: ModelClient) -> None:
        """It is behind one of the gateways from now on."""
        client.gateway, client.observer = self._random.choice(GATEWAYS), self.observer
        self.clients[client.name] = client

    def is_behind(self) -> bool:
        """Of the next client, whether it is."""
        return self._random.random() < BEHIND

    def start(self) -> None:
        self.controller.start(sorted(self._told))
        for gateway in self.gateways.values():
            gateway.start()
        self._look()

    def heal(self) -> None:
        if not self.controller.host.up:
            self.controller.start(sorted(self._told))
        for name in self.gateways:
            self._start(name)

    def _look(self) -> None:
        """What membership tells the controller."""
        now = self._world.now
        for site in self._sites:
            well = self._well(site)
            if well != self._since[site][0]:
                self._since[site] = well, now
            elif now - self._since[site][1] >= NOTICED_SECONDS and well != (site in self._told):
                (self._told.add if well else self._told.discard)(site)
                if self.controller.host.up:
                    (self.controller.site_here if well else self.controller.site_gone)(site)
        self._world.later(LOOK_SECONDS, self._look)

    # Of `GatewayWatcher`

    def seen(self, name: str, end: PipeEnd) -> SeenClient | None:
        client = self.clients.get(name)
        if client is None or client.end is not end.peer:
            return None
        seen = self.observer.seen[name] = SeenClient(self._history, client, end)
        return seen

    def order_begins(self, gateway: str, client: str, target: str) -> None:
        self._begun[client, target] += 1

    def order_ends(self, gateway: str, outcome: MoveOutcome, late: bool) -> None:
        self.counts[f"gateway moves, {outcome.value}"] += 1
        self.counts["gateway moves, late"] += late

    # What the schedule does

    def order(self, client: str, site: str, via: str) -> None:
        found = self.clients.get(client)
        if found is None:
            return
        if via == "controller":
            if self.controller.order(client, site):
                self.counts["orders given"] += 1
        else:
            self.gateways[found.gateway].order(client, site)

    def on_its_way(self, client: str) -> GatewayedClient | None:
        """Its tunnel, if it moves."""
        found = self.clients.get(client)
        if found is None:
            return None
        tunnels = (each for each in self.gateways[found.gateway].clients() if each.end.peer is found.end)
        moving = (ClientWay.DIALING, ClientWay.GREETING, ClientWay.DRAINING)
        return next((each for each in tunnels if each.tunnel.way in moving), None)

    def sites_of_move(self, client: str) -> tuple[str, str] | None:
        """Where a client that moves comes from, and where it goes."""
        moving = self.on_its_way(client)
        if moving is None or moving.tunnel.link is None:
            return None
        return moving.tunnel.link.site, self.gateways[self.clients[client].gateway].core.tasks.target(moving)

    def controller_dies(self, down: float) -> None:
        self.controller.kill()
        self._world.later(down, self.heal_controller)

    def heal_controller(self) -> None:
        if not self.controller.host.up:
            self.controller.start(sorted(self._told))

    def gateway_dies(self, name: str, down: float) -> None:
        self.gateways[name].kill()
        self._world.later(down, lambda: self._start(name))

    def _start(self, name: str) -> None:
        if not self.gateways[name].host.up:
            self.gateways[name].start()

    def cut(self, gateway: str, site: str) -> None:
        """A connection breaks."""
        self._network.wire(gateway, site).cut()

    # What must hold

    def check(self) -> None:
        self.controller.check()
        for gateway in self.gateways.values():
            gateway.check()

    def unsettled(self) -> str:
        """The first thing that is not at rest."""
        self.check()
        found = self.controller.unsettled()
        for gateway in self.gateways.values():
            found = found or gateway.unsettled()
        return found

    def judge(self) -> None:
        """In the end. Raises `Broken`."""
        given = self.controller.decisions()
        for (client, target), begun in self._begun.items():
            if begun > given[client, target]:
                raise Broken(
                    f"{client} was sent to {target} {begun} times, and ordered {given[client, target]}"
                )
