"""What was handed to this node's broker, and when it had it: on a clock of events, not of seconds.

Owns the log. Ticks order what this node did and saw: a message that was acknowledged before the tick at
which a SUBSCRIBE was written was not delivered for it; one that was written after the tick of its SUBACK
is. Invariants: without an open cutover only what is not acknowledged yet is remembered; bounded, and what
is forgotten too early is counted; to look at what happened since a tick costs no more than what happened
since, however long the log is. Must not know: connections, what the messages are.

`InjectionLog.lane` gives what `Injector.watch` takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from brokerweave.care.ids import MessageId
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.frames import publish_head
from brokerweave.mqtt.packets import Publish

CAPACITY = 200_000
"""Messages; each takes some 300 bytes."""


@dataclass(slots=True)
class InjectionRecord:
    queued: int = 0
    """The tick at which this node had it for the broker."""
    sent: int | None = None
    """The tick at which it was first written to the broker; None while it waits."""
    ended: int | None = None
    """The tick at which the broker was known to have it."""
    run: Run | None = None
    """The run of this one message; None if it came with others, or was published here."""
    _hash: bytes = b""

    @property
    def publish(self) -> Publish | None:
        packet = codec.decode(self.run.blob, self.run.version) if self.run is not None else None
        return packet if isinstance(packet, Publish) else None

    @property
    def hash(self) -> bytes | None:
        """Of its content; asked often."""
        if not self._hash:
            publish = self.publish
            self._hash = content_hash(publish.topic, publish.payload) if publish is not None else b""
        return self._hash or None


class InjectionLog:
    def __init__(self, capacity: int = CAPACITY) -> None:
        self.forgotten = 0
        """Entries dropped for room: what they were about may be given to a client twice."""
        self.writing: Callable[[MessageId], None] | None = None
        """Called when one is about to be written to the broker for the first time."""
        self.kept: Callable[[bytes], None] = lambda topic: None
        """Called with the topic of each that is queued: somebody may keep it."""
        self._capacity = capacity
        self._tick = 0
        self._entries: dict[MessageId, InjectionRecord] = {}
        self._pending: dict[MessageId, InjectionRecord] = {}
        """Those of them that the broker is not known to have."""
        self._ended: deque[MessageId] = deque()
        """Those that it has, in that order."""
        self._open: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def tick(self) -> int:
        """The next tick, for whatever happens now."""
        self._tick += 1
        return self._tick

    def lane(self, lane: int) -> LaneWatch:
        """`lane` is the one that numbers what this injector gets: 0 where lanes keep no order."""
        return LaneWatch(self, lane)

    def open(self) -> int:
        """A cutover begins, a SUBSCRIBE goes out: its tick. What ends from now on is remembered until
        `close`."""
        tick = self.tick()
        self._open.append(tick)
        return tick

    def close(self, tick: int) -> None:
        if tick in self._open:
            self._open.remove(tick)
        oldest = min(self._open, default=self._tick + 1)
        while self._ended:
            entry = self._entries.get(self._ended[0])
            if entry is not None and entry.ended is not None and entry.ended >= oldest:
                break
            self._forget(self._ended.popleft())

    def find(self, identifier: MessageId) -> InjectionRecord | None:
        return self._entries.get(identifier)

    def since(self, tick: int) -> Iterator[InjectionRecord]:
        """What the broker was not known to have at this tick."""
        yield from self._pending.values()
        for identifier in reversed(self._ended):
            entry = self._entries.get(identifier)
            if entry is not None and entry.ended is not None:
                if entry.ended <= tick:
                    return
                yield entry

    def own(self, identifier: MessageId) -> None:
        """The broker acknowledged what a client here published: when it was written to it is not known."""
        if self._open:
            self._entry(identifier).sent = 0
            self.ended(identifier)

    def queued(self, identifier: MessageId, run: Run | None = None) -> None:
        self._entry(identifier).run = run

    def sent(self, identifier: MessageId) -> None:
        entry = self._entry(identifier)
        if entry.sent is None:
            entry.sent = self.tick()
            if self.writing is not None:
                self.writing(identifier)

    def sent_before(self, identifier: MessageId) -> None:
        """It was written to the broker, by an earlier start of this node or by a client that has left."""
        self._entry(identifier).sent = 0

    def ended(self, identifier: MessageId) -> None:
        if not self._open:
            self._forget(identifier)
            return
        entry = self._pending.pop(identifier, None)
        if entry is not None:
            entry.ended = self.tick()
            self._ended.append(identifier)

    def failed(self, identifier: MessageId) -> None:
        """The broker will not get it: it expired, or is a dead letter."""
        self._forget(identifier)

    def _entry(self, identifier: MessageId) -> InjectionRecord:
        entry = self._entries.get(identifier)
        if entry is None:
            entry = self._entries[identifier] = self._pending[identifier] = InjectionRecord(self._tick)
            if len(self._entries) > self._capacity:
                oldest = self._ended.popleft() if self._ended else next(iter(self._entries))
                self.forgotten += self._forget(oldest)
        return entry

    def _forget(self, identifier: MessageId) -> bool:
        self._pending.pop(identifier, None)
        return self._entries.pop(identifier, None) is not None


class LaneWatch:
    """Implements `links.sender.Watch` for one injector."""

    def __init__(self, log: InjectionLog, lane: int) -> None:
        self._log = log
        self._lane = lane
        self._unproven: deque[tuple[int, MessageId]] = deque()

    def queued(self, run: Run) -> None:
        if run.max_qos:  # QoS 0 publications are not held by anybody
            for offset in range(run.count):
                self._log.kept(publish_head(run.part(offset, 1).blob, run.version).topic)
            for sequence in range(run.first, run.first + run.count):
                identifier = MessageId(run.origin, run.epoch, self._lane, sequence)
                self._log.queued(identifier, run if run.count == 1 else None)

    def sent(self, origin: str, epoch: int, sequence: int, mark: int) -> None:
        """`mark`: it was written at QoS 0, and only `proved` says that the broker has it; else 0."""
        identifier = MessageId(origin, epoch, self._lane, sequence)
        self._log.sent(identifier)
        if mark:
            self._unproven.append((mark, identifier))

    def sent_before(self, origin: str, epoch: int, sequence: int) -> None:
        self._log.sent_before(MessageId(origin, epoch, self._lane, sequence))

    def ended(self, origin: str, epoch: int, sequence: int, taken: bool) -> None:
        identifier = MessageId(origin, epoch, self._lane, sequence)
        (self._log.ended if taken else self._log.failed)(identifier)

    def proved(self, mark: int) -> None:
        while self._unproven and self._unproven[0][0] <= mark:
            self._log.ended(self._unproven.popleft()[1])
