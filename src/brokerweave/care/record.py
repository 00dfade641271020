"""A client's record: what it wants, what it is to get, and what it has.

Owns `Record` and how two copies of one become one. Invariants: a publication is *seen* by a record if it is
in its queue, or the client has it; merging in any order, any number of times, gives the same; what one copy
saw and has no longer in its queue the client has. Must not know: who has a copy, brokers, connections.

What a client has is named by ids. Of an origin that knows what the client wants where it is, the ids need not
be listed: whatever its lanes brought so far was either for the client, and then in its queue, or was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from brokerweave.care.held import Held
from brokerweave.care.ids import MessageId
from brokerweave.care.room import Room
from brokerweave.mqtt.topics import matches, shared_filter
from brokerweave.mqtt.trie import FilterTrie

Stream = tuple[str, int, int]
"""Origin, epoch, lane: ids of one stream come in their order."""
Origin = tuple[str, int]
"""A node and one of its starts."""
EXPLICIT = 256
"""Ids listed beyond which it is looked whether they need be."""
MOST_DROPPED = 1000
MOST_MATCHES = 1000
"""Topics for which it is remembered who wants them."""


@dataclass(frozen=True, slots=True)
class Cover:
    """Of what these filters match, all up to a place in each stream is in a record's queue, or had."""

    filters: frozenset[str]
    places: Mapping[Stream, int]

    def has(self, held: Held) -> bool:
        return _below(self.places, held.id) and _matches(self.filters, held.topic)

    def is_in(self, other: Cover) -> bool:
        return self.filters <= other.filters and all(
            last <= other.places.get(stream, 0) for stream, last in self.places.items()
        )

    def __or__(self, other: Cover) -> Cover:
        return Cover(self.filters | other.filters, _later(self.places, other.places))


@dataclass(slots=True)
class Snapshot:
    """A record as it travels."""

    client: str
    generation: int
    filters: dict[str, int]
    queue: list[Held]
    covers: list[Cover] = field(default_factory=list)
    ids: set[MessageId] = field(default_factory=set)
    will: bytes = b""
    version: int | None = None
    born: int = 0
    session: int = 0
    floor: dict[Stream, int] = field(default_factory=dict)

    def had(self, held: Held) -> bool:
        """Whether it was seen; had, if it is not in the queue."""
        if held.id in self.ids or _below(self.floor, held.id):
            return True
        return any(each.has(held) for each in self.covers)


@dataclass(frozen=True, slots=True)
class Merged:
    """What one copy of a record learned from another."""

    new: list[Held]
    had: set[MessageId]
    filters: dict[str, int]

    def __bool__(self) -> bool:
        return bool(self.new or self.had or self.filters)


@dataclass(slots=True, eq=False)
class Record:
    client: str
    generation: int = 0
    session: int = 0
    """The generation in which the client was last connected; who adopts it counts on, in the same session."""
    born: int = 0
    """The last generation of the session before this one: what is known of that one is of no use."""
    filters: dict[str, int] = field(default_factory=dict)
    queue: dict[MessageId, Held] = field(default_factory=dict)
    covers: list[Cover] = field(default_factory=list)
    ids: set[MessageId] = field(default_factory=set)
    """What the client has, beyond that."""
    version: int | None = None
    """Origins that have heard this version of what its home wants know what the client wants there, and
    nobody gives anything from before. None: that is not so yet."""
    kept: int | None = None
    """Origins that have heard this version send to holders that have the record as it is. None: some may not
    have it yet."""
    floor: dict[Stream, int] = field(default_factory=dict)
    """Of a session that began where the one before had ended: what had come there before is not for it."""
    will: bytes = b""
    size: int = 0
    meant: set[MessageId] = field(default_factory=set)
    """In a copy, what of the queue its origin sent here for the home, which may not have it."""
    also: dict[MessageId, MessageId] = field(default_factory=dict)
    """By the name under which the client may be said to have it: what of the queue is the same."""
    dropped: dict[MessageId, None] = field(default_factory=dict)
    """The last ones that were let go for want of room: only its broker may still have them."""


class RecordTable:
    """The records of one home, there or in a copy."""

    def __init__(self, room: Room, dropped: Callable[[Record, MessageId], None]) -> None:
        """`dropped`: something was let go for want of room."""
        self.records: dict[str, Record] = {}
        self.heard: dict[Origin, int] = {}
        """The version of what the home wants that each origin knows."""
        self.taken: dict[Stream, int] = {}
        """The last id of each stream that came to this node while its origin knew what the home wants."""
        self.came: dict[Stream, int] = {}
        """The same, whatever their origins knew."""
        self.before: dict[Stream, int] = {}
        """The last id of each stream that is known to have come to this node before it was started."""
        self._unsure: set[Origin] = set()
        """Those that may have forgotten what they heard."""
        self.size = 0
        self._room = room
        self._dropped = dropped
        self._trie = FilterTrie()
        self._matches: dict[str, Mapping[str, int]] = {}
        """What was found lately."""

    def matching(self, topic: str) -> Mapping[str, int]:
        """The clients that want a topic, with their QoS."""
        found = self._matches.get(topic)
        if found is None:
            if len(self._matches) >= MOST_MATCHES:
                self._matches.clear()
            found = self._matches[topic] = self._trie.match(topic)
        return found

    def has(self, record: Record, held: Held) -> bool:
        """Whether the client has it."""
        return held.id not in record.queue and self._covered(record, held)

    def seen(self, record: Record, held: Held) -> bool:
        return held.id in record.queue or self._covered(record, held)

    def _covered(self, record: Record, held: Held) -> bool:
        if held.id in record.ids or self._implied(record, held.id):
            return True
        if record.floor and _below(record.floor, held.id):
            return True
        return any(each.has(held) for each in record.covers)

    def _implied(self, record: Record, identifier: MessageId) -> bool:
        """Whether it was looked at for all that the client wants: its id need not be listed."""
        stream = _stream(identifier)
        if (
            record.version is not None
            and identifier.sequence <= self.taken.get(stream, 0)
            and identifier.epoch > 0
            and self.heard.get(stream[:2], -1) >= record.version
        ):
            return True
        wanted = record.filters.keys()
        return any(_below(each.places, identifier) and wanted <= each.filters for each in record.covers)

    def is_kept(self, record: Record, identifier: MessageId) -> bool:
        """Whether what its origin sends to holders comes there when they have the record."""
        if record.kept is None or not identifier.epoch:
            return False
        return self.heard.get(identifier[:2], -1) >= record.kept

    def _settled(self, record: Record, stream: Stream) -> bool:
        return record.version is not None and self.heard.get(stream[:2], -1) >= record.version

    # What origins know

    def hear(self, origin: Origin, version: int) -> None:
        """An origin knows this version of what the home wants, and what it sent before is here."""
        self.heard[origin] = version
        self._unsure.discard(origin)
        for stream, last in self.came.items():
            if stream[:2] == origin:
                self.taken[stream] = last

    def unhear(self, node: str) -> None:
        """A node may forget what the home wants: what comes from it now says nothing of what does not."""
        self._unsure.update(origin for origin in self.heard if origin[0] == node)

    def take(self, stream: Stream, last: int) -> None:
        """What its origin sent here, up to this, has come, and was looked at for these records."""
        self.came[stream] = max(last, self.came.get(stream, 0))
        if stream[:2] not in self._unsure:
            self.taken[stream] = self.came[stream]

    def restore(self, identifier: MessageId) -> None:
        """This came before the node was started."""
        if identifier.epoch:
            stream = _stream(identifier)
            self.before[stream] = max(identifier.sequence, self.before.get(stream, 0))

    # What changes

    def open(self, client: str) -> Record:
        record = self.records.get(client)
        if record is None:
            record = self.records[client] = Record(client)
        return record

    def drop(self, client: str) -> Record | None:
        record = self.records.pop(client, None)
        if record is not None:
            self.size -= record.size
            self._room.left(record.size, len(record.queue))
            self._change_filters(record, {}, record.filters)
        return record

    def clear(self) -> None:
        for client in list(self.records):
            self.drop(client)

    def set_filters(self, record: Record, filters: Mapping[str, int | None]) -> None:
        gone = [f for f, qos in filters.items() if qos is None]
        self._change_filters(record, {f: q for f, q in filters.items() if q is not None}, gone)

    def _change_filters(self, record: Record, new: Mapping[str, int], gone: Iterable[str]) -> None:
        self._matches.clear()
        for each in gone:
            if (plain := _own(each)) is not None:
                self._trie.discard(plain, record.client)
        if gone is not record.filters:
            for each in gone:
                record.filters.pop(each, None)
        for each, qos in new.items():
            record.filters[each] = qos
            if (plain := _own(each)) is not None:
                self._trie.add(plain, record.client, qos)

    def add(self, record: Record, held: Held) -> None:
        """The client is to get this."""
        if held.id in record.queue:
            return
        record.queue[held.id] = held
        record.ids.discard(held.id)
        record.size += held.size
        self.size += held.size
        self._room.came(self, record.client, held.id, held.size)
        while record.size > self._room.client_bytes and len(record.queue) > 1:
            self.let_go(record.client, next(iter(record.queue)))

    def keeps(self, client: str, identifier: MessageId) -> bool:
        record = self.records.get(client)
        return record is not None and identifier in record.queue

    def let_go(self, client: str, identifier: MessageId) -> None:
        """There is no room for it."""
        record = self.records.get(client)
        if record is not None and self._take(record, identifier):
            record.dropped[identifier] = None
            if len(record.dropped) > MOST_DROPPED:
                del record.dropped[next(iter(record.dropped))]
            self._dropped(record, identifier)

    def forget(self, record: Record, identifier: MessageId) -> None:
        """It is in the queue under another name."""
        self._take(record, identifier)

    def name(self, record: Record, other: MessageId, kept: MessageId) -> None:
        """Who has the one has the other."""
        record.also[other] = kept
        if len(record.also) > MOST_DROPPED:
            del record.also[next(iter(record.also))]

    def add_if_new(self, record: Record, held: Held) -> None:
        if not self.seen(record, held):
            self.add(record, held)

    def received(self, record: Record, identifier: MessageId) -> None:
        """The client has it."""
        self._take(record, identifier)
        if record.also and (same := record.also.pop(identifier, None)) is not None:
            self.received(record, same)
        if not self._implied(record, identifier):
            record.ids.add(identifier)
            if len(record.ids) > EXPLICIT and not len(record.ids) % EXPLICIT:
                self._compress(record)

    def _take(self, record: Record, identifier: MessageId) -> bool:
        """Off its queue."""
        held = record.queue.pop(identifier, None)
        if held is not None:
            record.size -= held.size
            self.size -= held.size
            self._room.left(held.size)
            record.meant.discard(identifier)
        return held is not None

    def _compress(self, record: Record) -> None:
        record.ids = {one for one in record.ids if not self._implied(record, one)}

    def begin(self, record: Record, had: Iterable[MessageId]) -> None:
        """A session begins where the last one of its client ended. `had`: what that had, or was to get."""
        record.floor = _later(self.before, self.came)
        record.ids |= {each for each in had if not _below(record.floor, each)}

    def unsettle(self, record: Record) -> None:
        """What the client wants changes, or it came again: ids are listed until origins have heard that."""
        record.covers = self._covers(record)
        record.version = record.kept = None

    def settle(self, record: Record, version: int) -> None:
        places: Mapping[Stream, int] = record.floor  # an origin that is gone hears nothing any more
        for each in self._covers(record):
            places = _later(places, each.places)
        record.covers = [Cover(frozenset(record.filters), places)] if places else []
        record.floor = {}
        record.version = version
        record.kept = version if record.kept is None else min(record.kept, version)
        self._compress(record)

    def forget_retained(self, old: Callable[[int], bool]) -> None:
        """Messages to be retained are listed whatever origins know: let the old ones go."""
        for record in self.records.values():
            record.ids = {one for one in record.ids if one.epoch or not old(one.sequence)}

    def _covers(self, record: Record) -> list[Cover]:
        """As they are when origins may no longer know what the client wants."""
        taken = {stream: last for stream, last in self.taken.items() if self._settled(record, stream)}
        return _joined(record.covers, Cover(frozenset(record.filters), taken)) if taken else record.covers

    # Copies

    def snapshot(self, record: Record) -> Snapshot:
        return Snapshot(
            record.client,
            record.generation,
            dict(record.filters),
            list(record.queue.values()),
            self._covers(record),
            set(record.ids),
            record.will,
            record.version,
            record.born,
            record.session,
            dict(record.floor),
        )

    def merge(self, record: Record, told: Snapshot) -> Merged:
        """Take over what another copy knows. Of several the latest has to come first."""
        if told.session <= record.born > 0:
            return Merged([], set(), {})
        record.born = max(told.born, record.born)
        if told.session > record.session:
            record.floor = dict(told.floor)
        elif told.session < record.session:
            record.floor.clear()  # the client was elsewhere since that one ended
        record.session = max(told.session, record.session)
        pending = {held.id for held in told.queue}
        if told.covers or told.floor:
            had = {one for one, held in record.queue.items() if one not in pending and told.had(held)}
        else:  # one publication more, or one had: whatever else the queue has
            had = {one for one in told.ids if one in record.queue and one not in pending}
        for identifier in had:
            self._take(record, identifier)
        had |= {
            one for one in told.ids - record.ids if one not in record.queue and not self._implied(record, one)
        }
        new = [held for held in told.queue if held.id not in had and not self.seen(record, held)]
        for held in new:
            self.add(record, held)
        record.ids |= had
        filters = {f: q for f, q in told.filters.items() if f not in record.filters}
        if filters:
            self.unsettle(record)
            self.set_filters(record, filters)
        for each in told.covers:
            record.covers = _joined(record.covers, each)
        if told.covers:
            self._compress(record)
        else:
            record.ids -= {one for one in had if self._implied(record, one)}
        return Merged(new, had, filters)

    def check(self) -> None:
        """Raises AssertionError if an invariant is broken: for the simulator and tests."""
        sizes = 0
        for record in self.records.values():
            assert record.size == sum(held.size for held in record.queue.values()), "a record's size is wrong"
            assert not record.ids & record.queue.keys(), "what a client has is in its queue"
            assert record.meant <= record.queue.keys(), "what is not in a queue is meant for a home"
            sizes += record.size
        assert sizes == self.size, "the size of all records is wrong"

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self.records.values()))


def merged(told: Iterable[Snapshot], ended: int) -> Snapshot:
    """What copies of one record say together, but for sessions that ended with that generation or before."""
    unbounded = 1 << 62
    table = RecordTable(Room(unbounded, unbounded), lambda record, identifier: None)
    for each in told:
        record = table.open(each.client)
        record.born = max(ended, record.born)
        record.generation = max(each.generation, record.generation)
        table.merge(record, each)
    return table.snapshot(record)


def part(record: Record, learned: Merged) -> Snapshot:
    """Only what was learned, to be passed on."""
    return told_of(record, learned.new, learned.had, learned.filters)


def told_of(
    record: Record,
    new: Iterable[Held] = (),
    had: Iterable[MessageId] = (),
    filters: Mapping[str, int] | None = None,
) -> Snapshot:
    """Only this of it."""
    told = Snapshot(record.client, record.generation, dict(filters or {}), list(new), ids=set(had))
    told.session = record.session
    return told


def _joined(covers: list[Cover], new: Cover) -> list[Cover]:
    """With another one, and without those that say nothing more."""
    for each in covers:
        if each.filters == new.filters:
            new |= each
    if any(new.is_in(each) for each in covers):
        return covers
    return [*(each for each in covers if not each.is_in(new)), new]


def _later(one: Mapping[Stream, int], other: Mapping[Stream, int]) -> dict[Stream, int]:
    return {stream: max(one.get(stream, 0), other.get(stream, 0)) for stream in {**one, **other}}


def _matches(filters: Iterable[str], topic: str) -> bool:
    plain = (_own(each) for each in filters)
    return any(each is not None and matches(each, topic) for each in plain)


def _below(places: Mapping[Stream, int], identifier: MessageId) -> bool:
    return identifier.epoch > 0 and identifier.sequence <= places.get(_stream(identifier), 0)


def _stream(identifier: MessageId) -> Stream:
    return identifier[:3]


def _own(topic_filter: str) -> str | None:
    """Another member of a group may have had what a shared subscription missed."""
    group, plain = shared_filter(topic_filter)
    return plain if group is None else None
