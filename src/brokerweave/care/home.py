"""A client at its home: its connection, what goes to it from here, and what from its broker.

Owns `Home`: the client's record, its pair, and how far what is in its queue is on its way. Invariants: what
is in the queue goes to the client once, from the broker if it had granted the filter before, else from the
node. What the client answered leaves the queue. Must not know: other sites, holders.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from brokerweave.care import held as aging
from brokerweave.care.held import Held
from brokerweave.care.ids import MessageId
from brokerweave.care.record import Record
from brokerweave.care.wire import ClientClaim
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.topics import matches, shared_filter
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.pair import Pair


class State(enum.Enum):
    HOME = "home"
    DRAINING = "draining"
    """Another site has claimed the client, as planned; what is in flight here is being answered."""
    LEAVING = "leaving"
    """Another site has claimed the client; what comes for it is passed on until all know."""


class Hold(enum.IntEnum):
    """What a site has of a client: of two the higher one counts, then the later claim."""

    ADOPTED = 0
    """Its home is gone, and nothing but the record is here."""
    SESSION = 1
    """The broker here has a session that the client left."""
    CONNECTED = 2


@dataclass(slots=True, eq=False)
class Claiming:
    """A client that came, or changed what it wants: who has yet to hear of it, and who gave something."""

    version: int
    """Of what this site wants, since the client is here."""
    positions: dict[str, int]
    """Of the holders' logs, since they know what it wants."""
    givers: set[str] = field(default_factory=set)
    released: dict[str, frozenset[str]] = field(default_factory=dict)
    """Givers that may let go, as soon as none of these sites lives that have not heard of it."""
    late: bool = False
    """Nobody is waited for any longer."""


@dataclass(slots=True, eq=False)
class Standing:
    """A place in the stream to the client that waits, at a CONNACK or SUBACK."""

    suback: HoldPoint | None
    """Where SUBACK stands; None: it has gone on."""
    behind: HoldPoint
    """What the node has for the client goes there, and then the stream goes on."""
    version: int
    positions: dict[str, int]
    late: bool = False


@dataclass(slots=True, eq=False)
class Delivering:
    """What is on its way to a client."""

    granted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By filter: the tick at which the broker had granted it in this session, and the QoS."""
    by_broker: set[MessageId] = field(default_factory=set)
    """What its broker will deliver."""
    begun: set[MessageId] = field(default_factory=set)
    """Of this, what it has delivered: it does so again until the client has answered."""
    refused: set[MessageId] = field(default_factory=set)
    """Of this, what it did not get for want of room: what comes behind it is given all the same."""
    flight: set[MessageId] = field(default_factory=set)
    """What was given to it, or is held in its stream, and not answered."""
    given: dict[bytes, Held] = field(default_factory=dict)
    """What the node gives to it, by stamp: so its receipts name it."""
    giving: bool = False
    opened: bool = False
    standing: list[Standing] = field(default_factory=list)

    def qos_of(self, topic: str) -> int:
        """-1: its broker delivers nothing on this topic."""
        found = [qos for f, (_, qos) in self.granted.items() if matches(shared_filter(f)[1], topic)]
        return max(found, default=-1)

    def granted_before(self, topic: str, tick: int) -> bool:
        return any(at < tick and matches(shared_filter(f)[1], topic) for f, (at, _) in self.granted.items())

    def interrupted(self) -> None:
        """The connection is over."""
        self.flight.clear()
        self.given.clear()
        self.giving = False
        self.opened = False
        self.standing.clear()

    def lost(self) -> None:
        """The broker does not have the session any more."""
        self.granted.clear()
        self.by_broker.clear()
        self.begun.clear()
        self.refused.clear()

    def begin(self, identifier: MessageId) -> None:
        """Its broker delivers this."""
        self.flight.add(identifier)
        self.by_broker.add(identifier)
        self.begun.add(identifier)

    def refuse(self, identifier: MessageId) -> None:
        """There was no room for it on its way to the broker."""
        if identifier in self.by_broker:
            self.refused.add(identifier)

    def end(self, identifier: MessageId) -> None:
        """The client has it."""
        self.flight.discard(identifier)
        self.by_broker.discard(identifier)
        self.begun.discard(identifier)
        self.refused.discard(identifier)

    def expect_from_node(self, ids: set[MessageId]) -> None:
        """Others had these for the client, so its broker may have refused them when they came."""
        self.by_broker -= ids - self.flight - self.begun
        self.refused &= self.by_broker


@dataclass(slots=True, eq=False)
class Draining:
    """A connection that ends when nothing is in flight on it any more."""

    claim: ClientClaim
    """Is answered then."""
    pair: Pair


@dataclass(slots=True, eq=False)
class Home:
    record: Record
    state: State = State.HOME
    pair: Pair | None = None
    to: str = ""
    """Who has claimed it."""
    to_life: int = 0
    """In which life: the next one knows nothing of that."""
    claiming: Claiming | None = None
    draining: Draining | None = None
    unsettled: int | None = None
    """The version that all have to know before its record counts on what origins know; None: they do."""
    answered: dict[str, int] = field(default_factory=dict)
    """The sites, with their lives, that know that the client is here."""
    sources: frozenset[str] = frozenset()
    """Who knows best what the client has: the site that had it last, and that one's holders."""
    elsewhere: bool = False
    """Others may know the client, and what it is to get."""
    told: dict[MessageId, int] = field(default_factory=dict)
    """While it is claimed: what others had for it, and in which session."""
    delivering: Delivering = field(default_factory=Delivering)
    session: bool = False
    """A session of the client is, or was, at the broker here; else it was adopted."""
    since: int = 0
    """When the client last came here, as a generation."""

    @property
    def client(self) -> str:
        return self.record.client

    @property
    def hold(self) -> Hold:
        if self.pair is not None:
            return Hold.CONNECTED
        return Hold.SESSION if self.session else Hold.ADOPTED

    @property
    def awaits_subscription(self) -> bool:
        """Whether the client has yet to subscribe here, or to hear that it has, to get what it missed."""
        return bool(self.delivering.standing or (self.record.filters and not self.delivering.granted))

    def waiting(self, now: float) -> list[tuple[Held, Publish]]:
        """What the node has to give to the client now, in order."""
        delivering, out = self.delivering, list[tuple[Held, Publish]]()
        if all(one in delivering.by_broker or one in delivering.flight for one in self.record.queue):
            return out
        awaited = delivering.by_broker - delivering.flight - delivering.refused
        behind = {
            (one[:3], held.topic): one.sequence
            for one, held in reversed(list(self.record.queue.items()))
            if one in awaited
        }
        for _, identifier, held in self._in_order():
            if identifier in delivering.by_broker or identifier in delivering.flight:
                continue
            if behind.get((identifier[:3], held.topic), identifier.sequence) < identifier.sequence:
                continue  # its broker has to deliver earlier ones
            qos = delivering.qos_of(held.topic)
            left = aging.aged(held, now) if qos >= 0 else None
            if left is not None:
                out.append((held, replace(left, qos=min(qos, left.qos))))
        return out

    def _in_order(self) -> list[tuple[float, MessageId, Held]]:
        """What is in the queue, the oldest first. Ages come with links, and are not exact: of one stream the
        ids count."""
        ordered: list[tuple[float, MessageId, Held]] = []
        for identifier, held in sorted(self.record.queue.items(), key=lambda item: item[0]):
            before = ordered[-1] if ordered and ordered[-1][1][:3] == identifier[:3] else (0.0,)
            ordered.append((max(held.born, before[0]), identifier, held))
        return sorted(ordered, key=lambda each: each[:2])

    def interrupted(self) -> None:
        """The connection is over. At QoS 0 the broker keeps nothing for the next one: the node gives it."""
        delivering, queue = self.delivering, self.record.queue
        delivering.interrupted()
        kept = (one for one in delivering.by_broker if one in queue)
        delivering.by_broker = {one for one in kept if delivering.qos_of(queue[one].topic) > 0}
        delivering.begun &= delivering.by_broker
        delivering.refused &= delivering.by_broker

    def leaves_to_broker(self, held: Held, tick: int) -> bool:
        """Whether the broker delivers what comes at this tick."""
        topic, delivering = held.topic, self.delivering
        keeps = self.pair is not None or delivering.qos_of(topic) > 0
        return keeps and delivering.granted_before(topic, tick)

    def gives_before(self, held: Held) -> bool:
        """Whether the node has an earlier one to give, so that this one has to come behind it."""
        queue, delivering, stream = self.record.queue, self.delivering, held.id[:3]
        if len(delivering.by_broker) >= len(queue):
            return False
        return any(
            one.sequence < held.id.sequence and one[:3] == stream and each.topic == held.topic
            for one, each in queue.items()
            if one not in delivering.by_broker and one not in delivering.flight
        )

    def received(self, found: Iterable[Held]) -> MessageId | None:
        """The client answered one of these, which say the same."""
        for held in found:
            if held.id in self.delivering.flight:
                self.delivering.end(held.id)
                return held.id
        return None

    def grant(self, filters: Mapping[str, int], tick: int) -> None:
        for each, qos in filters.items():
            first, _ = self.delivering.granted.get(each, (tick, qos))
            self.delivering.granted[each] = (first, qos)
