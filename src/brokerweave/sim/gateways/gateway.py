"""A gateway in virtual time: the real core, tunnels and agent, driven as the runtime drives them.

Owns what `runtime.gateway` owns: the clients' connections, those to sites, and the agent's timer. A kill
loses all of it. Invariant: no decision about a client or a message is made here. Must not know: faults, what
is promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from brokerweave.gateway.core import GatewayCore, GatewayRules
from brokerweave.gateway.orders import MoveTask
from brokerweave.gateway.transitions import ClientWay, MoveStep
from brokerweave.gateway.tunnel import UNAVAILABLE
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Connect, Disconnect
from brokerweave.placement.followed import KnownSite
from brokerweave.placement.gateway_agent import GatewayAgent
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.prober import ProbeSettings
from brokerweave.session.move_ticket import NUMBER_BYTES
from brokerweave.sim.datagrams import Address, DatagramNetwork
from brokerweave.sim.gateways.client import GatewayedClient
from brokerweave.sim.gateways.seen import GatewayObserver, SeenClient
from brokerweave.sim.node import KEY
from brokerweave.sim.pipes import Handler, PipeEnd, StreamNetwork
from brokerweave.sim.promises import Broken
from brokerweave.sim.world import ScheduledEvent, VirtualHost, World

RULES = GatewayRules(answer=4.0, drain=5.0, search=30.0, at_once=4, planned=True)
_OUTCOMES = {
    MoveStep.DONE: MoveOutcome.DONE,
    MoveStep.LATE: MoveOutcome.DONE,
    MoveStep.REFUSE: MoveOutcome.REFUSED,
    MoveStep.FAIL: MoveOutcome.FAILED,
}
_CONNACK_BYTES = 4


class GatewayWatcher(Protocol):
    """Who looks on."""

    def seen(self, name: str, end: PipeEnd) -> SeenClient | None:
        """A client said its name to a gateway."""

    def order_begins(self, gateway: str, client: str, target: str) -> None:
        """An agent hands on an order."""

    def order_ends(self, gateway: str, outcome: MoveOutcome, late: bool) -> None: ...


class SimGateway:
    """Implements `GatewayCoreHost` and `AgentHost`."""

    core: GatewayCore[GatewayedClient]
    agent: GatewayAgent

    def __init__(
        self,
        world: World,
        network: StreamNetwork,
        datagrams: DatagramNetwork,
        name: str,
        controllers: list[Address],
        sites: list[str],
        watcher: GatewayWatcher,
        observer: GatewayObserver,
    ) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.address: Address = (name, 1)
        self.host = VirtualHost(world, name)
        self.observer = observer
        self.watcher = watcher
        self._datagrams = datagrams
        self._controllers = controllers
        self._configured = [KnownSite(site, site_address(site)) for site in sites]
        self._sites: frozenset[str] = frozenset()
        self._alarm: ScheduledEvent | None = None
        self._results: Counter[int] = Counter()
        """By the agent's number: how often an order ended."""
        self._tickets = 0
        datagrams.attach(self.address, self)
        network.listen(name, self.host, self._accept)

    # Up and down

    def start(self) -> None:
        self.host.start()
        self._alarm = None
        self._results.clear()
        self.core = GatewayCore(self, RULES, str)
        random = self.world.random(f"{self.name}/{self.host.life}")
        boot = random.getrandbits(63) + 1
        self.agent = GatewayAgent(
            self.name,
            KEY,
            boot,
            self._controllers,
            self._configured,
            ProbeSettings(),
            random,
            self,
            self.now(),
        )
        self.look()

    def kill(self) -> None:
        if self.host.up:
            self.world.note(self.name, "is killed")
            self.host.die()

    def check(self) -> None:
        """Raises `Broken` if an invariant does not hold."""
        if not self.host.up:
            return
        try:
            self.core.check()
            assert max(self._results.values(), default=0) <= 1, "an order had two results"
        except AssertionError as error:
            raise Broken(f"{self.name}: {error}") from error

    def _accept(self, end: PipeEnd) -> Handler:
        client = GatewayedClient(self, end)
        self.core.connected(client)
        return client

    # What clients ask

    def seen(self, client: GatewayedClient) -> SeenClient | None:
        connect = client.tunnel.connect
        return self.watcher.seen(connect.client_id, client.end) if connect is not None else None

    def ticket_number(self) -> bytes:
        self._tickets += 1
        return f"{self.name}/{self._tickets}".encode().rjust(NUMBER_BYTES)

    # Of `GatewayCoreHost`

    def now(self) -> float:
        return self.world.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> ScheduledEvent:
        return self.host.later(seconds, callback)

    def place(self, client: GatewayedClient, done: Callable[[tuple[str, ...]], None]) -> None:
        connect = client.tunnel.connect
        assert connect is not None
        self.agent.place(connect.client_id, done, self.now())
        self.look()

    def open(self, client: GatewayedClient, site: str, drains: bool) -> None:
        def failed() -> None:
            self.core.unreachable(client, f"{site}: no answer")

        if site in self._sites:
            made = client.open_site(site, drains)
            self.network.connect(self.host, site, made, failed)
        else:
            self.host.later(0.0, failed)

    def probe(self, site: str, done: Callable[[bool], None]) -> None:
        def answered(connack: bytes) -> None:
            done(len(connack) >= _CONNACK_BYTES and connack[3] != UNAVAILABLE)

        self._tickets += 1
        self._connect_clean(site, Connect(f"bw-{self.name}-{self._tickets}", clean_start=True), answered)

    def clear(self, site: str, connect: Connect, done: Callable[[bool], None]) -> None:
        self._connect_clean(site, connect, lambda connack: done(bool(connack)))

    def _connect_clean(self, site: str, connect: Connect, done: Callable[[bytes], None]) -> None:
        clean = replace(connect, clean_start=True, will=None)
        self.network.connect(
            self.host, site, lambda end: _CleanConnect(self.host, end, clean, done), lambda: done(b"")
        )

    def client_at(self, name: str, site: str) -> None:
        self.world.note(self.name, f"{name} is at {site}")
        self.agent.client_at(name, site, self.now())
        self.look()

    def client_gone(self, name: str) -> None:
        self.agent.client_gone(name, self.now())
        self.look()

    def order_ended(self, task: MoveTask[GatewayedClient], step: MoveStep, why: str) -> None:
        outcome = _OUTCOMES[step]
        self.world.note(self.name, f"order to {task.target} ends: {outcome.value} {why}")
        self.watcher.order_ends(self.name, outcome, step is MoveStep.LATE)
        if task.number is not None:
            self._results[task.number] += 1
            self.agent.moved(task.number, outcome, why, self.now())
            self.look()

    # Of `AgentHost`, and of datagrams

    def send(self, data: bytes, to: Address) -> None:
        self._datagrams.send(data, self.address, to)

    def sites_changed(self, sites: Mapping[str, KnownSite]) -> None:
        self._sites = frozenset(sites)

    def move(self, number: int, client: str, target: str) -> None:
        self.watcher.order_begins(self.name, client, target)
        self._results[number] = 0
        found = self.core.named.get(client)
        why = "the client is not connected" if found is None else self.core.move(found, target, number)
        if why:
            self._results[number] += 1
            self.agent.moved(number, MoveOutcome.REFUSED, why, self.now())

    def received(self, data: bytes, source: Address) -> None:
        self.agent.hear(data, source, self.now())
        self.look()

    def look(self) -> None:
        """Something was asked of the agent: it may want to be called sooner."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.host.later(self.agent.next_due() - self.now(), self._tick)

    def _tick(self) -> None:
        self.agent.tick(self.now())
        self.look()

    # What an operator asks

    def order(self, client: str, site: str) -> str:
        """Why not; empty: the client goes there, or tries."""
        found = self.core.named.get(client) if self.host.up else None
        if found is None or site not in self._sites:
            return "not here"
        if found.tunnel.link is not None and found.tunnel.link.site == site:
            return "it is there already"
        return self.core.move(found, site, None)

    def clients(self) -> list[GatewayedClient]:
        return list(self.core.clients) if self.host.up else []

    def unsettled(self) -> str:
        """The first thing that is not at rest."""
        if self.core.tasks.waiting or self.core.tasks.under_way:
            return f"{self.name} still has orders"
        if 0 in self._results.values():
            return f"an order to {self.name} has no result"
        for client, name in self.core.clients.items():
            if client.tunnel.way is not ClientWay.AT_REST:
                return f"{name or 'a client'} of {self.name} is {client.tunnel.way.value}"
        return ""


def site_address(site: str) -> Address:
    """Made up: sites are reached by their names."""
    return f"192.0.2.{1 + ord(site[0]) % 200}", 1883


class _CleanConnect:
    """A connection on which CONNECT is said, and DISCONNECT when that is answered."""

    def __init__(
        self, host: VirtualHost, end: PipeEnd, connect: Connect, done: Callable[[bytes], None]
    ) -> None:
        self._end = end
        self._version = connect.version
        self._done: Callable[[bytes], None] | None = done
        end.write(codec.encode(connect, connect.version))
        host.later(RULES.answer, end.close)

    def received(self, data: bytes) -> None:
        self._end.write(codec.encode(Disconnect(), self._version))
        self._end.close()
        self._tell(data)

    def lost(self) -> None:
        self._tell(b"")

    def writable_again(self) -> None: ...

    def _tell(self, data: bytes) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(data)
