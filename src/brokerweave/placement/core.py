"""The controller's decisions: what it knows of the network goes in, orders to gateways come out.

Owns the graph, what waits for its turn, pins and what was asked for. What has to be done goes before what
would be better: clients leave sites that are gone or are to be emptied, pinned ones go where they are pinned,
then the policy is asked. Invariants: no client is sent to a site that takes none, unless somebody names both;
a client that moves is not decided about; what only waits for its turn is decided anew each round. Must not
know: datagrams, clocks, which policy it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from brokerweave.errors import ConfigError
from brokerweave.placement.graph import Graph, GraphClient, GraphGateway, GraphSite, Leaving, Loads
from brokerweave.placement.history import MoveHistory, MoveOutcome
from brokerweave.placement.orders import MoveOrder, Orders
from brokerweave.placement.pace import MovePace
from brokerweave.placement.policy import Move, PlacementPolicy

MOST_HISTORY = 20_000
MOST_TICKS = 50.0
"""A second; at a faster pace several moves begin with each."""
PLACING_SECONDS = 1.0
"""For so long new clients are placed by the same tally, which counts those that were placed by it."""
DRAINING, EVACUATED = Leaving.DRAINING.value, Leaving.EVACUATED.value


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """Times are seconds."""

    round: float = 15.0
    """Between two looks at the whole graph (EMMA: 15)."""
    gateway_timeout: float = 45.0
    """A gateway that was not heard for so long is forgotten, with its clients."""
    order_timeout: float = 30.0
    """For a move, until it counts as failed."""
    at_once: int = 50
    """Moves under way at the same time."""
    per_second: float = 20.0
    """Moves that begin in a second."""
    history: float = 6 * 3600.0
    """For how long decisions are kept."""


class WantedMove(NamedTuple):
    """What the controller would do. `cause` is why it is done, `move.reason` why this site."""

    move: Move
    cause: str

    @property
    def client(self) -> tuple[str, str | None]:
        return self.move.gateway, self.move.client

    @property
    def urgent(self) -> bool:
        """It does not wait for its turn."""
        return self.cause in ("site gone", EVACUATED)


class ControllerCore:
    def __init__(
        self,
        controller: str,
        policy: PlacementPolicy,
        settings: CoreSettings,
        send: Callable[[MoveOrder], None],
        now: float,
        first: int = 1,
    ) -> None:
        """`send` tells a gateway; an order may be lost, and is sent again. `first`: see `Orders`."""
        self.id = controller
        self.policy = policy
        self.settings = settings
        self.graph = Graph()
        self.history = MoveHistory(settings.history, MOST_HISTORY)
        self.orders = Orders(self.history, settings.order_timeout, first, send, self._ended)
        self.pins: dict[str, str] = {}
        self.counters = {"rounds": 0, "nowhere": 0}
        self._pace = MovePace(settings.at_once, settings.per_second, now)
        self._drains: dict[str, MovePace] = {}
        self._queue: list[WantedMove] = []
        self._round_at = now + settings.round
        self._look_now = False
        self._placing: Loads | None = None
        self._placed_since = now

    # What is heard

    def site_here(self, site: GraphSite) -> None:
        """There is such a site, or something of it changed. Whether it drains is the controller's to know."""
        known = self.graph.sites.get(site.name)
        if known is not None:
            site = replace(site, leaving=known.leaving, cpu=known.cpu)
        self.graph.sites[site.name] = site

    def site_gone(self, name: str) -> None:
        """It died or left. Its clients are moved with the next tick, not with the next round (EMMA
        VI-C.1)."""
        if name in self.graph.sites:
            self.graph.sites[name].present = False
            self._look_now = True

    def gateway_heard(self, gateway: str, follows: str, now: float) -> GraphGateway:
        """`follows`: the controller whose orders it takes, if any yet."""
        found = self.graph.gateway(gateway)
        found.heard_at, found.follows = now, follows
        return found

    def gateway_gone(self, gateway: str, now: float) -> None:
        self.graph.gateways.pop(gateway, None)
        self.orders.end_all(gateway, "the gateway is gone", now)

    def client_at(self, gateway: str, client: str, site: str, rate: float = 0.0) -> None:
        clients = self.graph.gateway(gateway).clients
        known = clients.get(client)
        if known is not None and known.site == site:
            known.rate = rate
            return
        if known is None:
            known = clients[client] = GraphClient(client, gateway, site, pinned=self.pins.get(client))
        known.site, known.rate = site, rate
        if self._cause(known):
            self._look_now = True

    def client_gone(self, gateway: str, client: str, now: float) -> None:
        if gateway in self.graph.gateways:
            self.graph.gateways[gateway].clients.pop(client, None)
        self.orders.end(gateway, client, MoveOutcome.FAILED, "the client left", now)

    # What is asked

    def place(self, gateway: str, client: str, now: float) -> list[str]:
        """The sites for a client that connects, best first (EMMA V-B.2)."""
        if self._placing is None or now - self._placed_since >= PLACING_SECONDS:
            self._placing, self._placed_since = self._loads(), now
        places = self._places(self.graph.gateway(gateway), self._placing)
        pinned = self.pins.get(client)
        if pinned is not None and self._open(pinned):
            places = [pinned, *(name for name in places if name != pinned)]
        if places:
            self._placing.place(places[0])
        return places

    def drain(self, site: str, per_second: float, now: float) -> None:
        """Move everybody away at this pace, and send nobody there."""
        self._site(site).leaving = Leaving.DRAINING
        self._drains[site] = MovePace(self.settings.at_once, per_second, now)
        self._look_now = True

    def evacuate(self, site: str) -> None:
        """Move everybody away at once."""
        self._site(site).leaving = Leaving.EVACUATED
        self._drains.pop(site, None)
        self._look_now = True

    def resume(self, site: str) -> None:
        """It takes clients again."""
        self._site(site).leaving = Leaving.NO
        self._drains.pop(site, None)
        self._look_now = True

    def pin(self, client: str, site: str | None) -> None:
        """The client stays at this site while that is open; None: the policy decides again. The client need
        not be connected."""
        if site is None:
            self.pins.pop(client, None)
        else:
            self._site(site)
            self.pins[client] = site
        for known in self.graph.find(client):
            known.pinned = site
        self._look_now = True

    def move(self, client: str, site: str, now: float) -> None:
        """Once, and now; the policy may decide otherwise when the client has rested. Raises `ConfigError`."""
        self._site(site)
        found = self.graph.find(client)
        if not found:
            raise ConfigError(f"no gateway has a client {client!r}")
        if all(each.site == site for each in found):
            raise ConfigError(f"{client} is at {site} already")
        mine = [each for each in found if self._decides_for(each.gateway)]
        if not mine:
            other = self.graph.gateways[found[0].gateway].follows
            raise ConfigError(f"{client} is moved by controller {other}: ask there")
        for each in mine:
            if each.site != site:
                move = Move(each.gateway, each.id, each.site, site, "somebody asked for it")
                self.orders.send(move, "asked", now)

    def plan(self, now: float) -> list[WantedMove]:
        """What a round would decide now, without doing it."""
        self.graph.now = now
        return list(self._wanted(policy=True))

    @property
    def waiting(self) -> int:
        """Moves that wait for their turn."""
        return len(self._queue)

    def drained(self, site: str) -> bool:
        """Whether it is to be emptied, and is."""
        found = self.graph.sites.get(site)
        return found is not None and found.leaving is not Leaving.NO and not self.graph.clients_at(site)

    # Time

    def next_due(self) -> float:
        """`tick` at this time, or sooner if something was heard or asked."""
        if self._look_now:
            return self.graph.now
        due = min(self._round_at, self.orders.next_due())
        if not self._queue:
            return due
        fastest = max(self._pace.per_second, *(pace.per_second for pace in self._drains.values()), 1.0)
        return min(due, self.graph.now + 1.0 / min(fastest, MOST_TICKS))

    def tick(self, now: float) -> None:
        self.graph.now = now
        self._forget_silent(now)
        self.orders.tick(now)
        if now >= self._round_at:
            self._round_at = now + self.settings.round
            self.counters["rounds"] += 1
            self._decide(policy=True)
        elif self._look_now:
            self._decide(policy=False)
        self._send_waiting(now)

    # Deciding

    def _decide(self, policy: bool) -> None:
        """Without the policy, what it decided before goes on waiting."""
        self._look_now = False
        kept = [] if policy else [wish for wish in self._queue if wish.cause == "policy"]
        self._queue = list(self._wanted(policy))
        busy = {wish.client for wish in self._queue} | self.orders.clients()
        self._queue += [wish for wish in kept if wish.client not in busy]

    def _wanted(self, policy: bool) -> Iterator[WantedMove]:
        loads, decided = self._loads(), self.orders.clients()
        for gateway in list(self.graph.gateways.values()):
            if self._decides_for(gateway.id):
                yield from self._needed(gateway, loads, decided)
        if policy:
            yield from self._better(loads, decided)

    def _needed(
        self, gateway: GraphGateway, loads: Loads, decided: set[tuple[str, str]]
    ) -> Iterator[WantedMove]:
        for client in list(gateway.clients.values()):
            cause = "" if (gateway.id, client.id) in decided else self._cause(client)
            if not cause:
                continue
            pinned = client.pinned if client.pinned is not None and self._open(client.pinned) else None
            places = [pinned] if pinned else self._places(gateway, loads)
            target = next((place for place in places if place != client.site), None)
            if target is None:
                self.counters["nowhere"] += 1
                continue
            loads.move(client, target)
            decided.add((gateway.id, client.id))
            why = f"it is pinned to {target}" if pinned else f"{target} is the best site that takes clients"
            yield WantedMove(Move(gateway.id, client.id, client.site, target, why), cause)

    def _cause(self, client: GraphClient) -> str:
        """Why it has to leave its site; empty if it may stay."""
        site = self.graph.sites.get(client.site)
        if site is None or not site.present:
            return "site gone"
        if site.leaving is not Leaving.NO:
            return str(site.leaving.value)
        pinned = client.pinned
        return "pinned" if pinned is not None and pinned != client.site and self._open(pinned) else ""

    def _better(self, loads: Loads, decided: set[tuple[str, str]]) -> Iterator[WantedMove]:
        for move in self.policy.moves(self.graph, loads):
            for client in self._movers(move, decided):
                loads.move(client, move.target)
                decided.add((move.gateway, client.id))
                yield WantedMove(replace(move, client=client.id, origin=client.site), "policy")

    def _movers(self, move: Move, decided: set[tuple[str, str]]) -> list[GraphClient]:
        """Whom a policy's move may move: not who is pinned, or moves already."""
        gateway = self.graph.gateways.get(move.gateway)
        if gateway is None or not self._decides_for(gateway.id) or not self._open(move.target):
            return []
        return [
            client
            for client in gateway.clients.values()
            if move.client in (None, client.id)
            and (gateway.id, client.id) not in decided
            and client.pinned is None
            and client.site != move.target
        ]

    def _places(self, gateway: GraphGateway, loads: Loads) -> list[str]:
        """By the policy; where nothing was measured yet, whatever has the least load."""
        found = [name for name in self.policy.place(self.graph, gateway, loads) if self._open(name)]
        if found:
            return found
        names = [name for name, site in self.graph.sites.items() if site.open]
        return sorted(names, key=lambda name: (loads.share(name), name))

    def _loads(self) -> Loads:
        """As it will be when the moves under way are done."""
        loads = Loads(self.graph, self.policy.settings.load)
        for order in self.orders.under_way():
            client = self.graph.gateways[order.gateway].clients.get(order.client)
            if client is not None and client.site != order.target:
                loads.move(client, order.target)
        return loads

    # Orders

    def _send_waiting(self, now: float) -> None:
        waiting: list[WantedMove] = []
        used_up: set[MovePace] = set()
        for wish in self._queue:
            pace = self._pace
            if wish.cause == DRAINING:
                pace = self._drains.get(wish.move.origin, pace)
            if wish.urgent or (pace not in used_up and pace.take(self._under_way(pace), now)):
                self.orders.send(wish.move, wish.cause, now)
            else:
                used_up.add(pace)
                waiting.append(wish)
        self._queue = waiting

    def _under_way(self, pace: MovePace) -> int:
        return len(self.orders) if pace is self._pace else self.orders.count(DRAINING)

    def _ended(self, order: MoveOrder, outcome: MoveOutcome) -> None:
        """However it ended, the client rests; what has to be done is tried again with the next round."""
        gateway = self.graph.gateways.get(order.gateway)
        client = gateway.clients.get(order.client) if gateway is not None else None
        if client is not None:
            client.moved_at = self.graph.now
            if outcome is MoveOutcome.DONE:
                client.site = order.target

    # Who and what

    def _decides_for(self, gateway: str) -> bool:
        return self.graph.gateways[gateway].follows in ("", self.id)

    def _open(self, name: str) -> bool:
        site = self.graph.sites.get(name)
        return site is not None and site.open

    def _site(self, name: str) -> GraphSite:
        site = self.graph.sites.get(name)
        if site is None:
            known = ", ".join(sorted(self.graph.sites)) or "none"
            raise ConfigError(f"unknown site {name!r}; known are {known}")
        return site

    def _forget_silent(self, now: float) -> None:
        limit = now - self.settings.gateway_timeout
        for gateway in [each.id for each in self.graph.gateways.values() if each.heard_at < limit]:
            self.gateway_gone(gateway, now)
        for site in [each.name for each in self.graph.sites.values() if not each.present]:
            if not self.graph.clients_at(site):
                self.graph.forget_site(site)
                self._drains.pop(site, None)
