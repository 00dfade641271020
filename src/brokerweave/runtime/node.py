"""The node as a process: the core with real sockets, a real clock, real files and signals around it.

Owns what a node is put together from, and the order of starting (storage, core, links, injectors, clients,
admin socket last, so that its presence means ready), of stopping (clients first, then pending messages, then
the state) and of reading the configuration again. Must not know: what the core decides, and what the parts
do.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random

import uvloop

from brokerweave.config import Address, NodeConfig, claim_admin_folder, reload
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.links.abilities import BrokerAbilities
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.links.handshake import NodeIdentity
from brokerweave.links.injector import Injector, InjectorState
from brokerweave.links.lane import Lane
from brokerweave.membership.meta import Meta
from brokerweave.mqtt.packets import Packet
from brokerweave.node import state
from brokerweave.node.checkpointer import Checkpointer
from brokerweave.node.core import NodeCore
from brokerweave.node.members import MemberWatcher
from brokerweave.node.taps import Taps
from brokerweave.plugin import Strategy, registry
from brokerweave.runtime import dead_letter_commands, logs, settings
from brokerweave.runtime.acl_file import load_acl
from brokerweave.runtime.admin import AdminServer
from brokerweave.runtime.binding import bound
from brokerweave.runtime.checkpoints import Checkpoints
from brokerweave.runtime.client_listener import ClientListener
from brokerweave.runtime.clock import CHECK_SECONDS, Clock
from brokerweave.runtime.configured import Configured
from brokerweave.runtime.files import raise_file_limit
from brokerweave.runtime.flight import FlightChild
from brokerweave.runtime.health import NodeHealth
from brokerweave.runtime.injection import Injection
from brokerweave.runtime.kafka import KafkaChild
from brokerweave.runtime.lane_folders import LaneFolders
from brokerweave.runtime.listening import RuntimeListenerContext
from brokerweave.runtime.membership import Membership, OwnMembership
from brokerweave.runtime.monitoring import Monitoring
from brokerweave.runtime.neighbours import NodeLinks
from brokerweave.runtime.problems import Problems
from brokerweave.runtime.recording import Recording
from brokerweave.runtime.retained import RetainedReader
from brokerweave.runtime.retained_store import SqliteStore
from brokerweave.runtime.secret_files import read_key, read_password
from brokerweave.runtime.servers import own_meta, server_rows
from brokerweave.runtime.sessions import RuntimeSessions
from brokerweave.runtime.status import neighbour_rows, status
from brokerweave.runtime.storage import Storage
from brokerweave.runtime.telemetry import Telemetry, node_telemetry

log = logging.getLogger("brokerweave.node")

DRAIN_POLL_SECONDS = 0.02


def run(config: NodeConfig) -> int:
    """Run a node until SIGTERM or SIGINT. Raises `BrokerweaveError` if it cannot start."""
    logs.configure(config.node.log_level, config.node.log_format)
    raise_file_limit(config.limits.max_connections)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(Node(config).serve())


class Node:
    """Implements the hosts that core, client listener, links and injection ask for."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.random = Random(secrets.randbits(64))
        self.started = time.time()
        self.problems = Problems()
        self.warn = self.problems.warn
        self.task_failed = self.problems.task_failed
        self.client_listener = ClientListener(self)
        self.open_broker = self.client_listener.open_broker
        self.write_client = self.client_listener.write_client
        self.write_broker = self.client_listener.write_broker
        self.hang_up = self.client_listener.hang_up
        self.clear_session = self.client_listener.clear_session
        self.move_ended = self.client_listener.move_ended
        self._clock = Clock()
        self.now = self._clock.now
        self.steady = time.monotonic
        self.health = NodeHealth(self._broker_is_up)
        self.dead_letters = DeadLetters()
        self.storage: Storage
        self.checkpointer: Checkpointer
        self.core: NodeCore
        self.links: NodeLinks
        self.injection: Injection
        self.retained_store: SqliteStore
        self.retained_reader: RetainedReader
        self.recording: Recording | None = None
        self.flight: FlightChild | None = None
        self.kafka: KafkaChild | None = None
        self.membership: Membership | None = None
        self.monitoring: Monitoring | None = None
        self._meta = Meta()
        self._telemetry: Telemetry | None = None
        self._sessions = RuntimeSessions(self.client_listener)
        self._listening: list[RuntimeListenerContext] = []
        self._lane_folders: LaneFolders
        self._checkpoints: Checkpoints
        self._configured: Configured
        self._health_server: asyncio.Server | None = None
        self._stopping = asyncio.Event()

    async def serve(self) -> int:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.problems.loop_failed(context)
        )
        self._follow_clock()
        admin = AdminServer(
            self.config.admin_socket,
            {
                "status": lambda request: status(self),
                "neighbours": lambda request: {"neighbours": neighbour_rows(self)},
                "servers": lambda request: {"servers": server_rows(self)},
                "members": lambda request: {"members": self.membership.rows() if self.membership else []},
                **dead_letter_commands.commands(self),
            },
        )
        self.storage = Storage(self.config.node.data_dir, self.warn)
        try:
            await self._start(admin)
            await self._stopping.wait()
            if self._telemetry is not None:
                await self._telemetry.stop()
            await self._drain()
            self.core.lifecycle.running = False
            self._checkpoints.save(sync=True)
            self.retained_store.close()
        except OSError as error:
            raise Unavailable(
                f"node {self.config.node.id} cannot start: {error.strerror or error}"
            ) from error
        finally:
            await admin.stop()
            if self.membership is not None:
                self.membership.close()
            if self.monitoring is not None:
                self.monitoring.close()
            if self.flight is not None:
                await self.flight.stop()
            if self.kafka is not None:
                await self.kafka.stop()
            if self.recording is not None:
                await self.recording.stop()
            self.storage.close()
        return 0

    async def _start(self, admin: AdminServer) -> None:
        self._build()
        admin.add(self._configured.commands(lambda: neighbour_rows(self)))
        if self.recording is not None:
            admin.add(self.recording.commands())
        self.core.lifecycle.running = True
        await self._listen()
        if self.monitoring is not None:
            await self.monitoring.start()
        if self.membership is not None:
            await self.membership.start()
            self._meta = own_meta(self, self.client_listener.address[1])
            self.announce()
        if self.flight is not None:
            self.flight.start()
        if self.kafka is not None:
            self.kafka.start()
        if self.config.telemetry.interval:
            self._telemetry = node_telemetry(self, self.client_listener.address)
            self._telemetry.start()
        if self.config.node.admin_socket is None:
            claim_admin_folder()
        await admin.start()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_signal)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self.health.started = True
        log.info(
            "node %s relays %s to %s", self.core.node_id, self.config.node.listen, self.config.node.broker
        )

    def _build(self) -> None:
        node, links = self.config.node, self.config.links
        self.checkpointer = Checkpointer(
            self.storage, settings.bounds(self.config), lambda: secrets.randbits(62) + 1, self.warn
        )
        stored = self.checkpointer.recover()
        epoch = max(int(time.time() * 1000), int(stored.get("epoch", 0)) + 1)
        login = node.broker_username, read_password(node.broker_password_file)
        strategy = registry.strategy(node.strategy)
        self._build_core(strategy, epoch, login)
        self._checkpoints = Checkpoints(
            self.core, self.checkpointer, self.dead_letters, self._stopping.is_set
        )
        if self.config.taps:
            self._record()
        if stored:
            try:
                state.load(self.core, self.dead_letters, stored)
            except BrokerweaveError as error:
                self.storage.reject_state(error)
        self._checkpoints.begin()
        cycles = self.core.wiring.enabled
        identity = NodeIdentity(
            node.id, epoch, strategy.name, links.sessions, read_key(node.key_file), cycles
        )
        self.links = NodeLinks(self, links, identity)
        self._configured = Configured(self.core, self.links)
        self.injection = Injection(
            self,
            node.broker,
            links,
            self.config.limits.broker_timeout,
            *login,
            proxied=node.proxy_protocol,
        )
        self.retained_reader = RetainedReader(self, self.retained_store, self.config, login)
        if self.config.membership.bind is not None:
            self._become_member()
        if self.config.monitoring.listen is not None:
            key = read_key(self.config.monitoring_key_file)
            self.monitoring = Monitoring(self.config.monitoring, key)

    def _shared_key(self) -> bytes | None:
        """The same at all nodes."""
        return read_key(self.config.node.key_file or self.config.membership.key_file)

    def _stamp_key(self) -> bytes:
        """A broker may keep what another node stamped for clients of this one."""
        key = self._shared_key()
        # What is proved by one use of the key must prove nothing for another.
        return hmac.digest(key, b"brokerweave stamps", "sha256") if key is not None else b""

    def _build_core(
        self, strategy: type[Strategy], epoch: int, login: tuple[str | None, bytes | None]
    ) -> None:
        node, links = self.config.node, self.config.links
        username, password = login
        injectors = [
            Injector(
                f"brokerweave-{node.id}-{lane}",
                BrokerAbilities(),
                self.checkpointer.outbox(f"injectors/{lane}", durable=True),
                self.dead_letters,
                username=username,
                password=password,
                progress=self.storage.progress(f"injectors/{lane}/progress"),
            )
            for lane in range(links.sessions)
        ]
        self._lane_folders = LaneFolders(self.storage, self.checkpointer, lambda: self.config.links.qos > 0)
        self.retained_store = SqliteStore(self.storage.folder / "retained.db", self.warn)
        core_settings = settings.core_settings(self.config, epoch, strategy)
        self.core = NodeCore(
            replace(core_settings, stamp_key=self._stamp_key(), move_key=self._shared_key() or b""),
            self.config.limits,
            strategy,
            (),
            self,
            self._lane_folders.lane,
            injectors,
            self.retained_store,
            self.checkpointer.wal,
        )
        if not self.storage.temporary:
            self.core.care.keep_in(partial(self.storage.journal, "held"))
        self.health.ready = self.core.guarded.ready
        self.core.plugins.report = self.problems.report
        self._listening = [
            RuntimeListenerContext(self, registry.listener(name), self._sessions, login)
            for name in node.listeners
        ]
        self.core.plugins.listeners = tuple(context.listener for context in self._listening)
        self.core.admission.replace(load_acl(self.config))

    def _become_member(self) -> None:
        node = self.config.node
        key = read_key(self.config.membership.key_file or node.key_file)
        assert key is not None  # the configuration was checked
        members = MemberWatcher(self.core, self, reachable=node.link_listen is not None)
        own = OwnMembership(self.config.membership, node.id, node.link_listen)
        self.membership = Membership(own, key, self.random, members, self.warn)

    def _record(self) -> None:
        folder = self.config.edge_log.path
        if folder is None:
            folder = self.storage.folder / "edge-log"
            if self.storage.temporary:
                self.warn(
                    "neither data_dir nor an [edge_log] path: recorded rows are lost when this node ends"
                )
        self.recording = Recording(self, self.config.edge_log, folder, self.config.node.id)
        if self.config.flight.listen is not None:
            self.flight = FlightChild(self.config.flight, folder, self.warn)
        if self.config.kafka.servers:
            self.kafka = KafkaChild(self.config.kafka, folder, self.warn)
        self.core.use_taps(Taps(settings.taps(self.config), self.recording, self.random))

    async def _listen(self) -> None:
        node = self.config.node
        # Before anything is awaited: from the next turn on the strategy judges whether it knows all.
        for neighbour in self.config.neighbours:
            self._configured.add(neighbour.id, neighbour.address)
        if node.link_listen is not None:
            await bound("link_listen", node.link_listen, self.links.listen(node.link_listen))
        elif self.config.neighbours == ():
            self.warn("neither link_listen nor a neighbour is configured: this node links with no other")
        if node.key_file is None and node.link_listen is not None:
            self.warn("no key_file: anyone who can connect to link_listen may link")
        if node.health is not None:
            self._health_server = await bound("health", node.health, self.health.listen(*node.health))
        await bound("listen", node.listen, self.client_listener.listen())

    def _follow_clock(self) -> None:
        self.call_later(CHECK_SECONDS, self._follow_clock)
        step = self._clock.follow()
        if step and self.recording is not None:
            self.recording.clock_set(step)

    # Stopping and reloading

    def _stop_signal(self) -> None:
        if self._stopping.is_set():
            raise SystemExit(1)
        notice = self.config.limits.drain_notice
        if notice and not self.health.draining:
            self.call_later(notice, self._stopping.set)
            self._meta = replace(self._meta, stops=True)
            self.announce()
        else:
            self._stopping.set()
        self.health.draining = self.client_listener.stopping = True

    def _broker_is_up(self) -> bool:
        return any(injector.state is InjectorState.READY for injector in self.core.injectors)

    async def _drain(self) -> None:
        """Clients leave first, then what is owed gets its time, then neighbours hear good-bye."""
        deadline = self.now() + self.config.limits.drain
        self.core.plugins.tell(lambda listener: listener.node_stopping())
        await asyncio.gather(*(context.stop(self.config.limits.drain) for context in self._listening))
        self.client_listener.close()
        self._sessions.close()
        while (self._has_pending_for_live() or self._has_open_sessions()) and self.now() < deadline:  # noqa: ASYNC110 (no one event ends it)
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        if self.membership is not None:
            await self.membership.stop()
        await self.links.stop()
        await self.injection.stop()
        await self.retained_reader.stop()
        if self._health_server is not None:
            self._health_server.close()
            self.health.hang_up()

    def _has_open_sessions(self) -> bool:
        return bool(self.client_listener.closing) or not self._sessions.closed

    def _has_pending_for_live(self) -> bool:
        """Whether anything waits for a neighbour or broker that is there to take it."""
        lanes = [
            lane
            for neighbour in self.core.neighbour_table.all()
            for lane, connected in zip(neighbour.lanes, neighbour.connected, strict=True)
            if connected
        ]
        ready = [injector for injector in self.core.injectors if not injector.reason]
        return any(lane.outbox.backlog_runs for lane in lanes) or not all(i.idle for i in ready)

    def _reload(self) -> None:
        """SIGHUP: neighbours, limits and access list as the files say now; a mistake changes nothing."""
        try:
            fresh = reload(self.config)
            acl = load_acl(fresh)
        except ConfigError as error:
            log.error("configuration not reloaded: %s", error)
            return
        wanted = {neighbour.id: neighbour.address for neighbour in fresh.neighbours}
        before = {neighbour.id: neighbour.address for neighbour in self.config.neighbours}
        self._configured.change(before, wanted)
        self.core.limits = fresh.limits
        self.core.admission.replace(acl)
        self.config = fresh
        log.warning("configuration reloaded: %d neighbours", len(wanted))

    # The cluster

    def announce(self, data: bytes | None = None) -> None:
        """Tell all members of this one's addresses and, if it changed, what the strategy announces."""
        if data is not None:
            self._meta = replace(self._meta, table=data)
        if self.membership is not None:
            self.membership.set_meta(self._meta.encode())

    def searching(self) -> bool:
        return self.membership is not None and self.membership.searching()

    def round_trips(self) -> Mapping[str, float]:
        return self.membership.round_trips() if self.membership is not None else {}

    def dial_member(self, node: str, address: tuple[str, int]) -> None:
        self.links.hang_up(node, removed=False)
        self.links.dial(node, Address(*address))

    def is_configured(self, node: str) -> bool:
        return node in self._configured

    def hang_up_member(self, node: str) -> None:
        self.links.hang_up(node, removed=False)

    # Links

    def neighbour_left(self, neighbour: str) -> None:
        self._configured.left(neighbour)

    def link_changed(self, neighbour: str, up: bool) -> None:
        log.info("link with %s is %s", neighbour, "up" if up else "down")
        if not up and self.membership is not None:
            self.membership.check(neighbour)

    def remember_taken(self, neighbour: str, index: int, lane: Lane) -> None:
        self._lane_folders.note_taken(neighbour, index, lane)

    # What the core asks, beside what the client listener does

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.Handle:
        loop = asyncio.get_running_loop()
        return loop.call_later(seconds, callback) if seconds > 0 else loop.call_soon(callback)

    def lane_ready(self, neighbour: str, lane: int) -> None:
        self.links.lane_ready(neighbour, lane)

    def injector_ready(self, lane: int) -> None:
        self.injection.injector_ready(lane)

    def send_control(self, neighbour: str, packet: Packet) -> None:
        self.links.send_control(neighbour, packet)

    def forget_lanes(self, neighbour: str) -> None:
        self._lane_folders.delete(neighbour)
        self._checkpoints.save()  # the write-ahead log may name them still
