"""A node in virtual time: the core, its links, relays and injectors, driven as the runtime drives them.

Owns what `runtime.node` owns: starting, stopping, lanes and what of them is on disk. A kill loses all but
the disk. Invariant: no decision about a message is made here; whatever could lose or double one is in the
pure layers, which run unchanged. Must not know: faults, invariants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from zlib import crc32

from brokerweave.care.moves import MoveResult
from brokerweave.errors import BrokerweaveError
from brokerweave.links.abilities import BrokerAbilities
from brokerweave.links.dead_letters import DeadLetters, plain
from brokerweave.links.handshake import NodeIdentity
from brokerweave.links.injector import Injector
from brokerweave.links.lane import Lane
from brokerweave.links.outbox import Outbox
from brokerweave.membership.members import Member, MemberState
from brokerweave.mqtt.packets import Packet
from brokerweave.node import state
from brokerweave.node.checkpointer import Bounds, Checkpointer
from brokerweave.node.core import NodeCore, Settings
from brokerweave.node.members import MemberWatcher
from brokerweave.plugin import OptionValue, Strategy
from brokerweave.session.pair import Pair
from brokerweave.sim.disk import HELD, SimDisk
from brokerweave.sim.injecting import SimInjection
from brokerweave.sim.linking import SimLinks
from brokerweave.sim.member import SimMember
from brokerweave.sim.pipes import Handler, PipeEnd, StreamNetwork
from brokerweave.sim.promises import Broken
from brokerweave.sim.reading import SimRetainedReader
from brokerweave.sim.relaying import ClearedSession, Relay
from brokerweave.sim.watching import SimWatcher, WatchedCore, WatchedDeadLetters, WatchedOutbox
from brokerweave.sim.world import ScheduledEvent, VirtualHost, World

KEY = b"the shared key"


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """`session.pair.Limits`."""

    max_packet: int = 1 << 20
    client_queue: int = 64 << 10


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """As in the configuration, but for a world where a minute is long."""

    strategy: type[Strategy]
    lanes: int = 2
    ping_interval: float = 1.0
    reconnect_min: float = 0.2
    reconnect_max: float = 2.0
    outbox_memory: int = 64 << 10
    outbox_disk: int = 1 << 20
    wal_bytes: int = 8 << 10
    window: int = 10_000
    forget_after: float = 3600.0
    session_expiry: float = 3600.0
    injector_version: int = 4
    passes_user_properties: bool = False
    cluster_timeout: float | None = None
    barrier_timeout: float | None = None
    cycles: bool = False
    members: tuple[str, ...] = ()
    """All nodes, where the strategy links members."""
    idle_close: float = 60.0
    max_links: int = 256
    options: Mapping[str, OptionValue] = field(default_factory=dict)


CHECKPOINT_RETRY = 1.0
"""As in the runtime."""
ROUND_TRIPS_SECONDS = 5.0
"""How long the round trips to members stay the same."""


class SimNode:
    """Implements `NodeHost`, `CarrierHost` and `MemberHost`."""

    def __init__(
        self, world: World, network: StreamNetwork, watcher: SimWatcher, name: str, options: NodeOptions
    ) -> None:
        self.world = world
        self.network = network
        self.watcher = watcher
        self.read_broker: Callable[[], dict[str, bytes] | None] = lambda: None
        """Topic to payload of what the broker retains; None while it is down."""
        self.name = name
        self.options = options
        self.host = VirtualHost(world, name)
        self.disk = SimDisk(self._killed_in_write)
        self.mid_write = False
        """Whether the last kill came in the middle of something."""
        self.clock_offset = 0.0
        """Of what the machine's clock says to what its steady one does."""
        self.steady_offset = 0.0
        self.clock_rate = 1.0
        self.neighbours: list[str] = []
        """Those it is configured to dial."""
        self.core: NodeCore
        self.links: SimLinks
        self.injection: SimInjection
        self.dead_letters: DeadLetters
        self.relays: dict[Pair, Relay] = {}
        self.moves: Counter[str] = Counter()
        """How planned moves to this node ended."""
        self.random: Random = world.random(f"node/{name}")
        self.outboxes: list[WatchedOutbox] = []
        self.checkpointer: Checkpointer
        self.reader: SimRetainedReader
        self._checkpointing: ScheduledEvent | None = None
        self._removed: set[str] = set()
        """Neighbours whose removal this node may forget: it was down, or ended meanwhile, or its disk failed.
        Then a restart brings them back, and their operator removes them again (guarantees: failing disk)."""
        self._epoch = 0
        self.member: SimMember | None = None
        """Set before the first start if it is a member of a cluster."""
        network.listen(name, self.host, self._accept_client)
        network.listen(f"{name}/link", self.host, lambda end: self.links.accept(end))

    @property
    def up(self) -> bool:
        return self.host.up

    @property
    def ready(self) -> bool:
        """What its health port says."""
        return self.up and self.core.guarded.ready()

    def check(self) -> None:
        """Raises `Broken` if an invariant of one of the node's parts does not hold."""
        if self.up:
            try:
                self.core.check()
            except AssertionError as error:
                raise Broken(f"{self.name}: {error}") from error

    # Up and down

    def start(self) -> None:
        self.host.start()
        self.mid_write = False
        self.relays = {}
        self.outboxes = []
        self._checkpointing = None
        self.watcher.node_starts(self)
        options, self.disk.failed = self.options, self.disk.failing
        self.disk.ever_failed = self.disk.failing
        settings = Bounds(options.window, True, options.outbox_memory, options.outbox_disk, options.wal_bytes)
        self.checkpointer = Checkpointer(
            self.disk, settings, lambda: self.random.getrandbits(62) + 1, self.warn, WatchedOutbox
        )
        self.disk.retained.crash()
        stored = self.checkpointer.recover()
        self._epoch = max(int(self.now() * 1000), self._epoch + 1, int(stored.get("epoch", 0)) + 1)
        self.dead_letters = WatchedDeadLetters(self.watcher, self.name)
        abilities = BrokerAbilities(
            version=options.injector_version, user_properties=options.passes_user_properties
        )
        injectors = [
            Injector(
                f"brokerweave-{self.name}-{lane}",
                abilities,
                self._outbox(f"injectors/{lane}"),
                self.dead_letters,
                ack_timeout=5.0,
                progress=self.disk.progress(f"injectors/{lane}"),
            )
            for lane in range(options.lanes)
        ]
        if options.passes_user_properties:  # as a probe found out
            for injector in injectors:
                injector.learn(abilities)
        core_settings = Settings(
            node_id=self.name,
            epoch=self._epoch,
            lanes=options.lanes,
            ordered=True,
            window=options.window,
            forget_after=options.forget_after,
            session_expiry=options.session_expiry,
            cluster_timeout=options.cluster_timeout,
            barrier_timeout=options.barrier_timeout,
            cycles=options.cycles,
            idle_close=options.idle_close,
            max_links=options.max_links,
            options=options.options,
            move_key=KEY,
        )
        self.core = WatchedCore(
            core_settings,
            NodeLimits(),
            options.strategy,
            (),
            self,
            self._make_lane,
            injectors,
            self.disk.retained,
            self.checkpointer.wal,
            self.watcher,
        )
        self.core.care.keep_in(partial(self.disk.journal, HELD))
        self.core.plugins.report = lambda text, error: self.watcher.protocol_error(self, text)
        if stored:
            try:
                state.load(self.core, self.dead_letters, stored)
            except BrokerweaveError as error:
                self.warn(str(error))
        removed = set(self._removed)
        self._keep_changes()
        cycles = self.core.wiring.enabled
        identity = NodeIdentity(self.name, self._epoch, options.strategy.name, options.lanes, KEY, cycles)
        self.links = SimLinks(self, identity)
        self.injection = SimInjection(self)
        self.reader = SimRetainedReader(self)
        for neighbour in removed & set(self.core.neighbours()):
            self.core.remove_neighbour(neighbour)  # its operator comes to that now
        for neighbour in self.neighbours:
            self.core.add_neighbour(neighbour)
            self.links.dial(neighbour)
        if self.member is not None:
            self.member.start(MemberWatcher(self.core, self, reachable=True))
        elif options.members:
            members = MemberWatcher(self.core, self, reachable=True)
            for name in options.members:
                members.member_joined(Member(name, MemberState.ALIVE, 1, 1, (name, 1), (name, 1), b"", None))

    def kill(self) -> None:
        """As by kill -9: the disk stays, the rest is gone."""
        if self.host.up:
            self.disk.kill_at_write = 0
            self.world.note(self.name, "is killed")
            self.watcher.node_ends(self, graceful=False)
            self.host.die()

    def _killed_in_write(self) -> None:
        self.mid_write = True
        self.kill()

    def stop(self) -> None:
        """As by SIGTERM, without waiting for pending messages: clients leave, then the state is saved."""
        if not self.host.up:
            return
        for relay in list(self.relays.values()):
            relay.end()
        if self.member is not None:
            self.member.leave()
        self.links.stop()
        self.injection.stop()
        self._checkpoint()
        self.watcher.node_ends(self, graceful=not self.disk.failing)
        self.host.die()

    def lose_disk(self) -> None:
        """Only while the node is down."""
        self.watcher.disk_lost(self)
        self.disk = SimDisk(self._killed_in_write)

    # Neighbours

    def add(self, neighbour: str) -> None:
        if neighbour not in self.neighbours:
            self.neighbours.append(neighbour)
        self._removed.discard(neighbour)
        if self.up:
            self.core.add_neighbour(neighbour)
            self.links.dial(neighbour)

    def remove(self, neighbour: str) -> None:
        if neighbour in self.neighbours:
            self.neighbours.remove(neighbour)
        self._removed.add(neighbour)  # its operator repeats it should the node end before it is done
        if self.up and neighbour in self.core.neighbour_table:
            self.links.hang_up(neighbour, removed=True)
            self.core.remove_neighbour(neighbour)
        if self.up and not self.disk.failing:
            self._removed.discard(neighbour)

    # MemberHost

    def dial_member(self, node: str, address: tuple[str, int]) -> None:
        self.links.dial(node)

    def hang_up_member(self, node: str) -> None:
        self.links.hang_up(node, removed=False)

    def is_configured(self, node: str) -> bool:
        return node in self.neighbours

    def announce(self, data: bytes) -> None:
        if self.member is not None:
            self.member.announce(data)

    def searching(self) -> bool:
        return self.member is not None and self.member.searching()

    def round_trips(self) -> dict[str, float]:
        """Made up, and others every few seconds: what arrives must not depend on who is near."""
        era = int(self.world.now / ROUND_TRIPS_SECONDS)
        return {
            each: (1 + crc32(f"{self.name} {each} {era}".encode()) % 20) / 1000
            for each in sorted(self.core.cluster.live)
        }

    def neighbour_left(self, neighbour: str) -> None:
        if neighbour in self.core.neighbour_table:
            self.remove(neighbour)

    def link_changed(self, neighbour: str, up: bool) -> None:
        self.world.note(self.name, f"link with {neighbour} is {'up' if up else 'down'}")
        self.watcher.link_changed(self.name, neighbour, up)
        if not up:
            self.watcher.link_failed(self.name, neighbour)
            if self.member is not None:
                self.member.check(neighbour)

    # NodeHost, CarrierHost

    def now(self) -> float:
        return self.clock_offset + self.steady()

    def steady(self) -> float:
        return self.steady_offset + self.world.now * self.clock_rate

    def call_later(self, seconds: float, callback: Callable[[], None]) -> ScheduledEvent:
        return self.host.later(seconds / self.clock_rate, callback)

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

    def clear_session(self, pair: Pair, done: Callable[[], None] = lambda: None) -> None:
        self.network.connect(
            self.host, f"{self.name}/broker", lambda end: ClearedSession(self.core, pair, end, done), done
        )

    def move_ended(self, result: MoveResult) -> None:
        move, outcome = result.move, result.outcome.value
        self.moves[f"moves, {outcome}"] += 1
        self.world.note(
            self.name, f"{move.client} moves from {move.old}: {outcome}, {result.in_flight} in flight"
        )

    def forget_lanes(self, neighbour: str) -> None:
        self.disk.delete(f"lanes/{neighbour}")
        self._checkpoint()  # the write-ahead log may name them still

    def remember_taken(self, neighbour: str, index: int, lane: Lane) -> None:
        self.disk.write_note(f"lanes/{neighbour}/{index}/taken", lane.snapshot())

    def warn(self, message: str) -> None:
        self.world.note(self.name, f"warns: {message}")

    # Lanes and clients

    def _make_lane(self, neighbour: str, index: int) -> Lane:
        folder = f"lanes/{neighbour}/{index}"
        lane = Lane(self._outbox(folder))
        stored = self.disk.note(f"{folder}/taken")
        if stored:
            lane.restore(stored)
        return lane

    def _outbox(self, folder: str) -> Outbox:
        outbox = self.checkpointer.outbox(folder, durable=True)
        assert isinstance(outbox, WatchedOutbox)
        outbox.watch(self.watcher, self.name, folder)
        self.outboxes.append(outbox)
        return outbox

    # What a crash must not lose

    def _keep_changes(self) -> None:
        wal, letters = self.core.wal, self.dead_letters
        letters.added = lambda letter: wal.note("letter", *plain(letter))
        letters.removed = lambda letter_id: wal.note("letter gone", letter_id)
        wal.grown = self._checkpoint_soon
        self._checkpoint()

    def _checkpoint_soon(self) -> None:
        """Not at once: what was just written down is not in its outboxes yet."""
        if self._checkpointing is None:
            self._checkpointing = self.host.later(0.0, self._checkpoint)

    def _checkpoint(self) -> None:
        self._checkpointing = None
        self.core.retained.commit()
        lanes = [lane.outbox for n in self.core.neighbour_table.all() for lane in n.lanes]
        outboxes = lanes + [injector.outbox for injector in self.core.injectors]
        if self.checkpointer.checkpoint(lambda: state.dump(self.core, self.dead_letters), outboxes, True):
            self._removed.clear()
        else:
            self._checkpointing = self.host.later(CHECKPOINT_RETRY, self._checkpoint)

    def _accept_client(self, end: PipeEnd) -> Handler:
        return Relay(self, end)
