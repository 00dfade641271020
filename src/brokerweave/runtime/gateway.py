"""The gateway as a process: the pure tunnels of clients and the agent, with sockets and signals around them.

Owns the order of starting (ports, clients, admin socket last, so that its presence means ready) and of
stopping, and which moves are under way. Invariants: each order has one result; at most `at_once` moves are
under way. Must not know: packets, what is decided.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from random import Random

import uvloop

from brokerweave.config import LimitsSection, claim_admin_folder
from brokerweave.config.gateway import GatewayConfig
from brokerweave.gateway.core import GatewayCore, GatewayRules
from brokerweave.gateway.link import SiteLink
from brokerweave.gateway.orders import MoveTask
from brokerweave.gateway.transitions import MoveStep
from brokerweave.gateway.tunnel import NO_SITE
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Connect, Disconnect
from brokerweave.placement.followed import KnownSite
from brokerweave.placement.gateway_agent import GatewayAgent
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.messages import client_key
from brokerweave.placement.prober import ProbeSettings
from brokerweave.placement.whole_gateway import WholeGatewayAgent
from brokerweave.runtime import logs
from brokerweave.runtime.accepting import Accepting
from brokerweave.runtime.admin import AdminServer
from brokerweave.runtime.binding import bound
from brokerweave.runtime.datagram_port import DatagramPort, plain, resolved
from brokerweave.runtime.files import raise_file_limit
from brokerweave.runtime.gateway_commands import GatewayCommands
from brokerweave.runtime.gateway_relay import GatewayClient
from brokerweave.runtime.gateway_sites import GatewaySites
from brokerweave.runtime.gateway_telemetry import gateway_sample
from brokerweave.runtime.gateway_watch import GatewayWatch
from brokerweave.runtime.health import NodeHealth
from brokerweave.runtime.monitoring import draw_boot, monitoring_key
from brokerweave.runtime.problems import Problems
from brokerweave.runtime.secret_files import read_key
from brokerweave.runtime.telemetry import Telemetry, TelemetryPlan
from brokerweave.session import proxy_header
from brokerweave.session.move_ticket import NUMBER_BYTES, PlannedMove, make

log = logging.getLogger("brokerweave.gateway")

TICKET_SECONDS = 30.0
RATE_SECONDS = 5.0
_SHUTTING_DOWN = 0x8B
_POLL_SECONDS = 0.02
_OUTCOMES = {
    MoveStep.DONE: MoveOutcome.DONE,
    MoveStep.LATE: MoveOutcome.DONE,
    MoveStep.REFUSE: MoveOutcome.REFUSED,
    MoveStep.FAIL: MoveOutcome.FAILED,
}


def run(config: GatewayConfig) -> int:
    """Run a gateway until SIGTERM or SIGINT. Raises `BrokerweaveError` if it cannot start."""
    logs.configure(config.gateway.log_level, config.gateway.log_format)
    raise_file_limit(config.limits.max_connections)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(GatewayProcess(config).serve())


class GatewayProcess:
    """Implements `GatewayHost`, `GatewayCoreHost` and `AgentHost`."""

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self.limits: LimitsSection = config.limits
        self.health = NodeHealth(lambda: bool(self._sites.known))
        self._problems = Problems("gateway")
        self._key = read_key(config.gateway.key_file)
        self._watch = GatewayWatch(config.gateway.controller, self._problems, time.monotonic())
        self._sites = GatewaySites(config.limits, self._run)
        planned = config.moves.procedure == "planned" and self._key is not None
        rules = GatewayRules(
            config.limits.broker_timeout,
            config.moves.timeout,
            config.moves.search,
            config.moves.at_once,
            planned,
            frozenset(site.name for site in config.sites if site.bare),
        )
        self._core: GatewayCore[GatewayClient] = GatewayCore(self, rules, client_key)
        self._commands = GatewayCommands(config, self._core, self._sites, self.health, self._problems)
        self._tasks: set[asyncio.Task[None]] = set()
        self._rate = 0.0
        """Messages a second of all clients, lately."""
        self._port = DatagramPort()
        self._accepting = Accepting(lambda: GatewayClient(self))
        self._stopping = asyncio.Event()
        self._agent: GatewayAgent | WholeGatewayAgent

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._problems.loop_failed(context))
        admin = AdminServer(self.config.admin_socket, self._commands.all())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_signal)
        health = telemetry = None
        try:
            await self._start_agent()
            own = self.config.gateway
            if own.health is not None:
                health = await bound("health", own.health, self.health.listen(*own.health))
            await bound("listen", own.listen, self._accepting.listen(*own.listen))
            if own.admin_socket is None:
                claim_admin_folder()
            await admin.start()
            self.health.started = True
            self._run(self._tell_rates())
            telemetry = self._start_telemetry()
            log.info("gateway %s: clients at %s", own.id, own.listen)
            await self._stopping.wait()
            if telemetry is not None:
                await telemetry.stop()
            await self._drain()
        finally:
            await admin.stop()
            if health is not None:
                health.close()
                self.health.hang_up()
            self._port.close()
            for task in self._tasks:
                task.cancel()
        return 0

    async def _start_agent(self) -> None:
        own = self.config.gateway
        await self._port.open(own.monitor, "monitor")
        controllers = [await resolved(address) for address in own.controller]
        sites = []
        for site in self.config.sites:
            monitor = await resolved(site.monitor) if site.monitor is not None and self._key else None
            sites.append(KnownSite(site.name, plain(site.clients), monitor))
        random, now = Random(secrets.randbits(64)), time.monotonic()
        if not own.sealed:
            self._agent = WholeGatewayAgent(own.id, controllers[0], sites, random, self, now)
        else:
            key = monitoring_key(self._key or secrets.token_bytes(32))  # without one nobody is spoken to
            probing = ProbeSettings(every=own.measure_every)
            self._agent = GatewayAgent(
                own.id, key, draw_boot(), controllers, sites, probing, random, self, now
            )
        self._commands.agent = self._agent
        self._port.serve_timed(self._agent)

    def _start_telemetry(self) -> Telemetry | None:
        section, own = self.config.telemetry, self.config.gateway.id
        if not section.interval:
            return None
        topic = section.topic.replace("{gateway}", own)
        plan = TelemetryPlan(own, topic, section.interval, section.username, section.password_file)
        telemetry = Telemetry(
            plan,
            self._accepting.nearby,
            lambda: gateway_sample(self._commands.status({}), self._rate, section.interval),
            self._problems.task_failed,
        )
        telemetry.start()
        return telemetry

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._problems.task_failed("a task of the gateway", error)

    # Stopping

    def _stop_signal(self) -> None:
        if self._stopping.is_set():
            raise SystemExit(1)
        notice = self.limits.drain_notice
        if notice and not self.health.draining:
            asyncio.get_running_loop().call_later(notice, self._stopping.set)
        else:
            self._stopping.set()
        self.health.draining = True

    async def _drain(self) -> None:
        """Nobody new; moves under way end; then clients are told to go elsewhere."""
        self._accepting.close()
        deadline = time.monotonic() + self.limits.drain
        while self._core.tasks.under_way and time.monotonic() < deadline:  # noqa: ASYNC110 (no one event ends it)
            await asyncio.sleep(_POLL_SECONDS)
        for client in list(self._core.clients):
            if client.tunnel.version == 5 and client.tunnel.connack is not None:
                client.to_client(codec.encode(Disconnect(_SHUTTING_DOWN), 5))
            client.tunnel.end()
        while self._core.clients and time.monotonic() < deadline:  # noqa: ASYNC110 (no one event ends it)
            await asyncio.sleep(_POLL_SECONDS)

    # What clients' sockets ask

    def accepts(self, client: GatewayClient) -> bool:
        self._core.connected(client)
        counters = self._core.counters
        counters["accepted_connections"] += 1
        full = len(self._core.clients) > self.limits.max_connections
        counters["refused_connections_full"] += full
        return not full

    def arrived(self, client: GatewayClient) -> None:
        self._core.arrived(client)

    def seek(self, client: GatewayClient) -> None:
        self._core.seek(client)

    def dial_target(self, client: GatewayClient) -> None:
        self._core.dial_target(client)

    def opened(self, client: GatewayClient, link: SiteLink) -> bool:
        return self._core.opened(client, link)

    def site_lost(self, client: GatewayClient, link: SiteLink) -> None:
        self._core.site_lost(client, link)

    def announcement(self, client: GatewayClient, link: SiteLink, old: str) -> bytes:
        connect = client.tunnel.connect
        if not self._core.announces(client, link, old) or self._key is None or connect is None:
            return b""
        move = PlannedMove(connect.client_id, old, link.site, secrets.token_bytes(NUMBER_BYTES))
        ticket = make(self._key, move, time.time() + TICKET_SECONDS)
        return proxy_header.encode(
            client.info("peername"), client.info("sockname"), (proxy_header.TICKET, ticket)
        )

    def settled(self, client: GatewayClient, step: MoveStep, why: str) -> None:
        self._core.settled(client, step, why)
        if step is MoveStep.DONE:
            self._watch.served()
        elif step is MoveStep.FAIL and why == NO_SITE:
            self._core.counters["clients_without_site"] += 1
            self._watch.refused(self._sites.unreachable)
        self._port.look()

    def clear_session(self, site: str, connect: Connect) -> None:
        self._core.sessions.end(site, connect)

    def draw_id(self) -> str:
        return f"bw-{secrets.token_hex(8)}"

    def gone(self, client: GatewayClient) -> None:
        self._core.gone(client)
        self._commands.results.pop(client, None)
        self._port.look()

    # What the core asks

    def now(self) -> float:
        return time.monotonic()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> object:
        loop = asyncio.get_running_loop()
        return loop.call_later(seconds, callback) if seconds else loop.call_soon(callback)

    def place(self, client: GatewayClient, done: Callable[[tuple[str, ...]], None]) -> None:
        connect = client.tunnel.connect
        name = connect.client_id if connect is not None else ""
        self._agent.place(name or self.draw_id(), done, time.monotonic())
        self._port.look()

    def open(self, client: GatewayClient, site: str, drains: bool) -> None:
        self._sites.open(client, site, drains, self._core.unreachable)

    def probe(self, site: str, done: Callable[[bool], None]) -> None:
        self._sites.probe(site, done)

    def clear(self, site: str, connect: Connect, done: Callable[[bool], None]) -> None:
        self._sites.clear(site, connect, done)

    def client_at(self, name: str, site: str) -> None:
        self._agent.client_at(name, site, time.monotonic())

    def client_gone(self, name: str) -> None:
        self._agent.client_gone(name, time.monotonic())

    def order_ended(self, task: MoveTask[GatewayClient], step: MoveStep, why: str) -> None:
        outcome = _OUTCOMES[step]
        self._core.counters[f"moves_{outcome.value}"] += 1
        self._commands.results[task.client] = f"{outcome.value}{': ' + why if why else ''}"
        name = self._core.clients.get(task.client)
        log.info("client %r to %s: %s", name, task.target, self._commands.results[task.client])
        if task.number is not None:
            self._agent.moved(task.number, outcome, why, time.monotonic())
            self._port.look()

    # What the agent asks

    def send(self, data: bytes, to: tuple[str, int]) -> None:
        self._port.send(data, to)

    def sites_changed(self, sites: Mapping[str, KnownSite]) -> None:
        self._sites.known = dict(sites)

    def move(self, number: int, client: str, target: str) -> None:
        found = self._core.named.get(client)
        why = "the client is not connected" if found is None else self._core.move(found, target, number)
        if why:
            self._agent.moved(number, MoveOutcome.REFUSED, why, time.monotonic())

    # How much passes

    async def _tell_rates(self) -> None:
        """How much each client sends and gets, for policies that balance messages."""
        last: dict[GatewayClient, int] = {}
        while True:
            await asyncio.sleep(RATE_SECONDS)
            counts = {client: client.messages for client in self._core.clients}
            self._rate, now = 0.0, time.monotonic()
            for client, key in list(self._core.clients.items()):
                link = client.tunnel.link
                if key and link is not None:
                    rate = max(0, counts[client] - last.get(client, counts[client])) / RATE_SECONDS
                    self._rate += rate
                    self._agent.client_at(key, link.site, now, rate)
            last = counts
            self._watch.look(self._agent.follows, now)
            self._port.look()
