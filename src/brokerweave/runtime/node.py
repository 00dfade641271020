"""The node as a process: the core with real sockets, a real clock, real files and signals around it.

Owns the order of starting (storage, core, links, injectors, clients, admin socket last, so that its presence
means ready) and of stopping (clients first, then what is owed, then the state). Must not know: what the
core decides.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import resource
import secrets
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import uvloop

from brokerweave.config import Address, LimitsSection, NodeConfig, claim_admin_folder, reload
from brokerweave.config.values import ID, BadValue
from brokerweave.cooperation import registry
from brokerweave.cooperation.mesh import Mesh
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.links.abilities import BrokerAbilities
from brokerweave.links.dead_letters import DeadLetters, plain
from brokerweave.links.handshake import Identity
from brokerweave.links.injector import Injector, State
from brokerweave.links.lane import Lane
from brokerweave.membership.events import Nobody, Watcher
from brokerweave.membership.meta import Meta
from brokerweave.mqtt.packets import Packet
from brokerweave.node import state
from brokerweave.node.core import NodeCore, Settings
from brokerweave.node.keeper import Bounds, Keeper
from brokerweave.node.members import MemberLinks
from brokerweave.node.plugins import MOST_KINDS, place_of
from brokerweave.node.retained import RetainedSettings
from brokerweave.node.taps import Tap, Taps
from brokerweave.runtime import dead_letter_commands, logs
from brokerweave.runtime.acl_file import load_acl
from brokerweave.runtime.admin import AdminServer
from brokerweave.runtime.clock import CHECK_SECONDS, Clock
from brokerweave.runtime.flight import FlightChild
from brokerweave.runtime.health import Health
from brokerweave.runtime.injection import Injection
from brokerweave.runtime.journal import Note
from brokerweave.runtime.kafka import KafkaChild
from brokerweave.runtime.membership import Membership
from brokerweave.runtime.neighbours import Links
from brokerweave.runtime.recording import Recording
from brokerweave.runtime.relay import BrokerConnection, ClientConnection
from brokerweave.runtime.retained import RetainedReader
from brokerweave.runtime.retained_store import SqliteStore
from brokerweave.runtime.servers import own_meta, server_rows
from brokerweave.runtime.sessions import RuntimeSessions
from brokerweave.runtime.status import neighbour_rows, outboxes, status
from brokerweave.runtime.storage import Storage
from brokerweave.runtime.telemetry import Telemetry
from brokerweave.runtime.traffic import Traffic
from brokerweave.session.pair import Pair

log = logging.getLogger("brokerweave.node")

DRAIN_POLL_SECONDS = 0.02
CHECKPOINT_RETRY_SECONDS = 1.0


def run(config: NodeConfig) -> int:
    """Run a node until SIGTERM or SIGINT. Raises `BrokerweaveError` if it cannot start."""
    logs.configure(config.node.log_level, config.node.log_format)
    _raise_file_limit(config.limits.max_connections)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(Node(config).serve())


class Node:
    """Implements the hosts that core, relays, links and injection ask for."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.random = Random(secrets.randbits(64))
        self.relays: dict[Pair, ClientConnection] = {}
        self.traffic = Traffic()
        self._telemetry: Telemetry | None = None
        self.warnings: list[str] = []
        self.started = time.time()
        self.storage: Storage
        self.keeper: Keeper
        self.core: NodeCore
        self.links: Links
        self.injection: Injection
        self.retained_store: SqliteStore
        self.retained_reader: RetainedReader
        self.dead_letters = DeadLetters()
        self.recording: Recording | None = None
        self.flight: FlightChild | None = None
        self.kafka: KafkaChild | None = None
        self.health = Health(self._broker_is_up)
        self.membership: Membership | None = None
        self.watcher: Watcher = Nobody()
        """Who acts when members come and go; to be set before `_build` ends."""
        self.meta = Meta()
        self._clock = Clock()
        self.now = self._clock.now
        self._checkpointing: asyncio.Handle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._health_server: asyncio.Server | None = None
        self._configured: set[str] = set()
        self._notes: dict[tuple[str, int], Note] = {}
        self.internal_errors = 0
        self._errors_said: set[tuple[str, str, str]] = set()

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._loop_failed(context))
        self._follow_clock()
        admin = AdminServer(
            self.config.admin_socket,
            {
                "status": lambda request: status(self),
                "neighbours": lambda request: {"neighbours": neighbour_rows(self)},
                "servers": lambda request: {"servers": server_rows(self)},
                "add_neighbour": self._add_command,
                "remove_neighbour": self._remove_command,
                "members": lambda request: {"members": self.membership.rows() if self.membership else []},
                **dead_letter_commands.commands(self),
            },
        )
        self.storage = Storage(self.config.node.data_dir, self.warn)
        try:
            self._build()
            if self.recording is not None:
                admin.add(self.recording.commands())
            await self._listen(loop)
            if self.membership is not None:
                await self.membership.start()
                self.meta = own_meta(self, _reached(self._server)[1])
                self.announce()
            if self.flight is not None:
                self.flight.start()
            if self.kafka is not None:
                self.kafka.start()
            if self.config.telemetry.interval:
                self._telemetry = Telemetry(self, _reached(self._server), self.config)
                self._telemetry.start()
            if self.config.node.admin_socket is None:
                claim_admin_folder()
            await admin.start()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop_signal)
            loop.add_signal_handler(signal.SIGHUP, self._reload)
            self.health.started = True
            log.info(
                "node %s relays %s to %s", self.core.node_id, self.config.node.listen, self.config.node.broker
            )
            await self._stopping.wait()
            if self._telemetry is not None:
                await self._telemetry.stop()
            await self._drain()
            self._checkpoint(sync=True)
            self.retained_store.close()
        except OSError as error:
            raise Unavailable(
                f"node {self.config.node.id} cannot start: {error.strerror or error}"
            ) from error
        finally:
            await admin.stop()
            if self.membership is not None:
                self.membership.close()
            if self.flight is not None:
                await self.flight.stop()
            if self.kafka is not None:
                await self.kafka.stop()
            if self.recording is not None:
                await self.recording.stop()
            self.storage.close()
        return 0

    def _build(self) -> None:
        node, links = self.config.node, self.config.links
        bounds = Bounds(links.window, links.order == "topic", links.outbox_memory, links.outbox_disk)
        self.keeper = Keeper(self.storage, bounds, lambda: secrets.randbits(62) + 1, self.warn)
        stored = self.keeper.recover()
        epoch = max(int(time.time() * 1000), int(stored.get("epoch", 0)) + 1)
        username, password = node.broker_username, _first_line(node.broker_password_file)
        injectors = [
            Injector(
                f"brokerweave-{node.id}-{lane}",
                BrokerAbilities(),
                self.keeper.outbox(f"injectors/{lane}", durable=True),
                self.dead_letters,
                username=username,
                password=password,
                progress=self.storage.progress(f"injectors/{lane}/progress"),
            )
            for lane in range(links.sessions)
        ]
        sessions = RuntimeSessions(self)
        self.retained_store = SqliteStore(self.storage.folder / "retained.db", self.warn)
        strategy = registry.strategy(node.strategy)
        mesh = issubclass(strategy, Mesh)
        patience = self.config.mesh.patience if mesh else 0.0
        self.core = NodeCore(
            Settings(
                node_id=node.id,
                epoch=epoch,
                lanes=links.sessions,
                ordered=links.order == "topic",
                window=links.window,
                forget_after=links.forget_after,
                session_expiry=node.session_expiry,
                cycles=links.cycles == "stand-by" and not mesh,
                unknown_session=node.unknown_session,
                cluster_timeout=patience or (node.cluster_timeout if node.delivery == "cluster" else None),
                barrier_timeout=patience or (node.barrier_timeout if node.subscribe == "barrier" else None),
                options=asdict(self.config.mesh) if mesh else {},
                retained=RetainedSettings(
                    self.config.retained.tombstone_age,
                    self.config.retained.max_skew,
                    self.config.retained.max_bytes,
                ),
            ),
            self.config.limits,
            strategy,
            tuple(registry.listener(name)(sessions) for name in node.listeners),
            self,
            self._make_lane,
            injectors,
            self.retained_store,
            self.keeper.daybook,
        )
        if self.core.failover is not None and not self.storage.temporary:
            self.core.failover.keep_in(self.storage.journal("held"))
        if isinstance(self.core.strategy, Mesh):
            self.health.recovering = self.core.strategy.recovering
        self.core.plugins.report = self._report
        self.core.admission.replace(load_acl(self.config))
        if self.config.taps:
            self._record()
        if stored:
            try:
                state.load(self.core, self.dead_letters, stored)
            except BrokerweaveError as error:
                self.storage.reject_state(error)
        self._keep_changes()
        cycles = self.core.wiring.enabled
        identity = Identity(node.id, epoch, strategy.name, links.sessions, _key(node.key_file), cycles)
        self.links = Links(self, links, identity)
        self.injection = Injection(
            self,
            node.broker,
            links,
            self.config.limits.broker_timeout,
            username,
            password,
            proxied=node.proxy_protocol,
        )
        self.retained_reader = RetainedReader(self, self.retained_store, self.config, (username, password))
        if self.config.membership.bind is not None:
            key = _key(self.config.membership.key_file or node.key_file)
            assert key is not None  # the configuration was checked
            if isinstance(self.core.strategy, Mesh):
                reachable = node.link_listen is not None
                self.watcher = MemberLinks(self.core, self.core.strategy, self, reachable)
            self.membership = Membership(self.config, key, self.random, self.watcher, self.warn)
            if isinstance(self.core.strategy, Mesh):
                self.core.strategy.searching = self.membership.searching

    def _record(self) -> None:
        folder = self.config.edge_log.path
        if folder is None:
            folder = self.storage.folder / "edge-log"
            if self.storage.temporary:
                self.warn("neither data_dir nor an [edge_log] path: what taps record is gone with this node")
        self.recording = Recording(self, self.config.edge_log, folder, self.config.node.id)
        if self.config.flight.listen is not None:
            self.flight = FlightChild(self.config.flight, folder, self.warn)
        if self.config.kafka.servers:
            self.kafka = KafkaChild(self.config.kafka, folder, self.warn)
        taps = [Tap(tap.topics, tap.exclude, tap.sample) for tap in self.config.taps]
        self.core.use_taps(Taps(taps, self.recording, self.random))

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        node = self.config.node
        if node.link_listen is not None:
            await _bind("link_listen", node.link_listen, self.links.listen(node.link_listen))
        elif self.config.neighbours == ():
            self.warn("neither link_listen nor a neighbour is configured: this site stands alone")
        if node.key_file is None and node.link_listen is not None:
            self.warn("no key_file: anyone who reaches link_listen may link")
        for neighbour in self.config.neighbours:
            self._add(neighbour.id, neighbour.address)
        if node.health is not None:
            self._health_server = await _bind("health", node.health, self.health.listen(*node.health))
        serving = loop.create_server(
            lambda: ClientConnection(self), node.listen.host, node.listen.port, backlog=4096
        )
        self._server = await _bind("listen", node.listen, serving)

    def _follow_clock(self) -> None:
        self.call_later(CHECK_SECONDS, self._follow_clock)
        step = self._clock.follow()
        if step and self.recording is not None:
            self.recording.clock_set(step)

    # Stopping and reloading

    def _stop_signal(self) -> None:
        if self._stopping.is_set():
            raise SystemExit(1)
        if self.limits.drain_notice and not self.health.draining:
            self.call_later(self.limits.drain_notice, self._stopping.set)
        else:
            self._stopping.set()
        self.health.draining = True

    def _broker_is_up(self) -> bool:
        return any(injector.state is State.READY for injector in self.core.injectors)

    async def _drain(self) -> None:
        """Clients leave first, then what is owed gets its time, then neighbours hear good-bye."""
        self.core.plugins.tell(lambda listener: listener.node_stopping())
        if self._server is not None:
            self._server.close()
        for relay in list(self.relays.values()):
            relay.shut_down()
        deadline = self.now() + self.config.limits.drain
        while self._owes_the_living() and self.now() < deadline:  # noqa: ASYNC110 (no one event ends it)
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        if self.membership is not None:
            await self.membership.stop()
        await self.links.stop()
        await self.injection.stop()
        await self.retained_reader.stop()
        if self._health_server is not None:
            self._health_server.close()
            self.health.hang_up()

    def _owes_the_living(self) -> bool:
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
        for identifier in self._configured - wanted.keys():
            self._remove(identifier)
        for identifier, address in wanted.items():
            if before.get(identifier) != address or identifier not in self._configured:
                self.links.hang_up(identifier, removed=False)
                self._add(identifier, address)
        self.core.limits = fresh.limits
        self.core.admission.replace(acl)
        self.config = fresh
        log.warning("configuration reloaded: %d neighbours", len(wanted))

    def announce(self, table: bytes | None = None) -> None:
        """Tell all members of this one's addresses and, if it changed, of the strategy's table."""
        if table is not None:
            self.meta = replace(self.meta, table=table)
        if self.membership is not None:
            self.membership.set_meta(self.meta.encode())

    # Neighbours

    def _add(self, identifier: str, address: Address) -> None:
        self._configured.add(identifier)
        self.core.add_neighbour(identifier)
        self.links.dial(identifier, address)

    def _remove(self, identifier: str) -> None:
        self._configured.discard(identifier)
        self.links.hang_up(identifier, removed=True)
        if identifier in self.core.neighbour_table:  # it may have been forgotten while it was away
            self.core.remove_neighbour(identifier)

    def dial_member(self, node: str, address: tuple[str, int]) -> None:
        self.links.hang_up(node, removed=False)
        self.links.dial(node, Address(*address))

    def hang_up_member(self, node: str) -> None:
        self.links.hang_up(node, removed=False)

    def neighbour_left(self, neighbour: str) -> None:
        log.warning("node %s removed this node from its neighbours", neighbour)
        self._remove(neighbour)

    def link_changed(self, neighbour: str, up: bool) -> None:
        log.info("link with %s is %s", neighbour, "up" if up else "down")
        if not up and self.membership is not None:
            self.membership.check(neighbour)

    def _add_command(self, request: dict[str, object]) -> object:
        try:
            identifier = str(ID.read(request.get("id")))
            address = Address.parse(str(request.get("address")))
        except BadValue as error:
            raise ConfigError(f"a neighbour's id and address should be {error}") from error
        if identifier == self.core.node_id:
            raise ConfigError(f"{identifier} is this node itself")
        if identifier in self._configured:
            raise ConfigError(f"{identifier} is a neighbour already; remove it first to change its address")
        self._add(identifier, address)
        return {"neighbours": neighbour_rows(self)}

    def _remove_command(self, request: dict[str, object]) -> object:
        identifier = str(request.get("id"))
        if identifier not in self.core.neighbour_table:
            known = ", ".join(self.core.neighbour_table.ids()) or "none"
            raise ConfigError(f"{identifier} is not a neighbour; known are {known}")
        self._remove(identifier)
        return {"neighbours": neighbour_rows(self)}

    # NodeHost, RelayHost, LinkHost, InjectionHost

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)

    later = call_later

    def lane_ready(self, neighbour: str, lane: int) -> None:
        self.links.lane_ready(neighbour, lane)

    def injector_ready(self, lane: int) -> None:
        self.injection.injector_ready(lane)

    def send_control(self, neighbour: str, packet: Packet) -> None:
        self.links.send_control(neighbour, packet)

    def open_broker(self, pair: Pair) -> None:
        self.relays[pair].connect_arrived()

    def write_client(self, pair: Pair, data: bytes) -> None:
        relay = self.relays.get(pair)
        if relay is not None:
            relay.write_own(data)

    def write_broker(self, pair: Pair, data: bytes) -> None:
        relay = self.relays.get(pair)
        if relay is not None:
            relay.write_broker(data)

    def hang_up(self, pair: Pair, last_words: bytes) -> None:
        relay = self.relays.get(pair)
        if relay is not None:
            relay.hang_up(last_words)

    def forget_lanes(self, neighbour: str) -> None:
        for key in [key for key in self._notes if key[0] == neighbour]:
            del self._notes[key]
        self.storage.delete(f"lanes/{neighbour}")
        self._checkpoint()  # the daybook may name them still

    def remember_taken(self, neighbour: str, index: int, lane: Lane) -> None:
        note = self._notes.get((neighbour, index))
        if note is not None:
            self.storage.write_note(note, lane.snapshot())

    def warn(self, message: str) -> None:
        log.warning(message)
        self._remember_warning(message)

    def _remember_warning(self, message: str) -> None:
        if message not in self.warnings and len(self.warnings) < 100:
            self.warnings.append(message)

    # What should not happen

    def task_failed(self, task: str, error: BaseException) -> None:
        """A background task raised what it should not; it is begun anew."""
        self._internal_error(f"{task} failed", error)

    def _loop_failed(self, context: dict[str, Any]) -> None:
        """What nobody caught: in a timer, in a protocol, in a task that nobody waited for."""
        error = context.get("exception")
        if isinstance(error, OSError) and ("transport" in context or "protocol" in context):
            log.info("%s: %s", context.get("message"), error)  # a connection's end in an unusual way
        elif isinstance(error, OSError) and "socket" in context:
            self.warn(f"{context.get('message')}: {error}")  # no descriptor is left to accept with
        else:
            self._internal_error(str(context.get("message")), error)

    def _internal_error(self, what: str, error: BaseException | None) -> None:
        """Count it, and say it once for each kind."""
        self.internal_errors += 1
        kind = (what, type(error).__name__, place_of(error) if error is not None else "")
        if kind not in self._errors_said and len(self._errors_said) < MOST_KINDS:
            self._errors_said.add(kind)
            self._report(f"{what}: {error!r} in {kind[2]}; please report it", error)

    def _report(self, message: str, error: BaseException | None) -> None:
        log.error(message, exc_info=error)
        self._remember_warning(message)

    @property
    def limits(self) -> LimitsSection:
        return self.config.limits

    @property
    def connections_full(self) -> bool:
        return len(self.relays) >= self.limits.max_connections

    def dial_broker(self, relay: ClientConnection) -> None:
        task = asyncio.get_running_loop().create_task(self._dial_broker(relay))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial_broker(self, relay: ClientConnection) -> None:
        loop, broker = asyncio.get_running_loop(), self.config.node.broker
        try:
            async with asyncio.timeout(self.limits.broker_timeout):
                _, connection = await loop.create_connection(lambda: BrokerConnection(relay), *broker)
        except (OSError, TimeoutError) as error:
            log.info("broker %s: %s", broker, error)
            relay.broker_unreachable()
        except Exception as error:
            self.task_failed("a client's way to the broker", error)
            relay.end()
        else:
            if self.config.node.proxy_protocol:
                connection.write(relay.proxy_header())
            relay.broker_connected(connection)

    # Lanes

    def _make_lane(self, neighbour: str, index: int) -> Lane:
        acknowledged = self.config.links.qos > 0
        folder = f"lanes/{neighbour}/{index}"
        lane = Lane(self.keeper.outbox(folder, acknowledged), acknowledged=acknowledged)
        note = self.storage.note(f"{folder}/taken") if acknowledged else None
        if note is not None:
            self._notes[neighbour, index] = note
            stored = note.read()
            if stored:
                lane.restore(stored)
        return lane

    # What a crash must not lose

    def _keep_changes(self) -> None:
        """From here on everything that changes is written down as it does."""
        daybook, letters = self.core.daybook, self.dead_letters
        letters.added = lambda letter: daybook.note("letter", *plain(letter))
        letters.removed = lambda letter_id: daybook.note("letter gone", letter_id)
        daybook.grown = self._checkpoint_soon
        self._checkpoint(sync=True)  # this start's epoch, too

    def _checkpoint_soon(self) -> None:
        """Not at once: what was just written down is not in its outboxes yet."""
        if self._checkpointing is None:
            self._checkpointing = asyncio.get_running_loop().call_soon(self._checkpoint)

    def _checkpoint(self, sync: bool = False) -> None:
        self._checkpointing = None
        self.core.retained.commit()  # what a failing disk did not take before
        dump = functools.partial(state.dump, self.core, self.dead_letters)
        if not self.keeper.checkpoint(dump, outboxes(self), sync) and not self._stopping.is_set():
            self._checkpointing = self.call_later(CHECKPOINT_RETRY_SECONDS, self._checkpoint)


T = TypeVar("T")


async def _bind(name: str, address: Address, serving: Awaitable[T]) -> T:
    try:
        return await serving
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable(f"{name} {address} cannot be used ({reason}); is another program there?") from error


def _reached(server: asyncio.Server | None) -> tuple[str, int]:
    """Where a client on this machine reaches a server that may listen on all addresses, or on any port."""
    assert server is not None
    host, port = server.sockets[0].getsockname()[:2]
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port


def _first_line(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes().splitlines()[0] if path.stat().st_size else b""
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _key(path: Path | None) -> bytes | None:
    key = _first_line(path)
    if key is not None and len(key) < 16:
        raise ConfigError(f"the key in {path} is shorter than 16 bytes; make a longer one")
    return key


def _raise_file_limit(connections: int) -> None:
    """Each client takes two files; ask for what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < 2 * connections + 100:
        log.warning(
            "max_connections = %d needs more files than the %d this process may open", connections, hard
        )
