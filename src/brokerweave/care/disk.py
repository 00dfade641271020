"""What a node's disk has of the records here, for after a restart.

Owns a journal of all that changes records: publications that came, what homes told, and what happened to the
records of clients here, as a holder would hear it. Invariants: `replay` gives what was flushed, in order; a
record is written anew before what was written of it is cut off. If the disk fails, this is counted, and
what it missed is written when it works again, up to a bound. Must not know: what a record means, who claims
it.

A part is its kind u8, time f64, the lengths u16 of a name and u32 of the content, name, content. The name is
the home's; of what a client published, the client's.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from brokerweave.care import wire
from brokerweave.care.held import Held, decode_held, encode_held
from brokerweave.care.wire import LogEntry
from brokerweave.errors import RemoteProtocolError
from brokerweave.links.journal import Journal, StorageError

Life = tuple[str, int]
SLACK = 4 << 20
"""Bytes that the journal may take beyond twice what is alive in it."""
UNWRITTEN = 4 << 20
"""Bytes that wait for a disk that fails; beyond, it will not have them."""
REWRITTEN = 256 << 10
"""Bytes that are written anew in one turn, about."""

_READ_BYTES = 1 << 20
_CAME, _TOLD, _WHOLE, _SENT = 1, 2, 3, 4
_HEAD = struct.Struct(">BdHI")
_PACKET_ID = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Came:
    """A publication that came."""

    held: Held
    stamp: bytes
    """Under which the broker has it."""
    sender: tuple[str, int] | None = None
    """Its publisher, and the packet id: it may send this again."""


Part = Came | tuple[Life, list[LogEntry], bool]
"""Or what a home told; True: these records stand for all that was told of them."""


class RecordJournal:
    def __init__(self, now: Callable[[], float], soon: Callable[[], None]) -> None:
        """`soon`: called when there is something to be flushed."""
        self.failures = 0
        """Records that the disk did not take, or that cannot be read."""
        self._journal: Journal | None = None
        self._now = now
        self._soon = soon
        self._own: tuple[Life, list[LogEntry]] | None = None
        self._pending: list[bytes] = []
        self._size = 0
        self._written: OrderedDict[tuple[Life, str], int] = OrderedDict()
        """The number from which on the journal has all of a record; it grows from one to the next."""

    def open(self, journal: Journal) -> Iterator[Part]:
        """What an earlier start wrote, in order. What happens is written behind that."""
        number = 0
        try:
            while found := journal.read(number + 1, _READ_BYTES):
                for number, data in found:
                    try:
                        yield from self._parts(number, data)
                    except RemoteProtocolError:
                        self.failures += 1
        except StorageError:
            self.failures += 1
        self._journal = journal

    # What happens

    def came(self, came: Came) -> None:
        """A publication that clients here want, or clients whose records are kept here."""
        if self._journal is None:
            return
        content = encode_held(came.held, came.held.born) + came.stamp
        if came.sender is None:
            self._put(_CAME, "", content)
        else:
            client, packet_id = came.sender
            self._put(_SENT, client, _PACKET_ID.pack(packet_id) + content)

    def told(self, life: Life, entries: list[LogEntry]) -> None:
        """What another home said."""
        if self._journal is not None:
            for each in entries:
                self._note(life, each, self._journal.last + 1)
            self._put(_TOLD, life[0], wire.encode_log(life[1], 0, entries, self._now()))

    def noted(self, life: Life, entry: LogEntry) -> None:
        """What this home has to say."""
        if self._journal is None:
            return
        self._note(life, entry, self._journal.last + 1)
        if self._own is None:
            if not self._pending:
                self._soon()
            self._own = life, []
        self._own[1].append(entry)

    def _note(self, life: Life, entry: LogEntry, number: int) -> None:
        key = life, entry.client
        if entry.kind == "drop":
            self._written.pop(key, None)
        elif entry.kind == "record":
            self._written.setdefault(key, number)
        elif entry.kind in ("begin", "end"):
            for each in [each for each in self._written if each[0] == life]:
                del self._written[each]

    def _put(self, kind: int, node: str, content: bytes) -> None:
        if not self._pending and self._own is None:
            self._soon()
        self._say_own()
        name = node.encode()
        part = _HEAD.pack(kind, self._now(), len(name), len(content)) + name + content
        self._pending.append(part)
        self._size += len(part)

    def _say_own(self) -> None:
        if self._own is not None:
            ((node, start), entries), self._own = self._own, None
            self._put(_TOLD, node, wire.encode_log(start, 0, entries, self._now()))

    # The disk

    def flush(self) -> None:
        """Write down what happened since the last time."""
        self._say_own()
        if self._journal is None or not self._pending:
            return
        try:
            self._journal.append(self._journal.last + 1, b"".join(self._pending))
        except StorageError:
            if self._size <= UNWRITTEN:
                return
            self.failures += 1
        self._pending.clear()
        self._size = 0

    def compact(self, alive: int, whole: Callable[[Life, str], LogEntry | None]) -> None:
        """Write some records anew, as `whole` has them, and cut off what is of no use then. `alive`: their
        bytes together."""
        if self._journal is None or self._pending or self._journal.size <= 2 * alive + SLACK:
            return
        left = REWRITTEN
        while left > 0 and self._written:
            (life, client), number = next(iter(self._written.items()))
            if number > self._journal.last:
                break
            del self._written[life, client]
            entry = whole(life, client)
            if entry is not None:
                self._written[life, client] = self._journal.last + 1
                payload = wire.encode_log(life[1], 0, [entry], self._now())
                self._put(_WHOLE, life[0], payload)
                left -= len(payload)
        self.flush()
        if not self._pending:
            first = next(iter(self._written.values()), self._journal.last + 1)
            try:
                self._journal.trim(first - 1)
            except StorageError:
                self.failures += 1

    def _parts(self, number: int, data: bytes) -> Iterator[Part]:
        at = 0
        while at < len(data):
            try:
                kind, time, name_size, size = _HEAD.unpack_from(data, at)
                at += _HEAD.size
                node = data[at : at + name_size].decode()
            except (struct.error, UnicodeDecodeError):
                raise RemoteProtocolError("a part of a journal of records cannot be read") from None
            at += name_size + size
            content = data[at - size : at]
            if kind in (_CAME, _SENT):
                yield _came(node if kind == _SENT else "", content)
                continue
            start, _, entries = wire.decode_log(content, time)
            life = node, start
            for each in entries:
                if kind == _WHOLE:
                    self._written.pop((life, each.client), None)
                self._note(life, each, number)
            yield life, entries, kind == _WHOLE


def _came(client: str, content: bytes) -> Came:
    sender = None
    if client:
        packet_id, content = content[: _PACKET_ID.size], content[_PACKET_ID.size :]
        sender = client, int.from_bytes(packet_id, "big")
    held, end = decode_held(content)
    return Came(held, content[end:], sender)
