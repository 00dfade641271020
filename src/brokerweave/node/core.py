"""One node's decisions: what clients publish goes to lanes, what lanes bring goes to lanes and injectors.

Owns the pairs' view of the node (it is their host) and the duplicate window.
Invariants: every message taken from a lane is in all its next outboxes before the lane confirms it; each
(origin, epoch, sequence) is acted on once; counters know everything dropped. Must not know: sockets, clocks,
files. They come in through `NodeHost`, so the same core runs in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from brokerweave.care.client_care import ClientCare
from brokerweave.care.interface import Care
from brokerweave.care.moves import MoveEnd, MoveResult
from brokerweave.errors import Refused, RemoteProtocolError
from brokerweave.links.injector import Injector
from brokerweave.links.window import DuplicateWindow
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Disconnect, Packet, Publish
from brokerweave.mqtt.scanner import Routed
from brokerweave.mqtt.stamp import Stamps
from brokerweave.node import barrier
from brokerweave.node.admission import Admission
from brokerweave.node.arrivals import Arrivals
from brokerweave.node.barrier import Barrier
from brokerweave.node.cluster import ClusterView
from brokerweave.node.confirmations import Confirmations
from brokerweave.node.counters import Counters
from brokerweave.node.deferral import Deferral
from brokerweave.node.gates import MARK_TOPIC
from brokerweave.node.initialisation import InitialisationQueue
from brokerweave.node.interest import Interest
from brokerweave.node.lifecycle import Lifecycle
from brokerweave.node.links_on_demand import LinksOnDemand
from brokerweave.node.neighbours import LaneMaker, Neighbours
from brokerweave.node.outgoing import Outgoing
from brokerweave.node.passed import WhenPassed
from brokerweave.node.plugins import GuardedStrategy, Plugins
from brokerweave.node.publisher import Publisher
from brokerweave.node.relayed import Relayed
from brokerweave.node.retained import MemoryStore, RetainedSettings, RetainedStore
from brokerweave.node.retained_sync import RetainedSync
from brokerweave.node.router import RouteGroup, Router
from brokerweave.node.sessions import Sessions
from brokerweave.node.taps import Taps
from brokerweave.node.usage import UsageMeter
from brokerweave.node.waiting import Waiting
from brokerweave.node.waiting_controls import DROPPED, WaitingControls
from brokerweave.node.wills import Wills
from brokerweave.node.wiring import UNKNOWN, Wiring
from brokerweave.node.write_ahead_log import WriteAheadLog
from brokerweave.plugin import Cut, Linking, Listener, OptionValue, Strategy, Timer, TrafficUsage
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.host import SessionLimits
from brokerweave.session.move_ticket import NOT_AUTHORIZED, Tickets
from brokerweave.session.pair import Pair
from brokerweave.session.record import SessionRecord
from brokerweave.tables import fit

OWN_TOPICS = "$brokerweave/"
INITIALISATION_SECONDS = 15.0
"""How long publications wait for the strategy to take them, where acknowledgements wait for no other site."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What of the configuration decides something here; units as in the configuration."""

    node_id: str
    epoch: int
    """Grows with each start, so that (origin, epoch, sequence) never repeats."""
    lanes: int
    ordered: bool
    window: int
    forget_after: float
    session_expiry: float
    unknown_session: str = "warn"
    """`flood`: take everything for a client whose session the broker knows and this node does not."""
    cluster_timeout: float | None = None
    """Seconds an acknowledgement waits for other sites at most; None: it does not (`delivery = "local"`)."""
    barrier_timeout: float | None = None
    """Seconds a SUBACK waits for the other sites at most; None: it does not (`subscribe = "async"`)."""
    retained: RetainedSettings = field(default_factory=RetainedSettings)
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Numbers of the strategy's own section."""
    cycles: bool = False
    """Whether the wiring may have cycles; False spares the exchange of link states where it has none."""
    waiting: int = 16 << 20
    """Bytes of publications that wait until their route is known."""
    idle_close: float = 60.0
    """Seconds after which an idle link that was opened on demand closes."""
    max_links: int = 256
    """Members linked at once on demand."""
    relayed: int = 16 << 20
    """Bytes of publications that are kept until relays have passed them on."""
    stamp_key: bytes = b""
    """Of stamps (`mqtt.stamp`): the same at all nodes of a deployment. Empty: anybody can make one."""
    move_key: bytes = b""
    """Of tickets for planned moves (`session.move_ticket`). Empty: none is good."""
    drain_timeout: float = 2.0
    """Seconds a topic whose plans changed waits at most until what went by the old ones has arrived."""


class NodeHost(Protocol):
    """What surrounds a core: the runtime with real sockets, or a simulation."""

    @property
    def random(self) -> Random: ...

    def now(self) -> float: ...

    def steady(self) -> float: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...

    def lane_ready(self, neighbour: str, lane: int) -> None:
        """A lane has something to write: poll it once this turn is over."""

    def injector_ready(self, lane: int) -> None: ...

    def send_control(self, neighbour: str, packet: Packet) -> None:
        """Written once this turn is over."""

    def open_broker(self, pair: Pair) -> None: ...

    def write_client(self, pair: Pair, data: bytes) -> None: ...

    def write_broker(self, pair: Pair, data: bytes) -> None: ...

    def hang_up(self, pair: Pair, last_words: bytes) -> None:
        """End both halves of a pair; the broker is told `last_words` before."""

    def clear_session(self, pair: Pair) -> None:
        """A pair ended, and its 3.1.1 broker keeps the session: connect once more with a clean one."""

    def move_ended(self, result: MoveResult) -> None:
        """A client came here as planned, or did not."""

    def forget_lanes(self, neighbour: str) -> None:
        """A neighbour was removed: hang up, and delete what its lanes kept on disk."""

    def warn(self, message: str) -> None: ...


class NodeCore:
    """Implements `PairHost` for the pairs, `Context` for the strategy and `NeighbourEvents`."""

    def __init__(
        self,
        settings: Settings,
        limits: SessionLimits,
        strategy: type[Strategy],
        listeners: tuple[Listener, ...],
        host: NodeHost,
        make_lane: LaneMaker,
        injectors: list[Injector],
        retained_store: RetainedStore | None = None,
        wal: WriteAheadLog | None = None,
    ) -> None:
        self.settings = settings
        self.wal = wal or WriteAheadLog()
        self.limits = limits
        self.host = host
        self.counters = Counters()
        self.stamps = Stamps(settings.stamp_key)
        self.tickets = Tickets(settings.move_key, settings.node_id)
        self.window = DuplicateWindow(settings.window)
        self.injectors = injectors
        self.plugins = Plugins(listeners, self.counters, host.warn)
        on_demand = strategy.linking is Linking.ON_DEMAND
        tree = strategy.tree and not on_demand
        self.barrier = Barrier(self._send_mark, behind=tree)
        self.lifecycle = Lifecycle(self.barrier, self.is_up)
        self.neighbour_table = Neighbours(
            settings.lanes,
            make_lane,
            host.call_later,
            settings.forget_after,
            self.counters,
            self.plugins,
            self.lifecycle,
            self,
        )
        self.cluster = ClusterView(settings.node_id, host.call_later)
        self.waiting_controls = WaitingControls(self.counters)
        self.strategy = strategy(self)
        self.guarded = GuardedStrategy(self.strategy, self.plugins.failed)
        self.neighbour_table.attach(self.guarded)
        self.waiting = Waiting(settings.waiting)
        self.deferral = Deferral(self)
        self.relayed = Relayed(self, settings.relayed, settings.drain_timeout)
        self.router = Router(
            self.strategy,
            settings.lanes if settings.ordered else None,
            lambda error: self.plugins.failed(self.strategy, error),
            self.waiting,
            self.relayed,
        )
        self.interest: Interest = Interest(self.guarded, self.wal)
        self.kept: dict[str, dict[str, int]] = {}
        """For each neighbour, what the strategy wants to know of it after a restart."""
        self.controls: dict[str, Callable[[str, bytes], None]] = {}
        """What hears of control packets on the topics of the node's own parts: (neighbour, payload)."""
        self.demand = LinksOnDemand(self, settings.idle_close, settings.max_links) if on_demand else None
        self.wiring = Wiring(self, settings.cycles and tree)
        self.lane_up = self.wiring.lane_up
        self.lane_lost = self.wiring.lane_lost
        self.confirmations = Confirmations(settings.ordered)
        self.controls[barrier.TOPIC] = self.barrier.arrived
        self.usage_meter = UsageMeter(host.now) if strategy.measures else None
        self.outgoing = Outgoing(self)
        self.arrivals = Arrivals(self)
        self.retained = RetainedSync(
            self,
            settings.retained,
            retained_store or MemoryStore(),
            settings.epoch,
            strategy.retained_everywhere,
        )
        if self.wiring.enabled:
            self.retained.unsure_until = self.retained.index.clock.last
        self.when_passed = WhenPassed(host.call_later).wait
        self.local_routes = self.router.cache(None)
        self.admission = Admission(self.router, self.counters.add)
        patience = settings.cluster_timeout or INITIALISATION_SECONDS
        self.initialisation = InitialisationQueue(
            self, self.guarded.takes_publications, settings.waiting, patience
        )
        # Who never asks to wait pays nothing.
        self.initialisation.over = type(self.strategy).takes_publications is Strategy.takes_publications
        self.publisher = Publisher(self)
        self._pairs = 0
        self.connects = 0
        """CONNECTs that came: the last one's number."""
        self.sessions = Sessions(self)
        self.wills = Wills(host.call_later, self.publisher.will_due)
        self.taps: Taps | None = None
        book = self.strategy.sites()
        self.care: Care = Care() if book is None else ClientCare(self, book)

    # For the strategy (Context)

    @property
    def node_id(self) -> str:
        return self.settings.node_id

    @property
    def random(self) -> Random:
        return self.host.random

    def now(self) -> float:
        return self.host.now()

    def steady(self) -> float:
        return self.host.steady()

    def neighbours(self) -> tuple[str, ...]:
        return self.neighbour_table.active()

    def members(self) -> frozenset[str]:
        return self.cluster.live

    def searching(self) -> bool:
        return self.cluster.searching()

    def announce(self, data: bytes) -> None:
        self.cluster.announce(data)

    def send(self, neighbour: str, packet: Packet, wait: bool = False) -> None:
        waits = wait and (neighbour in self.waiting_controls or not self._talks(neighbour))
        if waits and not self.is_neighbour(neighbour):
            self.counters.add(DROPPED)
        elif waits or self.is_up(neighbour):
            if self.strategy.marks and self.in_reach(neighbour):
                self.barrier.told(neighbour)
            (self.waiting_controls.add if waits else self.host.send_control)(neighbour, packet)
            if self.demand is not None:
                self.demand.used(neighbour)
                self.demand.want(neighbour)

    def _talks(self, neighbour: str) -> bool:
        """Whether a control packet that must not be lost may go on a neighbour's link."""
        return self.wiring.talks(neighbour) and (self.demand is None or self.demand.talks(neighbour))

    def is_neighbour(self, node: str) -> bool:
        """Whether a node is a neighbour, or becomes one because something is for it."""
        if node in self.neighbour_table:
            return True
        return self.demand is not None and self.demand.becomes_neighbour(node)

    def _send_mark(self, neighbour: str, payload: bytes) -> None:
        """Behind the control packets that it is about, which may wait."""
        if self.demand is not None and not self._talks(neighbour):
            self.waiting_controls.add(neighbour, Publish(barrier.TOPIC, payload))
            self.demand.want(neighbour)
        else:
            self.send_own(neighbour, barrier.TOPIC, payload)

    def neighbour_talks(self, neighbour: str) -> None:
        """A link is up and the strategy is to hear of it: whatever waited for that follows."""
        if self.demand is not None:
            self.demand.link_up(neighbour)
        self.guarded.neighbour_up(neighbour)
        self.release_controls(neighbour)

    def release_controls(self, neighbour: str) -> None:
        if self._talks(neighbour):
            self.waiting_controls.release(neighbour, self.host.send_control)

    def control_arrived(self, neighbour: str, packet: Packet, lane: int = 0) -> None:
        """A control packet: the node's own parts have their topics, the rest is the strategy's."""
        if isinstance(packet, Publish) and packet.topic == MARK_TOPIC:
            self.wiring.mark_arrived(neighbour, lane, packet.payload)
        elif isinstance(packet, Publish) and packet.topic.startswith(OWN_TOPICS):
            handler = self.controls.get(packet.topic)
            if handler is None:
                raise RemoteProtocolError(
                    f"{neighbour} speaks of {packet.topic!r}, which this node does not know"
                )
            handler(neighbour, packet.payload)
        elif self.wiring.listens(neighbour, packet):
            if self.demand is not None:
                self.demand.used(neighbour)
            self.guarded.packet_arrived(neighbour, packet)

    def send_own(self, neighbour: str, topic: str, payload: bytes) -> None:
        """Send a control packet of one of the node's own parts, in order with the strategy's."""
        if self.is_up(neighbour):
            self.host.send_control(neighbour, Publish(topic, payload))

    def is_up(self, neighbour: str) -> bool:
        entry = self.neighbour_table.get(neighbour)
        return entry is not None and entry.up

    def in_reach(self, neighbour: str) -> bool:
        """Whether a neighbour's confirmation is waited for."""
        return self.is_up(neighbour) or (self.demand is not None and self.demand.in_reach(neighbour))

    def neighbour_stays(self, neighbour: str) -> bool:
        """Whether a neighbour without a link is not to be forgotten."""
        return self.demand is not None and self.demand.is_live(neighbour)

    def keep(self, neighbour: str, changes: Mapping[str, int | None]) -> None:
        kept = self.kept.get(neighbour)
        if kept is None:
            return
        for name, value in changes.items():
            if value is None:
                kept.pop(name, None)
            else:
                kept[name] = value
        fit(kept)
        self.wal.note("keep", neighbour, dict(changes))

    @property
    def options(self) -> Mapping[str, OptionValue]:
        return self.settings.options

    def cut(self, neighbour: str) -> Cut:
        self.publisher.settle()  # what was gathered has its routes from before
        lanes = self.neighbour_table[neighbour].lanes if neighbour in self.neighbour_table else ()
        sent = tuple(lane.outbox.last for lane in lanes)
        return Cut(self.settings.epoch, tuple(self.publisher.sequences), sent)

    def stamp(self, client: str) -> int:
        """A hybrid time that no other moment of this node has, for a client that comes: later than when it
        came to another site, whose clock may be ahead."""
        stamp = self.retained.index.clock.reserve(1, self.host.now())
        return max(stamp, self.care.since(client) + 1)

    def round_trips(self) -> Mapping[str, float]:
        return self.cluster.round_trips()

    def usage(self, topic: str) -> TrafficUsage:
        if self.usage_meter is None:
            return TrafficUsage()
        return self.usage_meter.of(topic)

    def send_retained(
        self, neighbour: str, topic_filter: str, done: Callable[[], None] | None = None
    ) -> None:
        if self.is_neighbour(neighbour):
            self.retained.sending.send(neighbour, topic_filter, done)

    def retained_topics(self) -> tuple[str, ...]:
        return tuple(self.retained.index)

    def when_injected(self, callback: Callable[[], None]) -> None:
        self.when_passed((injector.outbox for injector in self.injectors), callback)

    def routes_changed(self, topics: Iterable[str] | None = None) -> None:
        topics = None if topics is None else tuple(topics)
        self.router.changed(topics)
        self.deferral.routes_changed(topics)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self.host.call_later(seconds, callback)

    # For the pairs (PairHost)

    def new_pair(self, listeners: tuple[Listener, ...] | None = None) -> Pair:
        """`listeners`: those that are shown its packets; by default all."""
        self._pairs += 1
        return Pair(
            self._pairs,
            self,
            self.local_routes,
            self.limits,
            self.settings.session_expiry,
            self.plugins.listeners if listeners is None else listeners,
            cluster=self.settings.cluster_timeout is not None,
            records=self.taps is not None,
            watched=self.care.watches_deliveries,
            room=self._broker_room,
            asks_first=type(self.strategy).subscribing is not Strategy.subscribing,
            asks_to_publish=not self.initialisation.over,
        )

    @property
    def _broker_room(self) -> int | None:
        """QoS 2 publications of one client that the broker takes at once, where it said so."""
        for abilities in (injector.abilities for injector in self.injectors):
            if abilities.version == 5 and abilities.max_qos == 2:
                return abilities.receive_maximum
        return None

    def connect_arrived(self, pair: Pair) -> None:
        if any(injector.client_id == pair.client.client_id for injector in self.injectors):
            # The broker would give it the injector's session, and nothing would arrive here any more.
            raise Refused("this client id is the node's own", 0x85)
        if pair.move is not None and pair.move.client != pair.client.client_id:
            raise Refused("a planned move is refused: its ticket is another client's", NOT_AUTHORIZED)
        self.connects += 1
        pair.connect_number = self.connects
        self.admission.joined(pair)
        self.host.open_broker(pair)

    def connect_unread(self, pair: Pair, connect: bytes) -> None:
        if any(injector.client_id.encode() in connect for injector in self.injectors):
            raise Refused("this client id may be the node's own", 0x85)
        self.host.open_broker(pair)

    def write_client(self, pair: Pair, data: bytes) -> None:
        self.host.write_client(pair, data)

    def write_broker(self, pair: Pair, data: bytes) -> None:
        self.host.write_broker(pair, data)

    def hang_up(self, pair: Pair, last_words: bytes) -> None:
        self.host.hang_up(pair, last_words)

    def clear_session(self, pair: Pair) -> None:
        self.host.clear_session(pair)

    def may_have_stale_session(self, pair: Pair) -> bool:
        """Whether a client that comes as planned may have left a session at the broker here before, which it
        is not in any more: MQTT 5 clients say in CONNECT that it ends (the gateway does)."""
        return pair.move is not None and pair.version < 5 and pair.expiry > 0 and self.is_gone(pair)

    def is_gone(self, pair: Pair) -> bool:
        """Whether a pair's client has no session here any more."""
        return pair.client.client_id not in self.sessions.records

    def move_ended(self, result: MoveResult) -> None:
        self.counters.add(f"moves_{result.outcome.value}")
        self.host.move_ended(result)

    def received(self, pair: Pair, names: list[bytes], more: bool) -> None:
        self.care.received(pair, names, more)

    def publishing(self, topic: str) -> None:
        self.care.publishing(topic)

    def keeps(self, topic: bytes) -> bool:
        return self.care.keeps(topic)

    def swallows(self, pair: Pair, name: bytes, must_see: bool) -> bool:
        return self.care.swallows(pair, name, must_see)

    def entering(self, pair: Pair, publish: Publish) -> None:
        self.care.entering(pair, publish)

    def publication_name(self, pair: Pair, publish: Publish) -> bytes:
        return self.care.publication_name(pair, publish) if self.passes_user_properties else b""

    @property
    def passes_user_properties(self) -> bool:
        """Whether the broker delivers stamps, as far as its injectors know: only then clients' publications
        get any."""
        return any(injector.limits.user_properties for injector in self.injectors)

    def superseded(self, pair: Pair) -> bool:
        return self.sessions.superseded(pair)

    def resent(self, pair: Pair, publish: Publish) -> bool:
        return self.care.resent(pair, publish)

    def subscribing(self, pair: Pair) -> None:
        self.care.subscribing(pair)

    def count(self, counter: str, amount: int = 1) -> None:
        self.counters.add(counter, amount)

    def listener_failed(self, listener: Listener, error: Exception) -> None:
        self.plugins.failed(listener, error)

    def accepted(self, pair: Pair, session_present: bool) -> SessionRecord:
        self.admission.joined(pair)  # the broker may have given it its client id
        self.wills.returned(pair.client.client_id, session_present)
        record = self.sessions.accepted(pair, session_present)
        if record.owner is pair:
            self.care.accepted(pair, session_present)
        if pair.move is not None and not self.care.watches_deliveries:  # no site gives anything
            move, pair.move = pair.move, None
            self.move_ended(MoveResult(move, MoveEnd.NOTHING))
        return record

    def granted(self, pair: Pair, filters: list[tuple[str, int]], hold_point: HoldPoint) -> bool:
        record = self.sessions.of(pair)
        if record is None:
            return True
        filters = self.admission.readable(pair, filters)
        self.interest.add(record, filters)
        self.sessions.calmed(record)
        if self.settings.barrier_timeout is None or not filters:
            return True
        if self.care.expects(pair):
            return self.care.begin(pair, filters, hold_point, self.settings.barrier_timeout)
        return self.await_others(
            partial(self._known, pair.client.client_id, dict(filters)),
            lambda: pair.end_hold(hold_point),
            self.settings.barrier_timeout,
            "barrier_timeouts",
            self.barrier.forget,
        )

    def _known(self, client: str, filters: Mapping[str, int], heard: Callable[[], None]) -> bool:
        """Ask the strategy, then whether neighbours have heard; also what an earlier filter is still waiting
        for counts: it may be the one that covers this."""

        def known() -> bool:
            return not self.strategy.marks or self.barrier.when_heard(heard)

        def go_on() -> None:
            if known():
                heard()

        return self.guarded.granted(client, filters, go_on) and known()

    def may_subscribe(self, pair: Pair, filters: Mapping[str, int]) -> bool:
        if not self.care.may_subscribe(pair):
            return False
        readable = dict(self.admission.readable(pair, list(filters.items())))
        if self.settings.barrier_timeout is None or not readable:
            return True
        return self.await_others(
            partial(self.guarded.subscribing, pair.client.client_id, readable),
            pair.subscribe_now,
            self.settings.barrier_timeout,
            "subscribe_timeouts",
        )

    def may_publish(self, pair: Pair) -> bool:
        return self.initialisation.admits(pair)

    def holds(self, pair: Pair, size: int) -> None:
        self.initialisation.grows(pair, size)

    def await_others(
        self,
        register: Callable[[Callable[[], None]], bool],
        go_on: Callable[[], None],
        timeout: float,
        overdue: str,
        forget: Callable[[Callable[[], None]], None] = lambda callback: None,
    ) -> bool:
        """Go on when the other sites are heard of, or when time is up. True: there is no need to wait."""
        timer: Timer | None = None
        over = False

        def heard() -> None:
            nonlocal over
            if not over:
                over = True
                if timer is not None:
                    timer.cancel()
                go_on()

        def time_is_up() -> None:
            self.counters.add(overdue)
            forget(heard)
            heard()

        if register(heard) or over:
            return True
        timer = self.host.call_later(timeout, time_is_up)
        return False

    def withdrawn(self, pair: Pair, filters: list[str]) -> None:
        record = self.sessions.of(pair)
        if record is not None:
            self.interest.discard(record, filters)

    def released(self, pair: Pair, packet_id: int) -> None:
        self.wal.note("release", pair.client.client_id, packet_id)

    def use_taps(self, taps: Taps) -> None:
        """Record from now on; before the first client comes."""
        self.taps = taps
        self.router.share = taps.share
        self.router.changed()

    def tapped(self, group: object) -> bool:
        assert isinstance(group, RouteGroup)
        return self.taps is not None and group.share > 0

    def record_publications(self, pair: Pair, routed: Routed) -> None:
        group, taps = routed.group, self.taps
        assert isinstance(group, RouteGroup)
        if group.share and taps is not None:
            client, resent = pair.client, routed.resent or ()
            record = taps.recorder.record if group.share >= 1 else partial(taps.sample, group.share)
            record(client.client_id, client.mqtt_version, routed.count, routed.blob, resent)

    def write_recorded(self) -> None:
        if self.taps is not None:
            self.taps.recorder.write()

    def latest_version(self) -> int:
        return self.retained.index.clock.last

    def uncertain(self, topic: str, since: int) -> None:
        entry = self.retained.index.get(topic)
        if since < (entry.stamp if entry is not None else 0):
            self.retained.check.doubt((topic,))

    def ended(self, pair: Pair, unexpected: bool) -> None:
        if unexpected and self.care.moves_away(pair):
            unexpected = False
            self.host.write_broker(pair, codec.encode(Disconnect(), pair.version))
        if unexpected:
            self.wills.due(pair, self.sessions.heir(pair))
        self.care.ended(pair, unexpected)
        self.sessions.ended(pair)

    def closed(self, pair: Pair) -> None:
        self.care.closed(pair)
        self.admission.left(pair)
        self.initialisation.left(pair)

    def redelivering(self, client: str, publishes: list[Publish]) -> None:
        """A client is about to get from this node what it missed."""
        self.counters.add("redelivered", len(publishes))

    # Links

    def add_neighbour(self, identifier: str) -> None:
        if identifier not in self.neighbour_table:
            self.kept[identifier] = {}
            self.wal.note("neighbour", identifier)
            self.neighbour_table.add(identifier)
            self.routes_changed()

    def recall(self, identifier: str, kept: dict[str, int]) -> None:
        """A neighbour from before a restart, with its pending messages and its filters."""
        self.add_neighbour(identifier)
        wants = {name: value for name, value in kept.items() if name != UNKNOWN}
        self.kept[identifier] |= wants  # whether the strategy says it again or not
        self.guarded.neighbour_recalled(identifier, wants)
        self.wiring.recalled(identifier, UNKNOWN in kept)

    def remove_neighbour(self, identifier: str) -> None:
        self.lifecycle.removing(identifier, sum(self.neighbour_table[identifier].connected))
        self.wiring.leaving(identifier)
        self.neighbour_table.remove(identifier)

    def has_pending(self, identifier: str) -> bool:
        """Whether anything waits for a neighbour, or for its answer."""
        neighbour = self.neighbour_table.get(identifier)
        return (
            identifier in self.waiting_controls
            or (neighbour is not None and any(lane.outbox.backlog_runs for lane in neighbour.lanes))
            or self.confirmations.awaits(identifier)
            or self.relayed.awaits(identifier)
            or self.barrier.awaits(identifier)
            or identifier in self.retained.sending
        )

    def link_up(self, identifier: str) -> None:
        self.wiring.link_up(identifier)
        self.relayed.linked(identifier)
        if not self.wiring.enabled:  # else when it joins the tree
            self.retained.linked(identifier)

    def link_down(self, identifier: str) -> None:
        self.wiring.link_down(identifier)
        self._neighbour_down(identifier)

    def _neighbour_down(self, identifier: str) -> None:
        """The link is down. What is pending as an idle link closes follows on the next one."""
        if self.demand is None or self.demand.talks(identifier) or not self.has_pending(identifier):
            self.wait_no_longer(identifier)
        self.retained.unlinked(identifier)
        if self.demand is not None:
            self.demand.link_down(identifier)

    def wait_no_longer(self, identifier: str) -> None:
        """Nobody waits for a neighbour that is not there; what is pending for it is in its outboxes."""
        self.barrier.gone(identifier)
        # If a relay that lives dies, others confirm in its place; if not, it is asked.
        self.confirmations.gone(identifier, self.relayed if identifier in self.cluster.live else ())

    def neighbour_forgotten(self, identifier: str) -> None:
        self.relayed.gone(identifier)
        self.wiring.forget(identifier)
        self.waiting_controls.drop(identifier)
        if self.demand is not None:
            self.demand.forgotten(identifier)
        self._neighbour_down(identifier)
        self.kept.pop(identifier, None)
        self.wal.note("neighbour gone", identifier)
        self.router.forget(identifier)
        self.routes_changed()
        self.retained.forgotten(identifier)
        self.host.forget_lanes(identifier)

    def check(self) -> None:
        """Raises AssertionError if an invariant of a part is broken: for the simulator and tests."""
        outboxes = [lane.outbox for entry in self.neighbour_table.all() for lane in entry.lanes]
        outboxes += [injector.outbox for injector in self.injectors]
        for outbox in outboxes:
            outbox.check()
        self.window.check()
        self.interest.check()
        self.retained.index.check()
        self.wiring.check()
        self.waiting.check()
        self.initialisation.check()
        self.relayed.check()
        self.care.check()

    # For the retained index

    def lane_of(self, topic: str) -> int:
        return max(self.router.lane(topic), 0)

    def injectors_idle(self) -> bool:
        return all(injector.idle for injector in self.injectors)
