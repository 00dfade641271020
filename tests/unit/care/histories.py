"""A home where things happen to one client's record, for tests of copies.

Owns `History`: each origin numbers what it publishes, and what comes to the home comes in that order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from brokerweave.care.held import Held
from brokerweave.care.ids import MessageId
from brokerweave.care.record import Record, RecordTable, Snapshot, Stream
from brokerweave.care.room import Room
from tests.unit.care.messages import held

ROOM = 1 << 30
STREAMS: tuple[Stream, ...] = (("a", 1, 0), ("b", 1, 0), ("b", 1, 1), ("b", 2, 0))
TOPICS = ("s", "t")
QOS = (0, 1, 2)
Step = Callable[["History"], None]


def table(client_bytes: int = ROOM, max_bytes: int = ROOM) -> tuple[RecordTable, list[MessageId]]:
    """And what it lets go."""
    dropped: list[MessageId] = []
    return RecordTable(Room(client_bytes, max_bytes), lambda record, one: dropped.append(one)), dropped


def fresh() -> tuple[RecordTable, Record]:
    """A record where nothing of the client was known."""
    place, _ = table()
    record = place.open("c")
    record.generation = 1  # as of every client that came somewhere
    return place, record


@dataclass
class Moment:
    """A copy, and what was true when it was made."""

    copy: Snapshot
    queue: frozenset[MessageId]
    had: frozenset[MessageId]


@dataclass
class History:
    published: dict[Stream, int] = field(default_factory=dict)
    known: dict[MessageId, Held] = field(default_factory=dict)
    received: set[MessageId] = field(default_factory=set)
    version: int = 0
    moments: list[Moment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.place, self.record = fresh()

    def publish(self, stream: Stream, topic: str, comes: bool) -> None:
        """Something new of an origin. Not `comes`: the origin does not know that anybody here wants it."""
        self.published[stream] = sequence = self.published.get(stream, 0) + 1
        one = held(sequence, origin=stream[0], epoch=stream[1], lane=stream[2], topic=topic)
        self.known[one.id] = one
        if comes:
            if "c" in self.place.matching(topic) and not self.place.seen(self.record, one):
                self.place.add(self.record, one)
            self.place.take(stream, sequence)

    def publish_retained(self, topic: str) -> None:
        stamp = len(self.known) + 1
        one = held(stamp, origin="a", epoch=0, topic=topic)
        self.known[one.id] = one
        if "c" in self.place.matching(topic) and not self.place.seen(self.record, one):
            self.place.add(self.record, one)

    def receive(self, number: int) -> None:
        waiting = list(self.record.queue)
        if waiting:
            identifier = waiting[number % len(waiting)]
            self.received.add(identifier)
            self.place.received(self.record, identifier)

    def ask(self, topic: str, qos: int | None) -> None:
        self.version += 1
        self.place.unsettle(self.record)
        self.place.set_filters(self.record, {topic: qos})

    def hear(self, stream: Stream) -> None:
        """An origin knows what the home wants, and what it sent before has come."""
        self.place.hear(stream[:2], self.version)

    def settle(self) -> None:
        if self.record.version is None:
            self.place.settle(self.record, self.version)

    def all_hear(self) -> None:
        for stream in STREAMS:
            self.hear(stream)
        self.settle()

    def copy(self) -> None:
        copy, queue = self.place.snapshot(self.record), frozenset(self.record.queue)
        self.moments.append(Moment(copy, queue, frozenset(self.received)))


_streams, _topics = st.sampled_from(STREAMS), st.sampled_from(TOPICS)
_steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda s, t, comes: lambda h: h.publish(s, t, comes), _streams, _topics, st.integers(0, 3)),
    st.builds(lambda topic: lambda h: h.publish_retained(topic), _topics),
    st.builds(lambda s: lambda h: h.publish(s, "s", True), _streams),
    st.builds(lambda number: lambda h: h.receive(number), st.integers(0, 5)),
    st.builds(lambda t, qos: lambda h: h.ask(t, qos), _topics, st.sampled_from(QOS)),
    st.builds(lambda stream: lambda h: h.hear(stream), _streams),
    st.sampled_from((History.settle, History.all_hear)),
)


def _lived(steps: list[Step]) -> History:
    history = History()
    history.ask("s", 1)
    history.copy()
    for step in steps:
        step(history)
        history.place.check()
        history.copy()
    return history


histories = st.builds(_lived, st.lists(_steps, max_size=60))
