"""Where a holder's publications lie: in memory, in a journal, or only there.

Owns the bodies, shared by all clients that are owed one, and the journal's records. What happens in one loop
turn becomes one record, at `flush`. Invariants: what was flushed is found again by `replay`; the oldest
bodies leave memory first, and only those that are in the journal; the journal is trimmed up to its oldest
live body, and rewritten bit by bit where most of it is dead. A disk that fails is counted, all goes on in
memory, and what the disk missed it gets when it answers again, up to a bound. Must not know: queues,
receipts.

A record is parts one after the other. u8 1, *hold*: added f64, clients u16, each client (u16 length, UTF-8),
home (u8 length, UTF-8) and QoS u8, then the publication. u8 2, *gone*: client, ids u32, each origin (u8
length, UTF-8), epoch u64, lane u8, sequence u64.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from brokerweave.care.held import Held, decode_held, encode_held
from brokerweave.care.ids import MessageId
from brokerweave.care.wire import Cursor, encode_ids, encode_name, encode_text
from brokerweave.errors import RemoteProtocolError
from brokerweave.links.journal import Journal, StorageError

SLACK = 4 << 20
"""Bytes that the journal may take beyond twice what is alive in it."""
TRIMMED = 256
"""Records that may be dead at the journal's beginning before they are cut off: that costs a write, and in a
quiet mesh, where all is dead a moment later, a new file."""
UNWRITTEN = 4 << 20
"""Bytes that wait for a disk that fails; beyond, it will not have them."""
SMALL = 300
"""Bytes that a body takes while its publication is only on disk, about."""

_HOLD, _GONE = 1, 2
_READ_BYTES = 1 << 20
_HOLD_HEAD = struct.Struct(">BdH")


@dataclass(slots=True, eq=False)
class Body:
    held: Held | None
    """None: only the journal has it."""
    id: MessageId
    hash: bytes
    size: int
    added: float
    pending: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The clients that it is kept for: of which node each was, and the QoS it asked for there."""
    record: int = 0
    """Of the journal; 0 while it has none."""


class Shelf:
    def __init__(
        self,
        journal: Journal | None = None,
        memory: int = 16 << 20,
        slack: int = SLACK,
        trim_after: int = TRIMMED,
    ) -> None:
        self.failures = 0
        """Records that the disk did not take, or did not give back."""
        self.memory_bytes = 0
        self._memory = memory
        self._slack = slack
        self._trim_after = trim_after
        self._journal = journal
        self._pending: list[bytes] = []
        self._unplaced: list[Body] = []
        self._resident: deque[Body] = deque()
        # Of each record in the journal, in order: the bodies in it that somebody is owed. A publication may
        # have several, of clients that it was held for one after the other.
        self._live: dict[int, dict[int, Body]] = {}
        self._live_bytes = 0
        self._dead = 0
        self._done = 0
        self._replaying = False

    def put(self, held: Held, pending: dict[str, tuple[str, int]], now: float) -> Body:
        body = Body(held, held.id, held.hash, held.size, now, pending)
        self.memory_bytes += body.size
        if self._journal is not None:
            self._pending.append(_encode_hold(body, held))
            self._unplaced.append(body)
        return body

    def drop(self, client: str, bodies: Sequence[Body]) -> None:
        """The client is not owed these any more."""
        if self._journal is not None and bodies and not self._replaying:
            ids = encode_ids([body.id for body in bodies])
            self._pending.append(b"%c%b%b" % (_GONE, encode_text(client), ids))
        for body in bodies:
            del body.pending[client]
            if not body.pending:
                self._forget(body)

    def load(self, body: Body) -> Held | None:
        """None: the disk does not give it back."""
        if body.held is not None:
            return body.held
        assert self._journal is not None
        try:
            for number, data in self._journal.read(body.record, 1):
                for part in _parts(data) if number == body.record else ():
                    if isinstance(part, Body) and part.id == body.id:
                        return part.held
        except (StorageError, RemoteProtocolError):
            pass
        self.failures += 1
        return None

    def flush(self) -> None:
        """Write down what happened since the last time: once per loop turn, before anybody is told."""
        if self._journal is None or not self._pending:
            return
        pending, self._pending = self._pending, []
        placed, self._unplaced = self._unplaced, []
        number = self._append(b"".join(pending))
        if not number:
            self._keep_for_later(pending, placed)
            return
        for body in placed:
            if body.pending:
                self._place(body, number)
        self._trim()
        if self._journal.size > 2 * self._live_bytes + self._slack:
            self._rewrite_oldest()
        self._spill()

    @property
    def behind(self) -> bool:
        """Whether the disk has yet to hear of something: `flush` tries again."""
        return bool(self._pending)

    def _keep_for_later(self, pending: list[bytes], placed: list[Body]) -> None:
        """The disk failed. What it does not hear of when it answers again would be owed again after a
        restart, or lost with it."""
        self._pending, self._unplaced = pending, placed
        if sum(map(len, pending)) > UNWRITTEN:
            self._pending, self._unplaced = [], []
            self.failures += 1

    def replay(self) -> Iterator[Body | tuple[str, list[MessageId]]]:
        """What the journal of an earlier start has, in order: bodies, and who is not owed what any more."""
        if self._journal is None:
            return
        number, self._replaying = 0, True
        try:
            while found := self._journal.read(number + 1, _READ_BYTES):
                for number, data in found:
                    self._live.setdefault(number, {})
                    try:
                        for part in _parts(data):
                            if isinstance(part, Body):
                                self.memory_bytes += part.size
                                self._place(part, number)
                            yield part
                    except RemoteProtocolError:
                        self.failures += 1
                    self._spill()
        except StorageError:
            self.failures += 1
        finally:
            self._replaying = False
        self._trim()

    def _place(self, body: Body, record: int) -> None:
        body.record = record
        self._live[record][id(body)] = body
        self._live_bytes += body.size
        if body.held is not None:
            self._resident.append(body)

    def _forget(self, body: Body) -> None:
        self.memory_bytes -= body.size if body.held is not None else SMALL
        body.held = None
        if body.record:
            self._live_bytes -= body.size
            del self._live[body.record][id(body)]

    def _spill(self) -> None:
        while self._resident and (self.memory_bytes > self._memory or self._resident[0].held is None):
            body = self._resident.popleft()
            if body.held is not None:
                self.memory_bytes -= body.size - SMALL
                body.held = None

    def _append(self, record: bytes) -> int:
        assert self._journal is not None
        number = self._journal.last + 1
        try:
            self._journal.append(number, record)
        except StorageError:
            self.failures += 1
            return 0
        self._live[number] = {}
        return number

    def _trim(self) -> None:
        while self._live and not self._live[oldest := next(iter(self._live))]:
            del self._live[oldest]
            self._dead += 1
            self._done = oldest
        if self._journal is None or self._dead < self._trim_after:
            return
        self._dead = 0
        try:
            self._journal.trim(self._done)
        except StorageError:
            self.failures += 1

    def _rewrite_oldest(self) -> None:
        """Write what lives in the oldest record once more, at the end, so that much behind it can go."""
        bodies = list(self._live[next(iter(self._live))].values()) if self._live else []
        again = [(body, held) for body in bodies if (held := self.load(body)) is not None]
        if not again or len(again) < len(bodies):
            return
        number = self._append(b"".join(_encode_hold(body, held) for body, held in again))
        if number:
            for body, held in again:
                del self._live[body.record][id(body)]
                self._live_bytes -= body.size
                if body.held is None:
                    self.memory_bytes += body.size - SMALL
                    body.held = held
                self._place(body, number)
            self._trim()


def _encode_hold(body: Body, held: Held) -> bytes:
    parts = [_HOLD_HEAD.pack(_HOLD, body.added, len(body.pending))]
    for client, (home, qos) in body.pending.items():
        parts += (encode_text(client), encode_name(home), bytes((qos,)))
    parts.append(encode_held(held, held.born))
    return b"".join(parts)


def _parts(record: bytes) -> Iterable[Body | tuple[str, list[MessageId]]]:
    """Raises RemoteProtocolError."""
    cursor = Cursor(record)
    while cursor.more:
        if record[cursor.at] == _GONE:
            cursor.at += 1
            yield cursor.text(), cursor.ids()
            continue
        kind, added, count = cursor.unpack(_HOLD_HEAD)
        if kind != _HOLD:
            raise RemoteProtocolError("a record of what is held for others is damaged")
        pending: dict[str, tuple[str, int]] = {}
        for _ in range(count):
            client = cursor.text()
            pending[client] = cursor.name(), cursor.byte()
        held, cursor.at = decode_held(record, cursor.at)
        yield Body(held, held.id, held.hash, held.size, added, pending)
