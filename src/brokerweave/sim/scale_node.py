"""A site in a run of thousands: the real core, pairs, injector and link connections, and little around them.

Owns what surrounds one core: its turn, its clients' pairs, its end of each link. The broker is minimal: it
grants every filter and acknowledges at once, so its answers are written here. Invariants: bytes of a link
arrive in order after its delay, or the link is cut and both sides know; nothing is decided here. Must not
know: the scenario. There are no pings, no disk and one lane: their cost does not grow with the number of
nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from typing import ClassVar

from brokerweave.care.moves import MoveResult
from brokerweave.links.abilities import BrokerAbilities
from brokerweave.links.connection import BatchArrived, ControlArrived, Established, LinkConnection
from brokerweave.links.connection import Event as LinkEvent
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.links.handshake import Acceptor, Dialer, NodeIdentity
from brokerweave.links.injector import Injector
from brokerweave.links.lane import Lane, Resume
from brokerweave.links.outbox import Outbox
from brokerweave.links.wire import LINK_VERSION
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
)
from brokerweave.mqtt.publish import publish_head
from brokerweave.mqtt.scanner import split
from brokerweave.node.carriers import Carriers
from brokerweave.node.core import OWN_TOPICS, NodeCore, Settings
from brokerweave.plugin import OptionValue, Strategy
from brokerweave.session.pair import Pair
from brokerweave.sim.node import NodeLimits
from brokerweave.sim.world import ScheduledEvent, World

_LIMITS = NodeLimits()
_ABILITIES = BrokerAbilities(version=4)
_CONNACK = codec.encode(ConnAck(), 4)
_UNSUBACK = codec.encode(UnsubAck(1), 4)
_GOODBYE = codec.encode(Disconnect(), 4)
_FOREVER = 1e9
CARE = {"copies": 2, "window": 60.0, "client_bytes": 1 << 20, "max_bytes": 64 << 20}
"""Options of a strategy whose nodes keep messages for clients that lose their site."""
KNOWN = 10_000
"""Packets that are written and read once: several for each node of a mesh of a thousand."""

_encode = lru_cache(KNOWN)(codec.encode)


@dataclass(slots=True)
class ScaleTraffic:
    """What all links of a run carried so far, and what reached brokers and clients."""

    interest_packets: int = 0
    other_packets: int = 0
    """Other control packets: the subscribe barrier's marks and their answers; in a mesh, that
    a site has heard what another wants, and what homes and holders tell each other of clients."""
    crossings: int = 0
    """Publications times the links that each of them crossed."""
    link_bytes: int = 0
    interest_at: float = 0.0
    """When a node last heard what a neighbour wants."""
    injected: Callable[[int, bytes], None] = lambda site, payload: None
    """(site, payload): a broker was given a publication from elsewhere."""
    suback: Callable[[Pair], None] = lambda pair: None


class ScaleNode:
    """Implements `NodeHost` and `CarrierHost`."""

    def __init__(
        self,
        world: World,
        traffic: ScaleTraffic,
        random: Random,
        number: int,
        strategy: type[Strategy],
        barrier_timeout: float | None,
        *,
        name: str = "",
        options: Mapping[str, OptionValue] | None = None,
        max_links: int = 256,
    ) -> None:
        self.world = world
        self.traffic = traffic
        self.random = random
        self.number = number
        self.name = name or f"n{number}"
        cares = strategy.traits.keeps_for_absent
        settings = Settings(
            node_id=self.name,
            epoch=1,
            lanes=1,
            ordered=True,
            window=100_000,
            forget_after=_FOREVER,
            session_expiry=_FOREVER,
            barrier_timeout=barrier_timeout,
            cluster_timeout=2.0 if cares else None,
            options=(CARE if cares else {}) | dict(options or {}),
            max_links=max_links,
        )
        self._injector = Injector(f"brokerweave-{self.name}", _ABILITIES, self._outbox(), DeadLetters())
        self.core = NodeCore(
            settings,
            _LIMITS,
            strategy,
            (),
            self,
            lambda neighbour, lane: Lane(self._outbox()),
            [self._injector],
        )
        self.carriers = Carriers(self.core, self)
        self.identity = NodeIdentity(self.name, 1, strategy.name, 1)
        self._ready: dict[str, None] = {}
        self._injector.connected(world.now)
        self._injector.receive(_CONNACK, world.now)

    def _outbox(self) -> Outbox:
        return Outbox(self.random.getrandbits(62) + 1)

    def members_are(self, names: Iterable[str]) -> None:
        """What membership would say."""
        self.core.cluster.live = frozenset((self.name, *names))
        self.core.guarded.members_changed(self.core.cluster.live)

    # NodeHost, CarrierHost

    def now(self) -> float:
        return self.world.now

    steady = now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> ScheduledEvent:
        if seconds >= _FOREVER:
            return ScheduledEvent(callback)  # which is not to come: a mesh would have a million of them
        return self.world.later(seconds, callback)

    def lane_ready(self, neighbour: str, lane: int) -> None:
        if not self._ready:
            self.world.later(0.0, self._write)
        self._ready[neighbour] = None

    def send_control(self, neighbour: str, packet: Packet) -> None:
        carrier = self.carriers.get(neighbour, 0)
        if carrier is not None and not carrier.connection.closed:
            carrier.connection.send(_encode(packet, LINK_VERSION))
            if self.tells_interest(packet):
                self.traffic.interest_packets += 1
            else:
                self.traffic.other_packets += 1
            self.lane_ready(neighbour, 0)

    def tells_interest(self, packet: Packet) -> bool:
        """Whether a control packet is the strategy's, and says what somebody wants."""
        own = isinstance(packet, Publish) and packet.topic.startswith(OWN_TOPICS)
        return not own and self.core.strategy.tells_interest(packet)

    def _write(self) -> None:
        """Once a turn, as the runtime does it."""
        ready, self._ready = self._ready, {}
        self.core.publisher.settle()
        for neighbour in ready:
            self.carriers.write(neighbour, 0)

    def injector_ready(self, lane: int) -> None:
        while data := self._injector.poll(self.world.now):
            for frame in split(data):
                self.traffic.injected(self.number, frame[publish_head(frame, 4).payload_start :])

    def open_broker(self, pair: Pair) -> None: ...

    def write_client(self, pair: Pair, data: bytes) -> None:
        """Only SUBACKs stand and are written later."""
        self.traffic.suback(pair)

    def write_broker(self, pair: Pair, data: bytes) -> None:
        """What waited for the strategy and goes to the broker now, which answers."""
        for packet in (codec.decode(frame, 4) for frame in split(data)):
            if isinstance(packet, Subscribe) and pair.from_broker(_granted(len(packet.subscriptions))):
                self.traffic.suback(pair)
            elif isinstance(packet, Unsubscribe):
                pair.from_broker(_UNSUBACK)

    def hang_up(self, pair: Pair, last_words: bytes) -> None: ...

    def clear_session(self, pair: Pair) -> None: ...

    def move_ended(self, result: MoveResult) -> None: ...

    def forget_lanes(self, neighbour: str) -> None: ...

    def remember_taken(self, neighbour: str, index: int, lane: Lane) -> None: ...

    def neighbour_left(self, neighbour: str) -> None: ...

    def link_changed(self, neighbour: str, up: bool) -> None: ...

    def warn(self, message: str) -> None:
        self.world.note(self.name, message)


class _CachingConnection(LinkConnection):
    """Decodes once what many are told: whole control packets mean the same wherever they arrive."""

    __slots__ = ()

    known: ClassVar[dict[bytes, list[LinkEvent]]] = {}

    def receive(self, data: bytes, now: float) -> list[LinkEvent]:
        events = None if self.closed else self.known.get(data)
        if events is None:
            events = super().receive(data, now)
            if events and all(isinstance(event, ControlArrived) for event in events):
                if len(self.known) >= KNOWN:
                    self.known.clear()
                self.known[data] = events
        return events


class LinkEnd:
    """One node's end of a link; implements `Carrier`."""

    __slots__ = ("_delay", "_far", "connection", "dialed", "node", "peer")

    def __init__(self, node: ScaleNode, connection: LinkConnection, dialed: bool, delay: float) -> None:
        self.connection = connection
        self.dialed = dialed
        self.peer: tuple[str, int] | None = None
        self.node = node
        self._delay = delay
        self._far: LinkEnd | None = None

    @property
    def writable(self) -> bool:
        return True

    def attach(self, far: LinkEnd) -> None:
        self._far = far

    def received(self, data: bytes) -> None:
        if self._far is None:
            return  # the link was cut while this was on its way
        node = self.node
        for event in self.connection.receive(data, node.world.now):
            self.arrived(event)
            node.carriers.handle(self, event)
        self.flush()

    def arrived(self, event: LinkEvent) -> None:
        """Count what came."""
        node = self.node
        if isinstance(event, BatchArrived):
            node.traffic.crossings += sum(run.count for run in event.runs)
        elif isinstance(event, ControlArrived) and node.tells_interest(event.packet):
            node.traffic.interest_at = node.world.now

    def flush(self) -> None:
        data = self.connection.data_to_send()
        if data and self._far is not None:
            self.node.traffic.link_bytes += len(data)
            self.node.world.later(self._delay, partial(self._far.received, data))

    def close(self) -> None:
        self.flush()

    def cut(self) -> None:
        self._far = None
        self.node.carriers.lost(self)


class ScaleLink:
    __slots__ = ("_delay", "_ends", "nodes")

    def __init__(self, dialer: ScaleNode, dialed: ScaleNode, delay: float) -> None:
        self.nodes = dialer, dialed
        self._delay = delay
        self._ends: tuple[LinkEnd, ...] = ()

    def connect(self) -> None:
        dialer, dialed = self.nodes
        dialer.core.add_neighbour(dialed.name)
        resume = dialer.core.neighbour_table[dialed.name].lanes[0].resume()
        call = Dialer(dialer.identity, 0, resume, dialed.name, dialer.random.randbytes)
        answer = Acceptor(dialed.identity, dialed.carriers.admit, dialed.random.randbytes)
        now = dialer.world.now
        near = LinkEnd(dialer, LinkConnection(call, now), True, self._delay)
        far = LinkEnd(dialed, LinkConnection(answer, now), False, self._delay)
        near.attach(far)
        far.attach(near)
        near.peer = (dialed.name, 0)
        self._ends = near, far
        near.flush()

    def establish(self) -> None:
        """As `connect`, and both sides have shaken hands already: where half a million links come up, that
        would take longer than all the rest."""
        now = self.nodes[0].world.now
        ends = []
        for node, other in (self.nodes, self.nodes[::-1]):
            node.core.add_neighbour(other.name)
            resume = node.core.neighbour_table[other.name].lanes[0].resume()
            connection = _CachingConnection(_Shaken(resume), now)  # type: ignore[arg-type]
            connection.established = True
            ends.append(LinkEnd(node, connection, node is self.nodes[0], self._delay))
        near, far = ends
        near.attach(far)
        far.attach(near)
        self._ends = near, far
        for end, there in ((near, far), (far, near)):
            peer, said = there.node, there.connection.said
            assert said is not None
            end.node.carriers.handle(end, Established(peer.name, 0, 1, peer.identity.epoch, said))

    def cut(self) -> None:
        for end in self._ends:
            end.cut()


def _granted(filters: int) -> bytes:
    return codec.encode(SubAck(1, (0,) * filters), 4)


class _Shaken:
    """A handshake that is over."""

    __slots__ = ("said",)

    def __init__(self, said: Resume) -> None:
        self.said = said

    def start(self) -> None:
        return None


class ScaleClient:
    """A client with a clean session, through the real pair."""

    __slots__ = ("filters", "name", "node", "pair")

    def __init__(self, node: ScaleNode, name: str) -> None:
        self.node = node
        self.name = name
        self.filters: set[str] = set()
        self.pair: Pair

    def connect(self) -> None:
        self.pair = self.node.core.new_pair()
        self.pair.from_client(codec.encode(Connect(self.name), 4))
        self.pair.from_broker(_CONNACK)

    def subscribe(self, *filters: str) -> bool:
        """True: SUBACK went to the client at once; else `ScaleTraffic.suback` tells when."""
        self.filters.update(filters)
        asked = tuple(Subscription(each, 0) for each in filters)
        sent = self.pair.from_client(codec.encode(Subscribe(1, asked), 4))
        return bool(sent and self.pair.from_broker(_granted(len(filters))))

    def unsubscribe(self, topic_filter: str) -> None:
        self.filters.discard(topic_filter)
        if self.pair.from_client(codec.encode(Unsubscribe(1, (topic_filter,)), 4)):
            self.pair.from_broker(_UNSUBACK)

    def publish(self, topic: str, payload: bytes) -> None:
        self.pair.from_client(codec.encode(Publish(topic, payload), 4))

    def lose(self) -> None:
        """Its connection breaks."""
        self.filters.clear()
        self.pair.ended()

    def leave(self) -> None:
        self.filters.clear()
        self.pair.from_client(_GOODBYE)
        self.pair.ended()
