"""The write-ahead log: everything that a killed node must find again, written down before anybody can rely on
it.

Owns the entries, in the order in which things happened, and how they look in bytes. One entry is one record
of one journal, so it is there as a whole or not at all. Above all that holds for a run: its entry names every
outbox that owes it, marks it as seen (its origin and sequences are in it), and says which of a client's QoS 2
packets it was. Invariants: numbers only grow, also where the disk fails; nothing here raises because a disk
failed: it is counted and said once, and relaying goes on. Must not know: files, how a node is put together
again (`recovery` does).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.journal import Journal, StorageError
from brokerweave.links.run import Run
from brokerweave.links.wire import decode_record, encode_record

OWN = 0xFF
"""In the place of a lane: the run was published at this site."""

_RUN = 1
_RUN_HEAD = struct.Struct(">BBBHH")
"""Kind, lane it came on, destinations, QoS 2 packet id (0: none), bytes of the client id."""
_HOLDS = 0x80
"""Beside a destination's cap: the nodes for whose clients it is kept there follow, parted by zeros."""

_encode_note = json.JSONEncoder(separators=(",", ":")).encode
"""Kept, since notes are written for single messages: making an encoder takes longer than a note."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    run: Run
    lane: int
    destinations: tuple[tuple[str, int], ...]
    """The outboxes that owe it, each with the cap that holds there."""
    client: str = ""
    packet_id: int = 0
    holds: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Those of them that keep it for clients, and of which nodes."""


class WriteAheadLog:
    """With no journal it keeps nothing: for nodes without a disk, and for tests."""

    def __init__(self, journal: Journal | None = None, warn: Callable[[str], None] = lambda _: None) -> None:
        self.failures = 0
        """Entries that the disk did not take."""
        self._journal = journal
        self._warn = warn
        self._failing = False
        self._last = journal.last if journal is not None else 0
        self.grown: Callable[[], None] = lambda: None
        """Asks for a new beginning: after an entry that makes the write-ahead log larger than `limit` bytes,
        when the disk fails (room may be what it lacks), and when it works again."""
        self.limit = 16 << 20

    @property
    def keeps(self) -> bool:
        return self._journal is not None

    @property
    def last(self) -> int:
        """The number of the newest entry."""
        return self._last

    @property
    def size(self) -> int:
        return self._journal.size if self._journal is not None else 0

    def run(self, entry: RunEntry) -> int:
        """Write a run down; its number, under which each outbox keeps it. 0 without a journal."""
        return self._write(encode_run(entry)) if self._journal is not None else 0

    def note(self, kind: str, *values: Any) -> None:
        """Write down a change of what `node.state` keeps: a kind that `recovery` knows, and plain values."""
        if self._journal is not None:
            self._write(_encode_note((kind, *values)).encode())

    def next_number(self) -> int:
        """A number that no entry has, for what an outbox writes into its own journal again."""
        self._last += 1
        return self._last

    def begin_after(self, number: int) -> None:
        """Some journal knows this number already, whatever became of the write-ahead log itself."""
        self._last = max(self._last, number)

    def trim(self, up_to: int) -> None:
        """Entries up to this number are kept elsewhere by now."""
        if self._journal is None:
            return
        try:
            self._journal.trim(up_to)
        except StorageError as error:
            self._failed(error)

    def _write(self, entry: bytes) -> int:
        assert self._journal is not None
        self._last += 1
        try:
            self._journal.append(self._last, entry)
        except StorageError as error:
            self._failed(error)
        else:
            # After a failure entries are missing: beginning anew makes up for them.
            if self._failing or self._journal.size > self.limit:
                self._failing = False
                self.grown()
        return self._last

    def _failed(self, error: StorageError) -> None:
        self.failures += 1
        if not self._failing:
            self._failing = True
            self._warn(
                f"the write-ahead log cannot be written, a crash now would lose what is not in it: {error}"
            )
            self.grown()


def encode_run(entry: RunEntry) -> bytes:
    client = entry.client.encode()
    head = (_RUN, entry.lane, len(entry.destinations), entry.packet_id, len(client))
    parts = [_RUN_HEAD.pack(*head), client]
    holds = dict(entry.holds)
    for name, cap in entry.destinations:
        encoded = name.encode()
        kept_for = holds.get(name, ())
        parts.append(b"%c%b%b" % (cap | (_HOLDS if kept_for else 0), len(encoded).to_bytes(2), encoded))
        if kept_for:
            joined = "\0".join(kept_for).encode()
            parts.append(b"%b%b" % (len(joined).to_bytes(2), joined))
    parts.append(encode_record(entry.run))
    return b"".join(parts)


def decode_entry(data: bytes) -> RunEntry | list[Any]:
    """A run, or the kind and values of a note. Raises `RemoteProtocolError` for anything else."""
    try:
        if data[:1] != bytes((_RUN,)):
            note = json.loads(data)
            if not isinstance(note, list) or not note:
                raise RemoteProtocolError("an entry of the write-ahead log is neither run nor note")
            return note
        _, lane, count, packet_id, length = _RUN_HEAD.unpack_from(data)
        position = _RUN_HEAD.size + length
        client = data[_RUN_HEAD.size : position].decode()
        destinations: list[tuple[str, int]] = []
        holds: list[tuple[str, tuple[str, ...]]] = []
        for _ in range(count):
            end = position + 3 + int.from_bytes(data[position + 1 : position + 3])
            name, cap = data[position + 3 : end].decode(), data[position]
            destinations.append((name, cap & ~_HOLDS))
            position = end
            if cap & _HOLDS:
                position = end + 2 + int.from_bytes(data[end : end + 2])
                holds.append((name, tuple(data[end + 2 : position].decode().split("\0"))))
        run = decode_record(data[position:])
        return RunEntry(run, lane, tuple(destinations), client, packet_id, tuple(holds))
    except (ValueError, IndexError, struct.error) as error:
        raise RemoteProtocolError(f"an entry of the write-ahead log is damaged ({error})") from None
