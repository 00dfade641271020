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
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

import uvloop

import brokerweave
from brokerweave.config import Address, LimitsSection, claim_admin_folder
from brokerweave.config.gateway import GatewayConfig
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.gateway.link import SiteLink
from brokerweave.gateway.transitions import ClientWay, MoveStep
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Connect, Disconnect, Subscription
from brokerweave.mqtt.properties import Properties, Property, get_int
from brokerweave.placement.followed import KnownSite
from brokerweave.placement.gateway_agent import GatewayAgent
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.messages import client_key
from brokerweave.placement.prober import ProbeSettings
from brokerweave.runtime import logs
from brokerweave.runtime.accepting import Accepting
from brokerweave.runtime.admin import AdminServer, Command
from brokerweave.runtime.datagram_port import DatagramPort, plain, resolved
from brokerweave.runtime.files import raise_file_limit
from brokerweave.runtime.gateway_relay import GatewayClient
from brokerweave.runtime.gateway_search import SiteSearch
from brokerweave.runtime.health import NodeHealth
from brokerweave.runtime.monitoring import draw_boot, monitoring_key
from brokerweave.runtime.problems import Problems
from brokerweave.runtime.secret_files import read_key
from brokerweave.session import proxy_header
from brokerweave.session.move_ticket import NUMBER_BYTES, PlannedMove, make

log = logging.getLogger("brokerweave.gateway")

TICKET_SECONDS = 30.0
RATE_SECONDS = 5.0
MOST_SESSIONS = 10_000
"""Of clients that are away, whose subscriptions are remembered."""
_T = TypeVar("_T")
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


@dataclass(slots=True)
class _Order:
    client: GatewayClient
    target: str
    number: int | None
    """Of a controller; None: an operator's."""


class GatewayProcess:
    """Implements `GatewayHost` and `AgentHost`."""

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self.limits: LimitsSection = config.limits
        self.health = NodeHealth(lambda: bool(self._search.sites))
        self.counters: Counter[str] = Counter()
        self._started = time.monotonic()
        self._problems = Problems()
        self._key = read_key(config.gateway.key_file)
        self._clients: dict[GatewayClient, str] = {}
        """With the ids by which controllers know them; empty until they have a site."""
        self._named: dict[str, GatewayClient] = {}
        self._sessions: OrderedDict[str, dict[str, tuple[Subscription, Properties]]] = OrderedDict()
        self._orders: deque[_Order] = deque()
        self._under_way: dict[GatewayClient, _Order] = {}
        self._search = SiteSearch(config, self._place, self._run)
        self._results: dict[GatewayClient, str] = {}
        """Of the last order of each."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = DatagramPort()
        self._accepting = Accepting(lambda: GatewayClient(self))
        self._stopping = asyncio.Event()
        self._agent: GatewayAgent

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._problems.loop_failed(context))
        commands: dict[str, Command] = {
            "status": self._status,
            "clients": self._rows,
            "move": self._move,
            "where": self._where,
        }
        admin = AdminServer(self.config.admin_socket, commands)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_signal)
        health = None
        try:
            await self._start_agent()
            own = self.config.gateway
            if own.health is not None:
                health = await _bound("health", own.health, self.health.listen(*own.health))
            await _bound("listen", own.listen, self._accepting.listen(*own.listen))
            if own.admin_socket is None:
                claim_admin_folder()
            await admin.start()
            self.health.started = True
            self._run(self._tell_rates())
            log.info("gateway %s: clients at %s", own.id, own.listen)
            await self._stopping.wait()
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
        random = Random(secrets.randbits(64))
        key = monitoring_key(self._key or secrets.token_bytes(32))  # without one nobody is spoken to
        now = time.monotonic()
        self._agent = GatewayAgent(
            own.id, key, draw_boot(), controllers, sites, ProbeSettings(), random, self, now
        )
        self._port.serve_timed(self._agent)

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
        while self._under_way and time.monotonic() < deadline:  # noqa: ASYNC110 (no one event ends it)
            await asyncio.sleep(_POLL_SECONDS)
        for client in list(self._clients):
            if client.tunnel.version == 5 and client.tunnel.connack is not None:
                client.to_client(codec.encode(Disconnect(_SHUTTING_DOWN), 5))
            client.tunnel.end()
        while self._clients and time.monotonic() < deadline:  # noqa: ASYNC110 (no one event ends it)
            await asyncio.sleep(_POLL_SECONDS)

    # What clients' sockets ask

    def accepts(self, client: GatewayClient) -> bool:
        self._clients[client] = ""
        self.counters["accepted_connections"] += 1
        full = len(self._clients) > self.limits.max_connections
        self.counters["refused_connections_full"] += full
        return not full

    def arrived(self, client: GatewayClient) -> None:
        self._search.seek(client)

    def seek(self, client: GatewayClient) -> None:
        self._search.seek(client)

    def _place(self, client: GatewayClient, done: Callable[[tuple[str, ...]], None]) -> None:
        connect = client.tunnel.connect
        name = connect.client_id if connect is not None else ""
        self._agent.place(name or self.draw_id(), done, time.monotonic())
        self._port.look()

    def dial_target(self, client: GatewayClient) -> None:
        self._search.dial(client, self._under_way[client].target)

    def announcement(self, client: GatewayClient, link: SiteLink, old: str) -> bytes:
        client.set_deadline(self.limits.broker_timeout, partial(self._overdue, client, False))
        connect = client.tunnel.connect
        if not (old and link.drains and self._key is not None and connect is not None):
            return b""
        move = PlannedMove(connect.client_id, old, link.site, secrets.token_bytes(NUMBER_BYTES))
        ticket = make(self._key, move, time.time() + TICKET_SECONDS)
        return proxy_header.encode(
            client.info("peername"), client.info("sockname"), (proxy_header.TICKET, ticket)
        )

    def _overdue(self, client: GatewayClient, drained: bool) -> None:
        """A site did not answer in time; but where it has, the old one has longer."""
        if client.tunnel.way is ClientWay.DRAINING and not drained:
            client.set_deadline(self.config.moves.timeout, partial(self._overdue, client, True))
        elif client.tunnel.way in (ClientWay.GREETING, ClientWay.ASKING, ClientWay.DRAINING):
            client.tunnel.overdue()
            client.look()

    def settled(self, client: GatewayClient, step: MoveStep, why: str) -> None:
        client.drop_deadline()
        tunnel, now = client.tunnel, time.monotonic()
        order = self._under_way.pop(client, None)
        self._search.over(client)
        if tunnel.link is not None and tunnel.way is ClientWay.AT_REST:
            self._is_at(client, tunnel.link.site, now)
        if order is not None:
            at_target = tunnel.link is not None and tunnel.link.site == order.target
            outcome = _OUTCOMES[step]
            if outcome is MoveOutcome.DONE and not at_target:
                outcome = MoveOutcome.FAILED
            self.counters[f"moves_{outcome.value}"] += 1
            self.counters["moves_late"] += step is MoveStep.LATE
            self._results[client] = f"{outcome.value}{': ' + why if why else ''}"
            log.info("client %r to %s: %s", self._clients.get(client), order.target, self._results[client])
            if order.number is not None:
                self._agent.moved(order.number, outcome, why, now)
        self._port.look()
        asyncio.get_running_loop().call_soon(self._begin_moves)

    def _is_at(self, client: GatewayClient, site: str, now: float) -> None:
        connect, connack = client.tunnel.connect, client.tunnel.connack
        assert connect is not None
        assert connack is not None
        key = client_key(connect.client_id)
        if not self._clients.get(client):
            self._clients[client] = key
            self._named[key] = client
            known = self._sessions.pop(connect.client_id, None)
            if connack.session_present:
                client.tunnel.session_known = known is not None
                client.tunnel.wanted.granted.update(known or {})
        else:
            self.counters["site_changes"] += 1
        self._agent.client_at(key, site, now)

    def clear_session(self, site: str, connect: Connect) -> None:
        self._run(self._clear(site, connect))

    async def _clear(self, site: str, connect: Connect) -> None:
        if not await self._search.clear(site, connect):
            self.counters["sessions_not_cleared"] += 1

    def draw_id(self) -> str:
        return f"bw-{secrets.token_hex(8)}"

    def own_lost(self, client: GatewayClient, link: SiteLink) -> None:
        self._run(self._own_lost(client, link))

    async def _own_lost(self, client: GatewayClient, link: SiteLink) -> None:
        alive = await self._search.answers(link.site)
        tunnel = client.tunnel
        if tunnel.link is not link or tunnel.way is ClientWay.ENDED:
            return
        if alive and tunnel.way is ClientWay.AT_REST:
            self.counters["sent_away_by_site"] += 1
            tunnel.end()
        else:
            self.counters["sites_lost"] += 1
            tunnel.lost(link)
            client.look()

    def gone(self, client: GatewayClient) -> None:
        self._search.over(client)
        key = self._clients.pop(client, "")
        self._results.pop(client, None)
        connect, tunnel = client.tunnel.connect, client.tunnel
        if not key or connect is None:
            return
        if _persistent(connect) and tunnel.session_known:
            self._sessions[connect.client_id] = tunnel.wanted.granted
            if len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        if self._named.get(key) is client:
            del self._named[key]
            self._agent.client_gone(key, time.monotonic())
            self._port.look()

    # What the agent asks

    def send(self, data: bytes, to: tuple[str, int]) -> None:
        self._port.send(data, to)

    def sites_changed(self, sites: Mapping[str, KnownSite]) -> None:
        self._search.sites = dict(sites)

    def move(self, number: int, client: str, target: str) -> None:
        found = self._named.get(client)
        why = "the client is not connected" if found is None else self._unmovable(found)
        if found is None or why:
            self._agent.moved(number, MoveOutcome.REFUSED, why, time.monotonic())
        else:
            self._orders.append(_Order(found, target, number))
            asyncio.get_running_loop().call_soon(self._begin_moves)

    def _unmovable(self, client: GatewayClient) -> str:
        waits = any(order.client is client for order in self._orders)
        if waits or client.tunnel.way is not ClientWay.AT_REST:
            return "it is on its way already"
        return client.tunnel.fixed

    def _begin_moves(self) -> None:
        while self._orders and len(self._under_way) < self.config.moves.at_once:
            order = self._orders.popleft()
            tunnel = order.client.tunnel
            why = "the client has gone" if tunnel.way is ClientWay.ENDED else tunnel.fixed
            if tunnel.way is not ClientWay.AT_REST or why:
                if order.number is not None:
                    why = why or "it lost its site"
                    self._agent.moved(order.number, MoveOutcome.REFUSED, why, time.monotonic())
                continue
            self._results.pop(order.client, None)
            self._under_way[order.client] = order
            tunnel.order()
            order.client.look()
        self._port.look()

    # What operators ask

    def _client(self, request: Mapping[str, object]) -> GatewayClient:
        name = str(request.get("client", ""))
        client = self._named.get(client_key(name))
        if client is None:
            raise BrokerweaveError(f"client {name!r} is not connected here")
        return client

    def _move(self, request: dict[str, object]) -> object:
        client, site = self._client(request), str(request.get("site", ""))
        if site not in self._search.sites:
            raise ConfigError(f"no site {site!r}; known are {', '.join(sorted(self._search.sites))}")
        if client.tunnel.link is not None and client.tunnel.link.site == site:
            return self._where(request)
        if why := self._unmovable(client):
            raise BrokerweaveError(f"the client cannot be moved: {why}")
        self._orders.append(_Order(client, site, None))
        self._begin_moves()
        return self._where(request)

    def _where(self, request: dict[str, object]) -> dict[str, object]:
        client = self._client(request)
        link = client.tunnel.link
        waits = any(order.client is client for order in self._orders)
        return {
            "client": self._clients[client],
            "site": link.site if link is not None else None,
            "moving": waits or client.tunnel.way is not ClientWay.AT_REST,
            "result": self._results.get(client, ""),
        }

    def _rows(self, request: dict[str, object]) -> object:
        return {"clients": [self._where({"client": name}) for name in sorted(self._named)]}

    def _status(self, request: dict[str, object]) -> object:
        own, agent = self.config.gateway, self._agent
        at = Counter(client.tunnel.link.site for client in self._clients if client.tunnel.link is not None)
        trips = agent.prober.estimates()
        return {
            "gateway": {
                "id": own.id,
                "version": brokerweave.__version__,
                "uptime": round(time.monotonic() - self._started, 3),
                "listen": str(own.listen),
                "health": str(own.health) if own.health else None,
                "not_ready": self.health.reason or None,
                "follows": agent.follows or None,
                "procedure": "planned" if self._search.planned else "emma",
            },
            "clients": len(self._clients),
            "moving": len(self._under_way),
            "waiting_moves": len(self._orders),
            "sites": [
                {
                    "site": name,
                    "address": str(Address(*site.clients)),
                    "clients": at[name],
                    "round_trip_ms": round(1000 * trips[name], 3) if name in trips else None,
                }
                for name, site in sorted(self._search.sites.items())
            ],
            "counters": {**self.counters, "internal_errors": self._problems.internal_errors},
            "refused": agent.refused,
            "warnings": self._problems.warnings,
        }

    async def _tell_rates(self) -> None:
        """How much each client sends and gets, for policies that balance messages."""
        last: dict[GatewayClient, int] = {}
        while True:
            await asyncio.sleep(RATE_SECONDS)
            counts = {client: client.messages for client in self._clients}
            now = time.monotonic()
            for client, key in list(self._clients.items()):
                link = client.tunnel.link
                if key and link is not None:
                    rate = max(0, counts[client] - last.get(client, counts[client])) / RATE_SECONDS
                    self._agent.client_at(key, link.site, now, rate)
            last = counts
            self._port.look()


async def _bound(name: str, address: Address, serving: Coroutine[None, None, _T]) -> _T:
    try:
        return await serving
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable(f"{name} {address} cannot be used ({reason}); is another program there?") from error


def _persistent(connect: Connect) -> bool:
    if connect.version == 5:
        return get_int(connect.properties, Property.SESSION_EXPIRY_INTERVAL) > 0
    return not connect.clean_start
